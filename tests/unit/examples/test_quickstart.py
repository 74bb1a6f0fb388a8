"""The story of the quickstart, told small."""

from pathlib import Path

import pytest

import omnigraph
from omnigraph.examples import quickstart


@pytest.mark.long
def test_the_story_can_be_told_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _is_told_twice(tmp_path, capsys, "local")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_story_can_be_told_twice_on_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _is_told_twice(tmp_path, capsys, "spark")


def _is_told_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str) -> None:
    words = ["--root", str(tmp_path / "q.omni"), "--data", str(tmp_path / "data"), "--engine", engine, "--small"]
    assert quickstart.main(words) == 0
    first = capsys.readouterr().out
    assert "Create a graph" in first
    assert f"through {engine}" in first
    assert "newcomer adopts" in first
    assert "for robotics" in first
    assert "archived projects deleted" in " ".join(first.split())
    assert "conflict both branches changed Person 'newcomer'" in " ".join(first.split())
    assert "merged review into main" in " ".join(first.split())
    assert quickstart.main(words) == 0
    second = " ".join(capsys.readouterr().out.split())
    assert "1,010 nodes" in second
    with omnigraph.connect(tmp_path / "q.omni", read_only=True) as graph:
        commits = graph.history.list()
        assert [commit.actor_id for commit in commits[-3:]] == ["newcomer", "quickstart", None]
        assert [commit.actor_id for commit in commits if commit.merged_parent_commit_id] == ["reviewer", "reviewer"]
        assert graph.branches.list() == ["main", "tidy-up"]
        assert graph.maintenance.verify().clean


@pytest.mark.long
def test_a_failure_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    words = ["--root", str(tmp_path / "file" / "q.omni"), "--data", str(tmp_path), "--engine", "local", "--small"]
    assert quickstart.main(words) == 1
    assert capsys.readouterr().err.startswith("error: ")
