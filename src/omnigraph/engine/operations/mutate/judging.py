"""Conditions and expressions of statements, judged by what judges them in queries.

A statement looks at rows of one table, each beside a row of the match before it. `StatementRows` shows both to the
evaluation that queries use: the table's columns as the properties of the row, the match's as values known before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.catalog.model import NodeType
from omnigraph.catalog.types import INTEGER_RANGES, Scalar
from omnigraph.engine.read.columns.values import Constant
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.operators.computed import column_of, may_fail
from omnigraph.engine.read.operators.predicates import predicate_mask
from omnigraph.engine.storage.columns import Offsets
from omnigraph.engine.values.entities import Entity
from omnigraph.engine.values.temporal import Mask
from omnigraph.engine.write.asked import Asked, Columns, Probe, Test
from omnigraph.errors import InternalError
from omnigraph.plan.operators import (
    Comparison,
    ComparisonOperator,
    EntityId,
    Expression,
    InList,
    Literal,
    ParameterRef,
    PathValue,
    Predicate,
    PropertyRef,
)
from omnigraph.plan.statements import SELF
from omnigraph.plan.types import operands_of, variables_of

Known = Mapping[Expression, pa.Array]


class StatementRows(Struct, frozen=True):
    """Rows of a table with what is known of them beside: where an expression of a statement finds its columns."""

    length: int
    columns: Columns
    known: Known = field(default_factory=dict)

    def positions(self, variable: str) -> npt.NDArray[Any]:
        """A number for what a variable stands for on each row, the same for the same entity; negative for nothing."""
        ids = {each.variable: column for each, column in self.known.items() if isinstance(each, EntityId)}
        every = pc.unique(wide.concat([wide.one_array(column) for column in ids.values()]).drop_null())
        return np.asarray(pc.fill_null(pc.index_in(ids[variable], value_set=every), -1), dtype=np.int64)

    def fetch(self, reference: PropertyRef) -> pa.Array:
        """A property of the row."""
        if reference.variable != SELF:
            raise InternalError(f"${reference.variable}.{reference.property} was not read before the statements")
        return self.columns(reference.property)

    def path(self, value: PathValue) -> pa.Array:
        """A path is known before, or not at all."""
        raise InternalError(f"${value.variable} was not read before the statements")


def no_columns(name: str) -> pa.Array:
    """The columns of a row that does not exist yet."""
    raise InternalError(f"an insert has no row whose '{name}' could be read")


def columns_at(rows: pa.Table, places: Offsets | None = None) -> Columns:
    """The columns of a table, of the rows at some places."""

    def column(name: str) -> pa.Array:
        held = wide.one_array(rows.column(name))
        return held if places is None else wide.take(held, places)

    return column


def reads_match(expression: Expression) -> bool:
    """Whether an expression depends on the row of the match."""
    return any(name != SELF for name in variables_of(expression))


def depends(predicate: Predicate) -> bool:
    """Whether a condition depends on the row of the match."""
    return any(reads_match(operand) for operand in operands_of(predicate))


class Judge(Struct, frozen=True):
    """Judges rows by the conditions of statements; `context` holds the parameters and the moment of the mutation."""

    context: Context

    def column(self, expression: Expression, rows: StatementRows) -> pa.Array:
        """An expression on each row."""
        return column_of(self.context, expression, rows)

    def mask(self, predicate: Predicate, rows: StatementRows) -> Mask:
        """Which rows satisfy a condition."""
        return predicate_mask(self.context, predicate, rows)

    def test(self, predicate: Predicate) -> Test:
        """A condition that does not depend on the match, to be asked of any rows."""
        return lambda columns, length: self.mask(predicate, StatementRows(length, columns))

    def asked(self, entity: Entity, predicates: Sequence[Predicate]) -> Asked:
        """Conditions that do not depend on the match, as a search: one of them may be answered by looking values up."""
        probe: Probe | None = None
        rest: list[Predicate] = []
        for predicate in predicates:
            found = self._probe(entity, predicate) if probe is None else None
            probe = probe or found
            if found is None:
                rest.append(predicate)
        risky = [may_fail(predicate) for predicate in rest]
        return Asked(
            probe,
            tuple(self.test(each) for each, fails in zip(rest, risky, strict=True) if not fails),
            tuple(self.test(each) for each, fails in zip(rest, risky, strict=True) if fails),
        )

    def _probe(self, entity: Entity, predicate: Predicate) -> Probe | None:
        """The values a condition asks one column for, where stored values that are the same are all it asks for."""
        match predicate:
            case Comparison(operator=ComparisonOperator.EQ, left=PropertyRef(variable=name) as held, right=sought):
                pass
            case Comparison(operator=ComparisonOperator.EQ, left=sought, right=PropertyRef(variable=name) as held):
                pass
            case InList(value=PropertyRef(variable=name) as held, items=sought):
                pass
            case _:
                return None
        if name != SELF or not isinstance(sought, Literal | ParameterRef):
            return None
        values = _stored(held, self.context.constant(sought))
        if values is None:
            return None
        column = held.property
        if isinstance(entity, NodeType) and entity.key == (column,) and held.type.scalar is Scalar.STRING:
            column = "id"  # The id of a node with one String key is that key, and most writes need its column anyway.
        return Probe(column, values)


def _stored(held: PropertyRef, constant: Constant) -> pa.Array | None:
    """Values as a String or integer column stores them; None where a look at every value is needed."""
    scalar = held.type.scalar
    value = constant.value
    items = [] if value is None else list(value) if constant.type.is_list else [value]
    items = [item for item in items if item is not None]
    if scalar is Scalar.STRING:
        return pa.array(items, pa.string())
    if scalar not in INTEGER_RANGES or any(isinstance(item, bool) or not isinstance(item, int) for item in items):
        return None
    low, high = INTEGER_RANGES[scalar]
    return pa.array([item for item in items if low <= item <= high], pa.uint64() if low == 0 else pa.int64())
