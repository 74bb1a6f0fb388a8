"""What the documentation shows is what happens."""

import shutil
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, blocks, run
from tests.docs.session import Session, fits

import omnigraph
from omnigraph.examples import community


@pytest.mark.long
def test_the_blocks_of_the_readme_run_in_order(tmp_path: Path) -> None:
    printed = "".join(run(block, tmp_path) for block in blocks("README.md"))
    assert "Late Spring | 1949" in printed
    assert "actor=ada" in printed


@pytest.mark.long
def test_the_quickstart_by_hand_runs_in_order(tmp_path: Path) -> None:
    printed = "".join(run(block, tmp_path) for block in blocks("docs/quickstart.md", after="## By hand"))
    assert "Solaris | 1961" in printed
    assert "changed main via add_book: 1 nodes, 1 edges" in printed
    assert "ada changed the graph; before that there was 1" in printed


@pytest.mark.long
def test_the_tutorial_is_one_session_that_prints_what_it_says(tmp_path: Path) -> None:
    page = blocks("docs/tutorial.md")
    outputs = 0
    with Session(tmp_path) as session:
        for block, printed, told in session.follow(page):
            assert fits(printed, told), f"{block.text}\nprints\n{printed}\nand the page says\n{told}"
            outputs += 1
    assert outputs == [block.language for block in page].count("text")


@pytest.mark.long
def test_the_commands_that_follow_the_story_run(tmp_path: Path) -> None:
    with omnigraph.create(tmp_path / "quickstart.omni", schema=community.schema()) as graph:
        graph.load(community.write_files(tmp_path / "data", size=community.SMALL), engine="local")
    shutil.copytree(ROOT / "src" / "omnigraph" / "examples", tmp_path / "src" / "omnigraph" / "examples")
    story = [block for block in blocks("docs/quickstart.md") if "quickstart.omni" in block.text]
    printed = "".join(run(block, tmp_path) for block in story)
    assert "node:Person v" in printed
    assert "10 rows from branch main via most_depended_on" in printed
