"""What can be known of a plan before it meets a snapshot, worked out once per plan.

Plans are cached by whoever compiles them, so a query that runs again finds its preparation by the identity of its plan.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import field
from typing import Any

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.engine.reading.predicates import predicate_variables
from omnigraph.engine.reading.project import result_schema
from omnigraph.plan.operators import (
    Aggregate,
    AggregateFunction,
    Bm25,
    Comparison,
    ComparisonOperator,
    EntityId,
    Expand,
    Expression,
    Filter,
    Literal,
    Nearest,
    Now,
    ParameterRef,
    Pattern,
    Predicate,
    PropertyRef,
    ReadPlan,
    Rrf,
    TextFunction,
    TextMatch,
)

PREPARED_MAX = 1024
ANONYMOUS = "_anon"


@dataclass(frozen=True, eq=False)
class Clause:
    """A filter with the variables it reads."""

    predicate: Predicate
    variables: frozenset[str]
    is_equality: bool
    """Whether it asks one variable for one value."""


@dataclass(frozen=True, eq=False)
class PreparedPattern:
    """A pattern with what its clauses need."""

    scans: dict[str, str]
    expands: tuple[Expand, ...]
    clauses: tuple[Clause, ...]
    anti_joins: tuple[PreparedPattern, ...]
    free: frozenset[str]
    """Variables it uses without ranging over them itself: an enclosing pattern binds them."""
    types: dict[str, str]
    """Node type of each node variable it mentions."""
    edge_types: dict[str, str]
    """Edge type of each edge variable it binds."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan ready to run."""

    plan: ReadPlan
    pattern: PreparedPattern
    asked: frozenset[str]
    """Variables whose values the result or its order needs."""
    schema: pa.Schema
    group_keys: tuple[Expression, ...]
    group_expressions: tuple[Expression, ...]
    only_counts_rows: bool
    """Whether the result is nothing but the number of rows."""
    memo: dict[str, Any] = field(default_factory=dict)
    """What later stages found out about the plan."""


def prepare_pattern(pattern: Pattern) -> PreparedPattern:
    """Work out one pattern and the patterns inside it."""
    scans = {scan.variable: scan.type_name for scan in pattern.scans}
    types, edge_types = dict(scans), {}
    used: set[str] = set()
    for expand in pattern.expands:
        used |= {expand.source, expand.target}
        types.setdefault(expand.source, expand.source_type)
        types.setdefault(expand.target, expand.target_type)
        if expand.edge_variable is not None:
            edge_types[expand.edge_variable] = expand.edge_type
    clauses = tuple(_clause(c.predicate) for c in pattern.filters)
    inner = tuple(prepare_pattern(anti_join.pattern) for anti_join in pattern.anti_joins)
    for clause in clauses:
        used |= clause.variables
    for each in inner:
        used |= each.free
    free = frozenset(used - set(scans) - set(edge_types))
    return PreparedPattern(scans, pattern.expands, clauses, inner, free, types, edge_types)


def _clause(predicate: Predicate) -> Clause:
    variables = predicate_variables(predicate)
    asks_equality = isinstance(predicate, Comparison) and predicate.operator is ComparisonOperator.EQ
    return Clause(predicate, variables, asks_equality and len(variables) == 1)


def expression_variables(expression: Expression) -> frozenset[str]:
    """The variables whose values an expression reads; counting a variable reads none of its values."""
    match expression:
        case PropertyRef() | EntityId():
            return frozenset((expression.variable,))
        case TextMatch() | Bm25() | Nearest():
            return frozenset((expression.property.variable,))
        case Rrf():
            return expression_variables(expression.first) | expression_variables(expression.second)
        case Aggregate(argument=PropertyRef() as argument):
            return frozenset((argument.variable,))
        case Aggregate() | ParameterRef() | Literal() | Now():
            return frozenset()


def _with_implied(plan: ReadPlan) -> Pattern:
    """A `bm25` ranking keeps only rows that share a word, so the pattern may look for those from the start."""
    if not isinstance(plan.rank, Bm25):
        return plan.pattern
    shared = Filter(TextMatch(TextFunction.SEARCH, plan.rank.property, plan.rank.query))
    pattern = plan.pattern
    return Pattern(pattern.scans, pattern.expands, (*pattern.filters, shared), pattern.anti_joins)


def _asked(plan: ReadPlan) -> frozenset[str]:
    asked: set[str] = set()
    for projection in plan.projections:
        asked |= expression_variables(projection.expression)
    for key in plan.order:
        asked |= expression_variables(key.expression)
    if plan.rank is not None:
        asked |= expression_variables(plan.rank)
    if plan.is_ordered and not plan.is_aggregate:
        named = {scan.variable for scan in plan.pattern.scans}
        named |= {e.edge_variable for e in plan.pattern.expands if e.edge_variable is not None}
        asked |= {name for name in named if not name.startswith(ANONYMOUS)}
    return frozenset(asked)


_PREPARED: OrderedDict[int, Prepared] = OrderedDict()
_LOCK = threading.Lock()


def prepare(plan: ReadPlan) -> Prepared:
    """The preparation of a plan; kept with the plan, so that an identity is never mistaken for another's."""
    key = id(plan)
    with _LOCK:
        found = _PREPARED.get(key)
        if found is not None and found.plan is plan:
            return found
    made = _prepare(plan)
    with _LOCK:
        _PREPARED[key] = made
        while len(_PREPARED) > PREPARED_MAX:
            _PREPARED.popitem(last=False)
    return made


def _prepare(plan: ReadPlan) -> Prepared:
    keys = tuple(p.expression for p in plan.projections if isinstance(p.expression, PropertyRef | EntityId))
    wanted: list[Any] = [projection.expression for projection in plan.projections]
    expressions = tuple(dict.fromkeys([*wanted, *(key.expression for key in plan.order)]))
    return Prepared(
        plan,
        prepare_pattern(_with_implied(plan)),
        _asked(plan),
        result_schema(plan.projections),
        keys if plan.is_aggregate else (),
        expressions if plan.is_aggregate else (),
        plan.is_aggregate and all(_counts_rows(projection.expression) for projection in plan.projections),
    )


def _counts_rows(expression: Expression) -> bool:
    return (
        isinstance(expression, Aggregate)
        and expression.function is AggregateFunction.COUNT
        and not isinstance(expression.argument, PropertyRef)
    )
