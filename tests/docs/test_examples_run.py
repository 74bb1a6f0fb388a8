"""What the documentation shows is what happens."""

import shutil
from pathlib import Path

from tests.docs.blocks import ROOT, blocks, run

import omnigraph
from omnigraph.examples import community


def test_the_blocks_of_the_readme_run_in_order(tmp_path: Path) -> None:
    printed = "".join(run(block, tmp_path) for block in blocks("README.md"))
    assert "Late Spring | 1949" in printed
    assert "actor=ada" in printed


def test_the_quickstart_by_hand_runs_in_order(tmp_path: Path) -> None:
    printed = "".join(run(block, tmp_path) for block in blocks("docs/quickstart.md", after="## By hand"))
    assert "Solaris | 1961" in printed
    assert "changed main via add_book: 1 nodes, 1 edges" in printed
    assert "ada changed the graph; before that there was 1" in printed


def test_the_commands_that_follow_the_story_run(tmp_path: Path) -> None:
    with omnigraph.create(tmp_path / "quickstart.omni", schema=community.schema()) as graph:
        graph.load(community.write_files(tmp_path / "data", size=community.SMALL), engine="local")
    shutil.copytree(ROOT / "src" / "omnigraph" / "examples", tmp_path / "src" / "omnigraph" / "examples")
    story = [block for block in blocks("docs/quickstart.md") if "quickstart.omni" in block.text]
    printed = "".join(run(block, tmp_path) for block in story)
    assert "node:Person v" in printed
    assert "10 rows from branch main via most_depended_on" in printed
