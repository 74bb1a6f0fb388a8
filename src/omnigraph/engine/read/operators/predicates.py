"""Conditions over columns: which rows of a frame, or of a table, satisfy a predicate.

The same code answers for the rows of a frame and for whole fragments of a table; only where the columns come from
differs.
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
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.columns.values import Column, Operand, among, compare, contains, holds_null, string_test
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.kernels import Bools, Ints
from omnigraph.engine.read.operators.computed import Rows, column_of, datum_of, operand_of, text_hits
from omnigraph.engine.read.operators.paths import path_column
from omnigraph.engine.read.operators.positions import positions
from omnigraph.errors import InternalError
from omnigraph.plan.operators import (
    And,
    Comparison,
    ComparisonOperator,
    EntityId,
    Expression,
    InList,
    IsNull,
    IsTrue,
    ListContains,
    Literal,
    Not,
    Now,
    Or,
    ParameterRef,
    PathValue,
    Predicate,
    PropertyRef,
    StringPredicate,
    TextMatch,
)
from omnigraph.plan.types import operands_of, variables_of


class FrameRows(Struct, frozen=True):
    """The rows of a frame."""

    context: Context
    frame: Frame
    known: Mapping[Expression, pa.Array] = field(default_factory=dict)
    """Columns that were computed before, such as the aggregates of groups."""

    @property
    def length(self) -> int:
        """How many rows there are."""
        return self.frame.length

    def positions(self, variable: str) -> npt.NDArray[Any]:
        """The table position of a variable on each row."""
        return positions(self.context, variable, self.frame.columns[variable])

    def fetch(self, reference: PropertyRef) -> pa.Array:
        """A property on each row."""
        view, values = self.context.view(reference.variable), self.frame.columns[reference.variable]
        if reference.variable in self.context.nullable:
            return _fetch_present(view, reference.property, values)
        return view.take(reference.property, view.position_of(values) if isinstance(view, NodeView) else values)

    def path(self, value: PathValue) -> pa.Array:
        """A part of a path on each row."""
        return path_column(self.context, value, self.frame.columns[value.variable])


class GroupRows(Struct, frozen=True):
    """All rows of one group of a table, for predicates over a single variable."""

    view: TableView
    index: int

    @property
    def length(self) -> int:
        """How many rows there are, deleted ones included."""
        return self.view.groups[self.index].physical_rows

    def positions(self, variable: str) -> npt.NDArray[Any]:
        """The positions of the group, in order."""
        return np.arange(self.view.group_starts[self.index], self.view.group_starts[self.index + 1])

    @property
    def known(self) -> Mapping[Expression, pa.Array]:
        """Nothing is computed before."""
        return {}

    def fetch(self, reference: PropertyRef) -> pa.Array:
        """A whole column of the group."""
        return self.view.chunk(self.view.groups[self.index], reference.property)

    def path(self, value: PathValue) -> pa.Array:
        """A table has no paths."""
        raise InternalError(f"${value.variable} is no path")


def _fetch_present(view: TableView, column: str, values: Ints) -> pa.Array:
    """A property of what is there; null where a variable stands for nothing."""
    present = np.flatnonzero(values >= 0)
    held = values[present]
    found = view.take(column, view.position_of(held) if isinstance(view, NodeView) else held)
    place = np.full(len(values), -1, dtype=np.int64)
    place[present] = np.arange(len(present))
    return wide.take(found, pa.array(place, mask=place < 0))


def predicate_mask(context: Context, predicate: Predicate, rows: Rows) -> Bools:
    """Which rows satisfy the predicate; null counts as not satisfied."""
    match predicate:
        case Comparison(left=EntityId() as one, right=EntityId() as other):
            return _same_entity(predicate.operator, one, other, rows)
        case Comparison():
            left, right = operand(context, predicate.left, rows), operand(context, predicate.right, rows)
            return compare(predicate.operator, left, right, rows.length)
        case ListContains():
            items, value = operand(context, predicate.items, rows), operand(context, predicate.value, rows)
            return contains(items, value, rows.length)
        case InList():
            items, value = operand(context, predicate.items, rows), operand(context, predicate.value, rows)
            return among(value, items, rows.length)
        case StringPredicate():
            left, right = operand(context, predicate.left, rows), operand(context, predicate.right, rows)
            return string_test(predicate.test.value, left, right, rows.length)
        case TextMatch():
            return text_hits(context, predicate, rows)
        case IsNull():
            return ~_valid(context, predicate.operand, rows) ^ predicate.negated
        case IsTrue():
            return _true(column_of(context, predicate.operand, rows))
        case Not():
            return false_mask(context, predicate.predicate, rows)
        case And():
            return _all([predicate_mask(context, part, rows) for part in predicate.parts])
        case Or():
            return _any([predicate_mask(context, part, rows) for part in predicate.parts])


def false_mask(context: Context, predicate: Predicate, rows: Rows) -> Bools:
    """Which rows make the predicate false, which is neither true nor null."""
    match predicate:
        case Not():
            return predicate_mask(context, predicate.predicate, rows)
        case And():
            return _any([false_mask(context, part, rows) for part in predicate.parts])
        case Or():
            return _all([false_mask(context, part, rows) for part in predicate.parts])
        case ListContains() | TextMatch() | IsNull():
            return ~predicate_mask(context, predicate, rows)
        case InList():
            known = _valid(context, predicate.value, rows) & _valid(context, predicate.items, rows)
            items = operand(context, predicate.items, rows)
            if isinstance(items, Column):
                known &= ~holds_null(items.array)
            return known & ~predicate_mask(context, predicate, rows)
        case _:
            known = _all([_valid(context, each, rows) for each in operands_of(predicate)])
            return known & ~predicate_mask(context, predicate, rows)


def _all(masks: Sequence[Bools]) -> Bools:
    return np.asarray(np.logical_and.reduce(masks), dtype=np.bool_)


def _any(masks: Sequence[Bools]) -> Bools:
    return np.asarray(np.logical_or.reduce(masks), dtype=np.bool_)


def _same_entity(operator: ComparisonOperator, left: EntityId, right: EntityId, rows: Rows) -> Bools:
    one, other = rows.positions(left.variable), rows.positions(right.variable)
    hit = one == other if operator is ComparisonOperator.EQ else one != other
    return np.asarray(hit & (one >= 0) & (other >= 0))


def _valid(context: Context, expression: Expression, rows: Rows) -> Bools:
    """Where an expression is not null."""
    if isinstance(expression, EntityId):
        return np.asarray(rows.positions(expression.variable) >= 0)
    found = datum_of(context, expression, rows)
    if isinstance(found, pa.Scalar):
        return np.full(rows.length, found.is_valid, dtype=np.bool_)
    return np.asarray(found.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _true(values: pa.Array) -> Bools:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def operand(context: Context, expression: Expression, rows: Rows) -> Operand:
    """One side of a predicate."""
    match expression:
        case PropertyRef() if not rows.known:
            return Column(rows.fetch(expression), expression.type)
        case ParameterRef() | Literal() | Now():
            return context.constant(expression)
        case _:
            return operand_of(context, expression, rows)


def predicate_variables(predicate: Predicate) -> frozenset[str]:
    """The variables a predicate reads."""
    return frozenset(name for each in operands_of(predicate) for name in variables_of(each))
