"""A merge that dies: before it is confirmed it never happened, afterwards it is finished, and it can be repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.amounts import always_first
from tests.crash.writes import MERGES, Merge

from omnigraph import failpoints
from omnigraph.graph import connect
from omnigraph.testing.crash import content_of, copy_graph, crash_at_failpoint

FORWARD = "fast-forward main to a branch"
BEFORE = (
    failpoints.MERGE_POST_VALIDATION,
    failpoints.MUTATION_PRE_ARM,
    failpoints.MUTATION_POST_TABLE_COMMIT,
    failpoints.MERGE_PRE_CONFIRM,
    failpoints.SIDECAR_CONFIRM,
)
PARTED = "merge a branch that has parted from main"
NO_EFFECT = "merge a branch that has come back to where it was"
"""One publish, which has none of the windows."""
TWO_COMMITS = "merge by two commits to a table"
AFTER = (failpoints.MUTATION_POST_FINALIZE, failpoints.PUBLISH_AFTER_COMMIT)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", always_first(1, sorted(MERGES.keys() - {NO_EFFECT}, key=lambda name: (name != PARTED, name)))
)
@pytest.mark.parametrize("window", [*BEFORE, *AFTER])
def test_a_merge_that_dies_is_whole_or_absent(name: str, window: str, to_merge: dict[str, Path], scratch: Path) -> None:
    write = MERGES[name]
    done = copy_graph(to_merge[name], scratch / "done")
    before = content_of(connect(done, read_only=True))
    write.run(done)
    after = content_of(connect(done, read_only=True))
    root = copy_graph(to_merge[name], scratch / "killed")
    assert crash_at_failpoint(write, root, f"{window}=exit")
    graph = connect(root)
    assert content_of(graph) == (after if window in AFTER else before)
    _merge_again(write, root)
    assert content_of(connect(root, read_only=True)) == after
    assert connect(root).maintenance.verify().clean


def test_a_merge_that_dies_between_two_commits_of_a_table_never_happened(
    to_merge: dict[str, Path], scratch: Path
) -> None:
    write = MERGES[TWO_COMMITS]
    root = copy_graph(to_merge[TWO_COMMITS], scratch / "killed")
    before = content_of(connect(root, read_only=True))
    assert crash_at_failpoint(write, root, f"{failpoints.MERGE_BETWEEN_COMMITS}=exit")
    assert content_of(connect(root)) == before
    _merge_again(write, root)
    assert connect(root).maintenance.verify().clean


def _merge_again(write: Merge, root: str) -> None:
    """The merge repeated: done once, never twice."""
    graph = connect(root)
    write.again(graph)
    merges = [
        c for c in graph.history.list(write.into) if c.merged_parent_commit_id == graph.snapshot(write.source).head
    ]
    assert len(merges) == 1
