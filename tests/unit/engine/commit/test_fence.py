"""What a process that stood still may still do to a branch that others have made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.commit.fence import BranchFence
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.transactions import OPERATION_ID
from omnigraph.errors import ConflictError

ADD = "query q($name: String) { insert Person { name: $name } }"
NAMES = "query q() { match { $p: Person } return { $p.name as name } order { $p.name } }"


@pytest.mark.parametrize("others", [0, 3])
def test_a_publish_that_landed_in_time_takes_nothing_from_the_branch_made_anew(tmp_path: Path, others: int) -> None:
    graph = omnigraph.create(tmp_path / "g", "node Person { name: String @key }")
    graph.branches.create("review")
    fence = BranchFence.at(graph.context.recovery, "review")
    graph.mutate(ADD, {"name": "late"}, branch="review")
    published, store = graph.snapshot("review"), graph.context.store
    at = {"after": published.version - 1, "upto": published.version}
    [made] = store.transactions(layout.MANIFEST, "review", **at)
    graph.branches.delete("review")
    graph.branches.create("review")
    for number in range(others):
        graph.mutate(ADD, {"name": f"new {number}"}, branch="review")
    with pytest.raises(ConflictError, match="created anew"):
        fence.take_back_elsewhere(published, made.properties[OPERATION_ID])
    assert [row["name"] for row in graph.query(NAMES, branch="review")] == [f"new {n}" for n in range(others)]
