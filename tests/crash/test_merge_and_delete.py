"""A merge that also deletes its branch: whatever ends it, the branch is never gone without its work being there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.amounts import EXHAUSTIVE
from tests.crash.everywhere import OPERATIONS_MIN, Record
from tests.crash.summary import PROPERTY
from tests.crash.writes import Merge

from omnigraph.errors import BranchNotFoundError, GraphError
from omnigraph.graph import connect
from omnigraph.testing.children import run_child
from omnigraph.testing.crash import changes, check_recovered, content_of, discard_graph, link_graph
from omnigraph.testing.failpoints import CRASH_EXIT_CODE
from omnigraph.testing.faults import Fault, FaultyStore

WRITE = Merge(delete_branch=True)
# An end before a change leaves what the end after the change before it leaves.
FAULTS = [
    pytest.param(fault, marks=pytest.mark.long if fault in (Fault.RAISE_AFTER, Fault.EXIT_AFTER) else EXHAUSTIVE)
    for fault in Fault
    if fault is not Fault.EXIT_BEFORE
]


def faulty(fault: Fault, number: int) -> FaultyStore:
    """Storage in which operations that only look do not count.

    How merging and deleting take a failure of these is shown of each by itself; here it is about what comes between.
    """
    return FaultyStore(fault, number, only=changes)


def merge_in_a_child(root: str, fault: str, number: int) -> None:
    with faulty(Fault(fault), number):
        WRITE.run(root)


def fails(root: str, fault: Fault, number: int) -> bool:
    """Merge with a fault at one operation; False when there are not so many."""
    if fault.kills:
        return run_child(merge_in_a_child, root, fault.value, number) == CRASH_EXIT_CODE
    with faulty(fault, number) as store:
        try:
            WRITE.run(root)
        except (GraphError, KeyboardInterrupt):
            assert store.met
    return store.met


@pytest.mark.parametrize("fault", FAULTS)
def test_a_merge_that_deletes_its_branch_survives(
    fault: Fault, to_merge: dict[str, Path], scratch: Path, record_property: Record
) -> None:
    template = to_merge["fast-forward main to a branch"]
    before = content_of(connect(template, read_only=True))
    merged = link_graph(template, scratch / "merged")
    Merge().run(merged)
    both = content_of(connect(merged, read_only=True))
    alone = {key: rows for key, rows in both.items() if not key.startswith("review/")}
    number = 1
    while fails(root := link_graph(template, scratch / f"at-{number}"), fault, number):
        # Three states, one after the other: nothing, merged, merged and deleted.
        check_recovered(root, (before, both, alone))
        graph = connect(root)
        try:
            WRITE.again(graph)
        except BranchNotFoundError:
            assert content_of(graph) == alone
        check_recovered(root, (alone,))
        assert sum(each.merged_parent_commit_id is not None for each in graph.history.list()) == 1
        discard_graph(root)
        number += 1
    record_property(PROPERTY, number - 1)
    assert number > OPERATIONS_MIN
