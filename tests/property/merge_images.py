"""What a graph is told and tells, in the words of the model of merges: records of loads, changes, plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.property.merge_model import COLUMNS, State

from omnigraph.engine.changes import Change
from omnigraph.engine.operations.merge import MergePlan

Changes = dict[tuple[str, str], tuple[Any, Any]]


def people(nodes: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Nodes as records of a load."""
    return [{"type": "P", "data": {"k": key, **row}} for key, row in nodes.items()]


def changes(older: State, newer: State) -> Changes:
    """What it takes to get from one state to another, by comparing everything."""
    found: Changes = {}
    for kind, before, after in (("node", older.nodes, newer.nodes), ("edge", older.edges, newer.edges)):
        for id in before.keys() | after.keys():
            if before.get(id) != after.get(id):  # type: ignore[attr-defined]
                found[kind, id] = (before.get(id), after.get(id))  # type: ignore[attr-defined]
    return found


def images(told: Iterable[Change]) -> Changes:
    """Changes as the graph tells them, as the model has them."""
    found: Changes = {}
    for change in told:
        sides = []
        for image in (change.before, change.after):
            if image is None:
                sides.append(None)
            elif image.ends is None:
                sides.append({name: image.properties[name] for name in COLUMNS})
            else:
                sides.append((*image.ends, image.properties["w"]))
        assert (change.kind, change.id) not in found
        found[change.kind, change.id] = (sides[0], sides[1])
    return found


def replay(state: State, told: Iterable[Change]) -> None:
    """Apply changes; what they say was there before must have been."""
    for (kind, id), (before, after) in images(told).items():
        table: dict[str, Any] = state.nodes if kind == "node" else state.edges
        assert table.pop(id, None) == before, (kind, id)
        if after is not None:
            table[id] = after


def told(plan: MergePlan) -> dict[str, Any]:
    """What a plan says, but for where it was found."""
    found = plan.to_json()
    del found["engine"], found["engine_reason"]
    return found
