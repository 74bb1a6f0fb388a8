"""Files of writes that were refused or killed are reclaimed at once, and never those somebody is about to commit."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path

import pytest
from tests.concurrency.elsewhere import stopped_writer
from tests.crash.writes import LOADS, MUTATIONS, ON_A_BRANCH, Optimize

from omnigraph import failpoints
from omnigraph.engine.operations.cleanup import CleanupReport
from omnigraph.engine.write import staging
from omnigraph.errors import GraphError
from omnigraph.graph import Graph, connect
from omnigraph.testing.crash import Write, check_recovered, content_of, copy_graph, crash_at_failpoint
from omnigraph.testing.failpoints import configured

LEASE = import_module("omnigraph.engine.coordination.lease")
LATE = 'query q() { insert Person { name: "late" } insert Company { name: "late" } }'


def data_files(graph: Graph) -> set[str]:
    """Every data and deletion file of every table and branch."""
    root = Path(graph.uri)
    return {
        str(path.relative_to(root))
        for entry in graph.snapshot().entries.values()
        for folder in ("data", "_deletions")
        for path in (root / entry.path).rglob(f"{folder}/*")
    }


def clean(graph: Graph) -> int:
    """Clean up, keeping every version; returns how many files were reclaimed."""
    report: CleanupReport = graph.maintenance.cleanup(keep=1000)
    assert not report.failed
    return sum(table.orphan_files_removed for table in report.tables)


WRITES = [
    MUTATIONS["insert nodes and an edge"],
    MUTATIONS["delete a node and its edges"],
    LOADS["load append"],
    LOADS["load merge"],
    LOADS["load overwrite"],
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("end", ["refused", "refused when its files were written after it was judged", "killed"])
def test_what_was_staged_and_never_committed_goes_at_once(
    write: Write, end: str, seeded: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small write takes its own files away; `cleanup` takes what others leave."""
    graph = connect(copy_graph(seeded, scratch / "graph"))
    before, content = data_files(graph), content_of(graph)
    if "judged" in end:
        monkeypatch.setattr(staging, "AHEAD_ROWS", -1)
    if end == "killed":
        assert crash_at_failpoint(write, graph.uri, f"{failpoints.MUTATION_POST_STAGE}=exit")
    else:
        with configured(f"{failpoints.MUTATION_POST_STAGE}=return"), pytest.raises(GraphError):
            write.again(graph)
    left = data_files(graph) - before
    assert bool(left) == (end != "refused")
    assert clean(graph) == len(left)
    assert data_files(graph) == before
    assert clean(graph) == 0
    check_recovered(graph.uri, (content,))
    write.again(graph)


def test_everything_a_version_of_any_branch_knows_stays(diverged: Path, scratch: Path) -> None:
    graph = connect(copy_graph(diverged, scratch / "graph"))
    for write in (*MUTATIONS.values(), Optimize(), ON_A_BRANCH["first delete on a branch"]):
        write.again(graph)
    history = {commit.graph_commit_id: content_at(graph, commit.graph_commit_id) for commit in graph.history.list()}
    content = content_of(graph)
    clean(graph)
    again = connect(graph.uri, read_only=True)
    assert content_of(again) == content
    assert {commit: content_at(again, commit) for commit in history} == history


def content_at(graph: Graph, commit_id: str) -> list[object]:
    query = "query q() { match { $p: Person } return { $p.name as n, $p.age as a } order { $p.name } }"
    return list(graph.query(query, at=commit_id))


def test_files_of_a_living_writer_stay(seeded: Path, scratch: Path) -> None:
    graph = connect(copy_graph(seeded, scratch / "graph"))
    before = data_files(graph)
    with stopped_writer(graph.uri, LATE, failpoints.MUTATION_POST_STAGE, scratch, lease_seconds=60) as writer:
        staged = data_files(graph) - before
        assert staged
        assert clean(graph) == 0
        assert data_files(graph) - before == staged
        assert writer.go_on()["error"] is None
    assert "late" in str(content_of(graph)["main/node:Person"])
    check_recovered(graph.uri, (content_of(graph),))


def test_a_writer_whose_files_were_reclaimed_while_it_stood_still_commits_none_of_them(
    seeded: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LEASE, "GRACE_SECONDS", 0.0)
    graph = connect(copy_graph(seeded, scratch / "graph"))
    content = content_of(graph)
    with stopped_writer(graph.uri, LATE, failpoints.MUTATION_POST_STAGE, scratch, lease_seconds=1) as writer:
        time.sleep(1.1)
        assert clean(graph) == 2
        answer = writer.go_on()
    assert answer["error"] == "ConflictError"
    assert "reclaimed" in str(answer["text"])
    check_recovered(graph.uri, (content,))


def test_notes_of_writers_that_are_gone_are_removed(seeded: Path, scratch: Path) -> None:
    graph = connect(copy_graph(seeded, scratch / "graph"))
    notes = Path(graph.uri) / "__writers"
    MUTATIONS["insert a node"].again(graph)
    [own] = notes.iterdir()
    assert crash_at_failpoint(MUTATIONS["insert a keyless node"], graph.uri, f"{failpoints.MUTATION_POST_STAGE}=exit")
    assert len(list(notes.iterdir())) == 2
    connect(graph.uri)
    assert list(notes.iterdir()) == [own]


def test_a_write_that_cannot_leave_its_note_stages_nothing(seeded: Path, scratch: Path) -> None:
    graph = connect(copy_graph(seeded, scratch / "graph"))
    before = data_files(graph)
    folder = Path(graph.uri) / "__writers"
    for note in folder.glob("*") if folder.exists() else ():
        note.unlink()
    if folder.exists():
        folder.rmdir()
    folder.write_text("in the way", encoding="utf-8")
    with pytest.raises(GraphError):
        MUTATIONS["insert a node"].again(graph)
    assert data_files(graph) == before
    folder.unlink()
    MUTATIONS["insert a node"].again(graph)
