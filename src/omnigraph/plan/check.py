"""Check a query against a catalog and make its plan. Start at `compile_query`.

Checking and lowering are one walk: what passes the checks comes out as operators, so nothing that runs was unchecked.
Plans are kept, so that a query that was compiled before costs one lookup.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import property_type
from omnigraph.catalog.types import PropertyType
from omnigraph.errors import GraphError, QueryNotFoundError
from omnigraph.language import parse_query_file
from omnigraph.language import query_ast as ast
from omnigraph.language.schema_parser import DIMENSION_MAX
from omnigraph.language.source import Source, Syntax
from omnigraph.plan.matching import match_pattern
from omnigraph.plan.operators import Parameter, ReadPlan
from omnigraph.plan.program import write_plan
from omnigraph.plan.returning import output
from omnigraph.plan.scope import ANONYMOUS, Scope, anonymous_names
from omnigraph.plan.statements import Plan

CACHED_PLANS_MAX = 1024
_RESERVED_PARAMETERS = frozenset({"__nanograph_now", ANONYMOUS})


class _PlanCache:
    """The most recently used plans, keyed by text, schema and query name; safe to share between threads."""

    def __init__(self, plans_max: int) -> None:
        self._plans: OrderedDict[tuple[str, str, str | None], Plan] = OrderedDict()
        self._plans_max = plans_max
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str, str | None]) -> Plan | None:
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
            return plan

    def put(self, key: tuple[str, str, str | None], plan: Plan) -> None:
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > self._plans_max:
                self._plans.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()


_cache = _PlanCache(CACHED_PLANS_MAX)


def known_plan(catalog: Catalog, source: object, name: str | None) -> Plan | None:
    """The plan of a text that was compiled before, None for anything else."""
    return _cache.get((source, catalog.schema_hash, name)) if isinstance(source, str) else None


def compile_query(catalog: Catalog, source: str, name: str | None = None) -> Plan:
    """The plan of one query of a source: the named one, or the only one.

    Raises:
        ParseError: the source does not fit the grammar.
        QueryNotFoundError: no query has this name, or none was named and there is not exactly one.
        TypeCheckError: the query does not fit the catalog.
        ConstraintError: the query assigns a key.
    """
    key = (source, catalog.schema_hash, name)
    plan = _cache.get(key)
    if plan is None:
        file = parse_query_file(source)
        plan = check(catalog, select(file, name), file.source)
        _cache.put(key, plan)
    return plan


def compile_file(catalog: Catalog, source: str) -> dict[str, Plan | GraphError]:
    """The plan of every query of a source by name, or the error that keeps it from having one.

    Raises:
        ParseError: the source does not fit the grammar.
    """
    file = parse_query_file(source)
    outcomes: dict[str, Plan | GraphError] = {}
    for query in file.queries:
        try:
            outcomes[query.name] = check(catalog, query, file.source)
        except GraphError as error:
            outcomes[query.name] = error
    return outcomes


def clear_cache() -> None:
    """Forget every compiled plan; only measurements have a reason to."""
    _cache.clear()


def select(file: ast.QueryFile, name: str | None) -> ast.Query:
    """The query of this name, or the only one."""
    names = [query.name for query in file.queries]
    if name is None:
        if len(names) == 1:
            return file.queries[0]
        found = f"{len(names)} queries ({', '.join(names[:10])})" if names else "no query"
        raise QueryNotFoundError(f"the source has {found}: say which one to run by its name")
    for query in file.queries:
        if query.name == name:
            return query
    raise QueryNotFoundError(f"the source has no query '{name}'; it has {', '.join(names[:10]) or 'none'}")


def check(catalog: Catalog, query: ast.Query, source: Source) -> Plan:
    """Check one parsed query and lower it."""
    scope = _scope(catalog, query, source)
    parameters = tuple(Parameter(name, kind) for name, kind in scope.parameters.items())
    body = query.body
    if isinstance(body, ast.WriteBody):
        return write_plan(scope, query.name, parameters, body)
    pattern = match_pattern(scope, body.match)
    found = output(scope, body)
    return ReadPlan(
        query.name,
        parameters,
        pattern,
        found.projections,
        order=found.order,
        rank=found.rank,
        limit=found.limit,
        is_aggregate=found.is_aggregate,
        having=found.having,
        offset=found.offset,
        distinct=body.distinct,
    )


def _scope(catalog: Catalog, query: ast.Query, source: Source) -> Scope:
    parameters: dict[str, PropertyType] = {}
    scope = Scope(catalog, source, parameters, _anonymous(query))
    for parameter in query.parameters:
        if parameter.name in _RESERVED_PARAMETERS:
            raise scope.fail(None, f"${parameter.name} is reserved", parameter.span)
        if parameter.name in parameters:
            raise scope.fail(None, f"parameter ${parameter.name} is declared twice", parameter.span)
        parameters[parameter.name] = _parameter_type(scope, parameter)
    return scope


def _parameter_type(scope: Scope, parameter: ast.Parameter) -> PropertyType:
    kind = parameter.type
    if kind.dimension is not None and not 1 <= kind.dimension <= DIMENSION_MAX:
        raise scope.fail(None, f"a Vector has 1 to {DIMENSION_MAX} dimensions, not {kind.dimension}", kind.span)
    if kind.is_list and kind.scalar == "Blob":
        raise scope.fail(None, "a list of Blob is not possible", kind.span)
    return property_type(kind)


def _anonymous(query: ast.Query) -> Iterator[str]:
    """Fresh names for `$_`; a generator, so that queries without one never pay for the search."""
    yield from anonymous_names(frozenset(_variables(query)))


def _variables(tree: object) -> Iterator[str]:
    """Every variable name written anywhere in a tree; nesting is bounded by the parser."""
    if isinstance(tree, ast.Variable):
        yield tree.name
    elif isinstance(tree, tuple):
        for item in tree:
            yield from _variables(item)
    elif isinstance(tree, Syntax):
        for name in tree.__struct_fields__:
            yield from _variables(getattr(tree, name))
