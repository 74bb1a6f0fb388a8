"""What can be known of a plan before it meets a state of the graph; `PlanCache` works it out once per plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from omnigraph.engine.read.operators.computed import fails, may_fail
from omnigraph.engine.read.operators.predicates import predicate_variables
from omnigraph.engine.read.operators.project import result_schema
from omnigraph.plan.operators import (
    Aggregate,
    AggregateFunction,
    And,
    Block,
    Bm25,
    Comparison,
    ComparisonOperator,
    EdgeCount,
    EntityId,
    Expand,
    Expression,
    Filter,
    Literal,
    Not,
    OptionalMatch,
    Or,
    ParameterRef,
    Pattern,
    Predicate,
    ReadPlan,
    ShortestPath,
    StringPredicate,
    StringTest,
    TextFunction,
    TextMatch,
    Union,
)
from omnigraph.plan.returning import group_keys
from omnigraph.plan.types import aggregates_in, operands_of, parts_of, variables_of

ANONYMOUS = "_anon"


class Clause(Struct, frozen=True, eq=False):
    """A filter with the variables it reads."""

    predicate: Predicate
    variables: frozenset[str]
    is_equality: bool
    """Whether it asks one variable for one value."""
    may_fail: bool = False
    """Whether some values make it fail, so that it must not be asked about other rows."""


class PreparedPattern(Struct, frozen=True, eq=False):
    """A pattern with what its clauses need."""

    scans: dict[str, str]
    expands: tuple[Expand, ...]
    clauses: tuple[Clause, ...]
    anti_joins: tuple[PreparedPattern, ...]
    semi_joins: tuple[PreparedPattern, ...]
    blocks: tuple[PreparedBlock, ...]
    paths: tuple[ShortestPath, ...]
    free: frozenset[str]
    """Variables it uses without ranging over them itself: an enclosing pattern binds them."""
    types: dict[str, str]
    """Node type of each node variable it mentions."""
    edge_types: dict[str, str]
    """Edge type of each edge variable it binds."""

    @property
    def may_fail(self) -> bool:
        """Whether some values make a condition in it fail."""
        inner = (*self.anti_joins, *self.semi_joins, *(arm for block in self.blocks for arm in block.arms))
        return any(clause.may_fail for clause in self.clauses) or any(pattern.may_fail for pattern in inner)


class PreparedBlock(Struct, frozen=True, eq=False):
    """An optional block, or the arms of an `either`."""

    arms: tuple[PreparedPattern, ...]
    binds: tuple[str, ...]
    is_optional: bool
    free: frozenset[str]


class Prepared(Struct, frozen=True, eq=False):
    """A plan ready to run."""

    plan: ReadPlan
    pattern: PreparedPattern
    asked: frozenset[str]
    """Variables whose values the result or its order needs."""
    schema: pa.Schema
    group_keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    only_counts_rows: bool
    """Whether the result is nothing but the number of rows."""
    ignores_repeats: bool = False
    """Whether rows that are met more than once make no difference to the groups."""
    patterns: tuple[ParameterRef, ...] = ()
    """Parameters that are regular expressions."""
    risky: tuple[bool, ...] = ()
    """Which projections some values make fail."""
    aggregated: tuple[bool, ...] = ()
    """Which projections have an aggregate in them."""
    nullable: frozenset[str] = frozenset()
    """Variables that may stand for nothing."""


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
    kept = tuple(prepare_pattern(semi_join.pattern) for semi_join in pattern.semi_joins)
    for each in (*inner, *kept):
        used |= each.free
    for path in pattern.paths:
        used |= {path.source, path.target}
        types.setdefault(path.source, path.source_type)
        types.setdefault(path.target, path.target_type)
    bound = set(scans) | set(edge_types) | {path.variable for path in pattern.paths}
    blocks = []
    for block in pattern.blocks:
        made = _prepare_block(block)
        blocks.append(made)
        used |= made.free - bound
        bound |= set(made.binds)
        for name in made.binds:
            for arm in made.arms:
                if name in arm.types:
                    types[name] = arm.types[name]
                if name in arm.edge_types:
                    edge_types[name] = arm.edge_types[name]
    free = frozenset(used - bound)
    return PreparedPattern(
        scans, pattern.expands, clauses, inner, kept, tuple(blocks), pattern.paths, free, types, edge_types
    )


def _prepare_block(block: Block) -> PreparedBlock:
    patterns = block.arms if isinstance(block, Union) else (block.pattern,)
    arms = tuple(prepare_pattern(arm) for arm in patterns)
    free = frozenset(name for arm in arms for name in arm.free)
    return PreparedBlock(arms, block.binds, isinstance(block, OptionalMatch), free)


def _nullable(pattern: Pattern) -> frozenset[str]:
    """Every variable that may stand for nothing somewhere."""
    found = {name for inner in pattern.inner for name in _nullable(inner)}
    found |= {name for block in pattern.blocks if isinstance(block, OptionalMatch) for name in block.binds}
    return frozenset(found)


def _clause(predicate: Predicate) -> Clause:
    variables = predicate_variables(predicate)
    asks_equality = isinstance(predicate, Comparison) and predicate.operator is ComparisonOperator.EQ
    return Clause(predicate, variables, asks_equality and len(variables) == 1, may_fail(predicate))


def read_variables(expression: Expression) -> frozenset[str]:
    """The variables whose values an expression reads; counting the rows of a variable reads none of its values."""
    if _counts_rows(expression):
        return frozenset()
    if isinstance(expression, Aggregate):
        return variables_of(expression.argument)
    parts = parts_of(expression)
    if not parts:
        return variables_of(expression)
    return frozenset(name for part in parts if not isinstance(part, EdgeCount) for name in read_variables(part))


def _with_implied(plan: ReadPlan) -> Pattern:
    """A `bm25` ranking keeps only rows that share a word, so the pattern may look for those from the start."""
    if not isinstance(plan.rank, Bm25):
        return plan.pattern
    shared = Filter(TextMatch(TextFunction.SEARCH, plan.rank.property, plan.rank.query))
    pattern = plan.pattern
    return replace(pattern, filters=(*pattern.filters, shared))


def _asked(plan: ReadPlan) -> frozenset[str]:
    asked: set[str] = set()
    for projection in plan.projections:
        asked |= read_variables(projection.expression)
    for key in plan.order:
        asked |= read_variables(key.expression)
    for predicate in plan.having:
        asked |= frozenset(name for each in operands_of(predicate) for name in read_variables(each))
    if plan.rank is not None:
        asked |= variables_of(plan.rank)
    if plan.is_ordered and not plan.is_aggregate:
        named = {scan.variable for scan in plan.pattern.scans}
        named |= {e.edge_variable for e in plan.pattern.expands if e.edge_variable is not None}
        named |= {name for block in plan.pattern.blocks for name in block.binds}
        asked |= {name for name in named if not name.startswith(ANONYMOUS)}
    return frozenset(asked)


def prepare(plan: ReadPlan) -> Prepared:
    """What can be known of a plan before it meets a state of the graph."""
    keys = group_keys(plan.projections) if plan.is_aggregate else ()
    shown = [projection.expression for projection in plan.projections]
    shown += [key.expression for key in plan.order]
    shown += [operand for predicate in plan.having for operand in operands_of(predicate)]
    aggregates = tuple(dict.fromkeys(found for expression in shown for found in aggregates_in(expression)))
    return Prepared(
        plan,
        prepare_pattern(_with_implied(plan)),
        _asked(plan),
        result_schema(plan.projections),
        keys,
        aggregates,
        only_counts_rows=plan.is_aggregate
        and not plan.having
        and plan.offset == 0
        and all(_counts_rows(projection.expression) for projection in plan.projections),
        ignores_repeats=plan.is_aggregate and all(_ignores_repeats(found) for found in aggregates),
        patterns=patterns_in((*_predicates(plan.pattern), *plan.having)),
        nullable=_nullable(plan.pattern),
        risky=tuple(fails(projection.expression) for projection in plan.projections),
        aggregated=tuple(bool(aggregates_in(projection.expression)) for projection in plan.projections),
    )


def _counts_rows(expression: Expression) -> bool:
    return (
        isinstance(expression, Aggregate)
        and expression.function is AggregateFunction.COUNT
        and not expression.distinct
        and isinstance(expression.argument, EntityId | EdgeCount | Literal)
        and not (isinstance(expression.argument, EntityId | EdgeCount) and expression.argument.nullable)
    )


def _ignores_repeats(aggregate: Aggregate) -> bool:
    """Whether rows that are met more than once make no difference."""
    return aggregate.distinct or aggregate.function in (AggregateFunction.MIN, AggregateFunction.MAX)


def patterns_in(predicates: Iterable[Predicate]) -> tuple[ParameterRef, ...]:
    """The parameters that conditions use as regular expressions."""
    return tuple(
        each.right
        for predicate in predicates
        for each in _inside(predicate)
        if isinstance(each, StringPredicate)
        and each.test is StringTest.MATCHES
        and isinstance(each.right, ParameterRef)
    )


def _predicates(pattern: Pattern) -> Iterator[Predicate]:
    for filter_ in pattern.filters:
        yield filter_.predicate
    for inner in pattern.inner:
        yield from _predicates(inner)


def _inside(predicate: Predicate) -> Iterator[Predicate]:
    match predicate:
        case Not(predicate=inner):
            yield from _inside(inner)
        case And(parts=parts) | Or(parts=parts):
            for part in parts:
                yield from _inside(part)
        case _:
            yield predicate
