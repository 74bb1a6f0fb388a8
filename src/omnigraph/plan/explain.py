"""A plan as a tree that people can read and programs can take apart.

The tree says what the query means, in the order a reader thinks of it. Whoever runs the plan may attach facts to its
nodes (rows, seconds, why this order) through `with_facts`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.language.literals import float_text, string_text
from omnigraph.plan import operators as op


@dataclass(frozen=True)
class Explanation:
    """One operator: what it is, what it works on, what an execution found, and what feeds it."""

    operator: str
    detail: str = ""
    children: tuple[Explanation, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The tree as JSON-ready values; empty parts are left out."""
        body: dict[str, Any] = {"operator": self.operator}
        if self.detail:
            body["detail"] = self.detail
        if self.facts:
            body["facts"] = dict(self.facts)
        if self.children:
            body["children"] = [child.to_json() for child in self.children]
        return body

    def to_text(self) -> str:
        """The tree as indented lines."""
        return "\n".join(self._lines("", ""))

    def with_facts(self, facts: Mapping[str, Any]) -> Explanation:
        """The same node with more facts."""
        return replace(self, facts={**self.facts, **facts})

    def __str__(self) -> str:
        return self.to_text()

    def _lines(self, first: str, rest: str) -> Iterator[str]:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        label = f"{self.operator} {self.detail}".rstrip()
        yield f"{first}{label}  [{facts}]" if facts else f"{first}{label}"
        for position, child in enumerate(self.children):
            last = position == len(self.children) - 1
            yield from child._lines(rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def explain(plan: op.Plan) -> Explanation:
    """The tree of a plan, outermost step first."""
    if isinstance(plan, op.WritePlan):
        steps = tuple(_statement(statement) for statement in plan.statements)
        return Explanation("mutation", _signature(plan), steps)
    tree = _match(plan.pattern)
    if plan.is_aggregate:
        keys = [p.column for p in plan.projections if isinstance(p.expression, op.PropertyRef | op.EntityId)]
        tree = Explanation("aggregate", f"by {', '.join(keys)}" if keys else "all rows", (tree,))
    if plan.is_ordered:
        tree = Explanation("order", _ordering(plan), (tree,))
    if plan.limit is not None:
        tree = Explanation("limit", str(plan.limit), (tree,))
    columns = ", ".join(_projection(projection) for projection in plan.projections)
    return Explanation("query", _signature(plan), (Explanation("project", columns, (tree,)),))


def _signature(plan: op.Plan) -> str:
    return f"{plan.name}({', '.join(f'${p.name}: {p.type}' for p in plan.parameters)})"


def _ordering(plan: op.ReadPlan) -> str:
    keys = [f"{show(key.expression)} {'desc' if key.descending else 'asc'}" for key in plan.order]
    return ", ".join([*([f"rank {show(plan.rank)}"] if plan.rank is not None else []), *keys])


def _projection(projection: op.Projection) -> str:
    text = show(projection.expression)
    return text if text.lstrip("$") == projection.column else f"{text} as {projection.column}"


def _match(pattern: op.Pattern, operator: str = "match", detail: str = "") -> Explanation:
    children = [Explanation("scan", f"${scan.variable}: {scan.type_name}") for scan in pattern.scans]
    children += [Explanation("expand", _expand(expand)) for expand in pattern.expands]
    children += [Explanation("filter", _predicate(filter_.predicate)) for filter_ in pattern.filters]
    children += [
        _match(anti.pattern, "anti_join", ", ".join(f"${name}" for name in anti.outer_variables))
        for anti in pattern.anti_joins
    ]
    return Explanation(operator, detail, tuple(children))


def _expand(expand: op.Expand) -> str:
    edge = f"${expand.edge_variable}:{expand.edge_type}" if expand.edge_variable else expand.edge_type
    hops = "" if (expand.min_hops, expand.max_hops) == (1, 1) else f"{{{expand.min_hops},{expand.max_hops}}}"
    arrow = f"-[{edge}{hops}]-" if expand.undirected else f"-[{edge}{hops}]->"
    return f"${expand.source} {arrow} ${expand.target}"


def _predicate(predicate: op.Predicate) -> str:
    match predicate:
        case op.Comparison(operator=operator, left=left, right=right):
            return f"{show(left)} {operator} {show(right)}"
        case op.ListContains(items=items, value=value):
            return f"{show(items)} contains {show(value)}"
        case op.StringPredicate(test=test, left=left, right=right):
            return f"{show(left)} {test} {show(right)}"
        case op.TextMatch():
            return show(predicate)


def show(expression: op.Expression | op.EdgeCount) -> str:
    """An expression as the query language would write it."""
    match expression:
        case op.PropertyRef(variable=variable, property=name):
            return f"${variable}.{name}"
        case op.EntityId(variable=name) | op.EdgeCount(variable=name) | op.ParameterRef(name=name):
            return f"${name}"
        case op.Literal(value=value):
            return _constant(value)
        case op.Now():
            return "now()"
        case op.TextMatch(function=function, property=ref, query=query, max_distance=distance):
            more = "" if distance is None else f", {show(distance)}"
            return f"{function}({show(ref)}, {show(query)}{more})"
        case op.Bm25(property=ref, query=query):
            return f"bm25({show(ref)}, {show(query)})"
        case op.Nearest(property=ref, query=query):
            return f"nearest({show(ref)}, {show(query)})"
        case op.Rrf(first=first, second=second, k=k):
            return f"rrf({show(first)}, {show(second)}, {show(k)})"
        case op.Aggregate(function=function, argument=argument):
            return f"{function}({show(argument)})"


def _constant(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, dt.datetime):
        return f'datetime("{value.isoformat(timespec="milliseconds").replace("+00:00", "Z")}")'
    if isinstance(value, dt.date):
        return f'date("{value.isoformat()}")'
    if isinstance(value, tuple):
        shown = [_constant(item) for item in value[:8]]
        return f"[{', '.join([*shown, '…'] if len(value) > 8 else shown)}]"
    return str(value)


def _statement(statement: op.Statement) -> Explanation:
    match statement:
        case op.InsertNode(type_name=name, assignments=assignments):
            return Explanation("insert_node", f"{name} {{ {_assigned(assignments)} }}")
        case op.InsertEdge(type_name=name, source=source, target=target, assignments=assignments):
            body = ", ".join(filter(None, [f"from: {show(source)}", f"to: {show(target)}", _assigned(assignments)]))
            return Explanation("insert_edge", f"{name} {{ {body} }}")
        case op.UpdateNodes(type_name=name, assignments=assignments, where=where):
            return Explanation("update_nodes", f"{name} set {{ {_assigned(assignments)} }} where {_test(where)}")
        case op.DeleteNodes(type_name=name, where=where):
            return Explanation("delete_nodes", f"{name} where {_test(where)}")
        case op.DeleteEdges(type_name=name, where=where):
            return Explanation("delete_edges", f"{name} where {_test(where)}")


def _assigned(assignments: tuple[op.Assignment, ...]) -> str:
    return ", ".join(f"{assignment.property}: {show(assignment.value)}" for assignment in assignments)


def _test(where: op.PropertyTest) -> str:
    return f"{where.property} {where.operator} {show(where.value)}"
