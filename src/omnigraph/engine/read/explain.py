"""How a query is run, in words: beforehand from the schedule, afterwards from the notes of the execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.engine.embedding import Embedder
from omnigraph.engine.read.context import Step
from omnigraph.engine.read.execute import execute
from omnigraph.engine.read.operators.lookup import Access, choose_access
from omnigraph.engine.read.plan.operations import (
    Alias,
    AntiJoin,
    Apply,
    CountPaths,
    ExpandAll,
    ExpandInto,
    Filter,
    Join,
    NotNull,
    Operation,
    Project,
    Scan,
    Trace,
)
from omnigraph.engine.read.reader import ReadState
from omnigraph.plan.explain import Explanation, explain
from omnigraph.plan.operators import ReadPlan, TextMatch


def explain_order(plan: ReadPlan, state: ReadState) -> Explanation:
    """What a plan means and, without running it, the order its pattern is matched in on this snapshot, and why."""
    operations = state.program(plan).schedule.operations
    order = Explanation("order", "in which the pattern is matched", tuple(_operations(operations, state)))
    return _with(explain(plan), order)


def explain_analyze(
    plan: ReadPlan, state: ReadState, params: Mapping[str, Any], *, embedder: Embedder | None = None
) -> Explanation:
    """Run a plan and tell what was done: each step in the order it ran, why, its rows and its milliseconds."""
    result = execute(plan, state, params, embedder=embedder)
    for _ in result.to_batches():
        pass
    return _with(explain(plan), Explanation("run", f"{len(result):,} rows", _nested(result.steps, 0)))


def _with(tree: Explanation, more: Explanation) -> Explanation:
    return Explanation(tree.operator, tree.detail, (*tree.children, more), tree.facts)


def _nested(steps: list[Step], depth: int) -> tuple[Explanation, ...]:
    """Steps as a tree: the steps of an anti-join's own pattern stand below it."""
    found: list[Explanation] = []
    place = 0
    while place < len(steps):
        step = steps[place]
        end = place + 1
        while end < len(steps) and steps[end].depth > depth:
            end += 1
        facts: dict[str, Any] = {"rows": step.rows, "ms": round(step.seconds * 1000, 3)}
        if step.reason:
            facts = {"why": step.reason, **facts}
        found.append(Explanation(step.operator, step.detail, _nested(steps[place + 1 : end], depth + 1), facts))
        place = end
    return tuple(found)


def _operations(operations: Sequence[Operation], state: ReadState) -> list[Explanation]:
    found = []
    for operation in operations:
        match operation:
            case Scan():
                why = {"why": "; ".join(filter(None, (operation.reason(), _access(operation, state))))}
                found.append(Explanation("scan", operation.detail(), (), why))
            case Join():
                found.append(Explanation("join", operation.detail(), (), {"why": "the values of both sides are known"}))
            case ExpandAll(is_unseen=True):
                why = {"why": f"nothing asks for ${operation.far}, so it is not listed"}
                found.append(Explanation("count", operation.detail(), (), why))
            case CountPaths():
                why = {"why": "nothing asks for what is on the way; counted for every node once it is asked for often"}
                found.append(Explanation("count", operation.detail(), (), why))
            case ExpandAll():
                found.append(Explanation("expand", operation.detail(), (), {"why": operation.reason()}))
            case ExpandInto():
                found.append(Explanation("check", operation.detail(), (), {"why": "both ends are bound"}))
            case Filter():
                found.append(Explanation("filter", operation.detail()))
            case Alias():
                found.append(Explanation("join", operation.detail(), (), {"why": "both are the same node"}))
            case NotNull():
                found.append(Explanation("filter", operation.detail(), (), {"why": "an edge joins what is there"}))
            case Trace():
                found.append(Explanation("shortest-path", operation.detail(), (), {"why": "searched from both ends"}))
            case Apply():
                arms = [_operations(arm.operations, state) for arm in operation.arms]
                name = "left-join" if operation.is_optional else "union"
                shown = tuple(arms[0]) if len(arms) == 1 else tuple(Explanation("arm", "", tuple(arm)) for arm in arms)
                found.append(Explanation(name, operation.detail(), shown))
            case AntiJoin():
                inner = tuple(_operations(operation.inner.operations, state))
                found.append(Explanation("semi-join" if operation.keeps else "anti-join", operation.detail(), inner))
            case Project():
                continue
    return found


def _access(begin: Scan, state: ReadState) -> str:
    """How the first rows are found, as things stand: what is in memory may change it."""
    if not begin.predicates:
        return ""
    view = state.tables.node_view(begin.type_name)
    for _, reference, _ in begin.equalities:
        access = choose_access(view, reference, asking=False)
        if access is not Access.SCAN:
            return str(access.value)
    if any(isinstance(predicate, TextMatch) for predicate in begin.predicates):
        return "from the text index"
    return str(Access.SCAN.value)
