"""A plan as a tree that people can read and programs can take apart.

The tree says what the query means, in the order a reader thinks of it. Whoever runs the plan gives its
nodes facts (rows, seconds, why this order).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.language.literals import float_text, string_text
from omnigraph.plan import operators as op
from omnigraph.plan import statements as st
from omnigraph.plan.types import aggregates_in, variables_of
from omnigraph.shown import Table

WIDTH_MAX = 200
"""Conditions and reasons are longer than values, and all of them is what an explanation is for."""


@dataclass(frozen=True, repr=False)
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

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        """The tree as a table for notebooks: a line for each operator, indented, with its facts as columns."""
        lines = list(self._nested(0))
        names = list(dict.fromkeys(name for _, node in lines for name in node.facts))
        indented = "\N{NO-BREAK SPACE}" * 4
        rows = [
            [indented * (depth - 1) + node.operator, node.detail, *(node.facts.get(name, "") for name in names)]
            for depth, node in lines[1:]
        ]
        caption = f"{self.operator} {self.detail}".rstrip()
        return Table(caption, ["operator", "detail", *names], rows).to_html(width_max=WIDTH_MAX)

    def _nested(self, depth: int) -> Iterator[tuple[int, Explanation]]:
        yield depth, self
        for child in self.children:
            yield from child._nested(depth + 1)

    def _lines(self, first: str, rest: str) -> Iterator[str]:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        label = f"{self.operator} {self.detail}".rstrip()
        yield f"{first}{label}  [{facts}]" if facts else f"{first}{label}"
        for position, child in enumerate(self.children):
            last = position == len(self.children) - 1
            yield from child._lines(rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def explain(plan: st.Plan) -> Explanation:
    """The tree of a plan, outermost step first."""
    if isinstance(plan, st.WritePlan):
        steps = [_match(plan.match.pattern)] if plan.match is not None else []
        steps += [_statement(statement) for statement in plan.statements]
        if plan.returning is not None:
            steps.append(Explanation("return", ", ".join(map(_projection, plan.returning.projections))))
        return Explanation("mutation", _signature(plan), tuple(steps))
    tree = _match(plan.pattern)
    if plan.is_aggregate:
        keys = [p.column for p in plan.projections if variables_of(p.expression) and not aggregates_in(p.expression)]
        tree = Explanation(
            "distinct" if plan.distinct else "aggregate", f"by {', '.join(keys)}" if keys else "all rows", (tree,)
        )
    if plan.having:
        tree = Explanation("having", ", ".join(map(show_predicate, plan.having)), (tree,))
    if plan.is_ordered:
        tree = Explanation("order", _ordering(plan), (tree,))
    if plan.offset != 0:
        tree = Explanation("offset", _count(plan.offset), (tree,))
    if plan.limit is not None:
        tree = Explanation("limit", _count(plan.limit), (tree,))
    columns = ", ".join(_projection(projection) for projection in plan.projections)
    return Explanation("query", _signature(plan), (Explanation("project", columns, (tree,)),))


def _count(count: op.Count) -> str:
    return str(count) if isinstance(count, int) else f"${count.name}"


def _signature(plan: st.Plan) -> str:
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
    children += [Explanation("shortest_path", f"${path.variable} = {_expand(path.expand)}") for path in pattern.paths]
    children += [Explanation("filter", show_predicate(filter_.predicate)) for filter_ in pattern.filters]
    children += [
        _match(anti.pattern, "anti_join", ", ".join(f"${name}" for name in anti.outer_variables))
        for anti in pattern.anti_joins
    ]
    children += [
        _match(semi.pattern, "semi_join", ", ".join(f"${name}" for name in semi.outer_variables))
        for semi in pattern.semi_joins
    ]
    children += [_block(block) for block in pattern.blocks]
    return Explanation(operator, detail, tuple(children))


def _block(block: op.Block) -> Explanation:
    binds = ", ".join(f"${name}" for name in block.binds)
    if isinstance(block, op.OptionalMatch):
        return _match(block.pattern, "left_join", binds)
    return Explanation("union", binds, tuple(_match(arm, "arm") for arm in block.arms))


def _expand(expand: op.Expand) -> str:
    edge = f"${expand.edge_variable}:{expand.edge_type}" if expand.edge_variable else expand.edge_type
    hops = "" if (expand.min_hops, expand.max_hops) == (1, 1) else f"{{{expand.min_hops},{expand.max_hops}}}"
    arrow = f"-[{edge}{hops}]-" if expand.undirected else f"-[{edge}{hops}]->"
    return f"${expand.source} {arrow} ${expand.target}"


def show_predicate(predicate: op.Predicate) -> str:
    """A predicate as the query language would write it."""
    match predicate:
        case op.Comparison(operator=operator, left=left, right=right):
            return f"{show(left)} {operator} {show(right)}"
        case op.ListContains(items=items, value=value):
            return f"{show(items)} contains {show(value)}"
        case op.InList(items=items, value=value):
            return f"{show(value)} in {show(items)}"
        case op.StringPredicate(test=test, left=left, right=right):
            return f"{show(left)} {test} {show(right)}"
        case op.IsNull(operand=operand, negated=negated):
            return f"{show(operand)} is {'not ' if negated else ''}null"
        case op.IsTrue(operand=operand):
            return show(operand)
        case op.TextMatch():
            return show(predicate)
        case op.Not(predicate=inner):
            return f"not {_grouped(inner)}"
        case op.And(parts=parts):
            return " and ".join(map(_grouped, parts))
        case op.Or(parts=parts):
            return " or ".join(map(_grouped, parts))


def _grouped(predicate: op.Predicate) -> str:
    text = show_predicate(predicate)
    return f"({text})" if isinstance(predicate, op.And | op.Or) else text


def show(expression: op.Expression | op.EdgeCount) -> str:
    """An expression as the query language would write it."""
    match expression:
        case op.PropertyRef(variable=st.SELF, property=name):
            return _ENDS.get(name, name)
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
        case op.Aggregate(function=function, argument=argument, distinct=distinct):
            return f"{function}({'distinct ' if distinct else ''}{show(argument)})"
        case op.FunctionCall(function=name, arguments=arguments):
            return f"{name}({', '.join(map(show, arguments))})"
        case op.Arithmetic(operator=operator, left=left, right=right):
            return f"{_operand(left)} {operator} {_operand(right)}"
        case op.Negative(operand=operand):
            return f"-{_operand(operand)}"
        case op.PathValue(variable=name, part=part):
            return f"${name}" if part == "path" else f"{part}(${name})"


def _operand(expression: op.Expression) -> str:
    text = show(expression)
    return f"({text})" if isinstance(expression, op.Arithmetic | op.Negative) else text


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


def _statement(statement: st.Statement) -> Explanation:
    match statement:
        case st.InsertNode(type_name=name, assignments=assignments):
            return Explanation("insert_node", f"{name} {{ {_assigned(assignments)} }}")
        case st.InsertEdge(type_name=name, source=source, target=target, assignments=assignments):
            body = ", ".join(filter(None, [f"from: {show(source)}", f"to: {show(target)}", _assigned(assignments)]))
            return Explanation("insert_edge", f"{name} {{ {body} }}")
        case st.UpdateNodes(assignments=assignments) | st.UpdateEdges(assignments=assignments):
            word = "update_nodes" if isinstance(statement, st.UpdateNodes) else "update_edges"
            return Explanation(word, f"{_target(statement)} set {{ {_assigned(assignments)} }}{_where(statement)}")
        case st.DeleteNodes():
            return Explanation("delete_nodes", f"{_target(statement)}{_where(statement)}")
        case st.DeleteEdges():
            return Explanation("delete_edges", f"{_target(statement)}{_where(statement)}")


_ENDS = {"src": "from", "dst": "to"}


def _assigned(assignments: tuple[st.Assignment, ...]) -> str:
    return ", ".join(f"{assignment.property}: {show(assignment.value)}" for assignment in assignments)


def _target(statement: st.Updating | st.Deleting) -> str:
    return statement.type_name if statement.variable is None else f"${statement.variable}: {statement.type_name}"


def _where(statement: st.Updating | st.Deleting) -> str:
    return f" where {' and '.join(map(_grouped, statement.where))}" if statement.where else ""
