"""The nodes that a query finds, asked for in the language of the query itself.

Whoever draws a result, or hands it to a graph library, needs the nodes behind its columns. The query is run as it was
written, with the ids of those nodes as further columns; so it works on a store and behind a server alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from omnigraph.catalog.model import Catalog
from omnigraph.errors import ExecutionError, InputError
from omnigraph.language.query_ast import ReadBody
from omnigraph.language.query_parser import parse_query_file
from omnigraph.language.query_tokens import tokens_of
from omnigraph.plan.check import compile_query, select
from omnigraph.plan.operators import Pattern, ReadPlan
from omnigraph.plan.types import aggregates_in, variables_of

COLUMN = "omnigraph_node_"


class NodeQuery(Struct, frozen=True):
    """A query whose columns named in `types` hold ids of nodes of those types."""

    text: str
    name: str
    types: Mapping[str, str]


def node_query(catalog: Catalog, text: str, name: str | None = None) -> NodeQuery:
    """The same query with the ids of the nodes that it returns something of.

    Raises:
        ExecutionError: it changes the graph.
        InputError: it returns nothing of a node, or only counts.
    """
    plan = compile_query(catalog, text, name)
    if not isinstance(plan, ReadPlan):
        raise ExecutionError(f"query '{plan.name}' changes the graph: run it with mutate")
    if any(aggregates_in(each.expression) for each in plan.projections):
        raise InputError(f"query '{plan.name}' counts: give one that returns nodes, such as $p.id")
    known = dict(_bound(plan.pattern))
    read = (sorted(variables_of(each.expression)) for each in plan.projections)
    used = dict.fromkeys(variable for variables in read for variable in variables if variable in known)
    if not used:
        raise InputError(f"query '{plan.name}' returns nothing of a node: return something of it, such as $p.id")
    columns = {f"{COLUMN}{number}": variable for number, variable in enumerate(used)}
    asked = "".join(f" ${variable}.id as {column}," for column, variable in columns.items())
    place = _first_column(text, plan.name)
    types = {column: known[variable] for column, variable in columns.items()}
    return NodeQuery(text[:place] + asked + text[place:], plan.name, types)


def _first_column(text: str, name: str) -> int:
    """Where the columns of a query begin: behind the brace that opens them."""
    body = select(parse_query_file(text), name).body
    assert isinstance(body, ReadBody)
    before = body.projections[0].span.start
    return max(token.span.end for token in tokens_of(text) if token == "{" and token.start_pos < before)


def _bound(pattern: Pattern) -> Iterator[tuple[str, str]]:
    """The node variables of a pattern and of the blocks that bind more, with their types."""
    yield from ((scan.variable, scan.type_name) for scan in pattern.scans)
    for expand in (*pattern.expands, *(path.expand for path in pattern.paths)):
        yield expand.source, expand.source_type
        yield expand.target, expand.target_type
    for inner in pattern.inner:
        yield from _bound(inner)
