"""Conditions over columns: which rows of a frame, or of a table, satisfy a predicate.

The same code answers for the rows of a frame and for whole fragments of a table; only where the columns come from
differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.catalog import arrays
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.dataclass import dataclass
from omnigraph.engine.reading.context import Context
from omnigraph.engine.reading.frame import Frame
from omnigraph.engine.reading.kernels import Bools, Ints
from omnigraph.engine.reading.nodes import NodeView
from omnigraph.engine.reading.search import text_mask
from omnigraph.engine.reading.tables import TableView
from omnigraph.engine.reading.values import Column, Operand, compare, contains, string_test
from omnigraph.plan.operators import (
    Comparison,
    ListContains,
    Literal,
    Now,
    ParameterRef,
    Predicate,
    PropertyRef,
    StringPredicate,
    TextMatch,
)

BOOL = PropertyType(Scalar.BOOL)


class Rows(Protocol):
    """Where a predicate finds its columns."""

    @property
    def length(self) -> int:
        """How many rows there are."""
        ...

    def positions(self, variable: str) -> npt.NDArray[Any]:
        """The table position of a variable on each row."""
        ...

    def fetch(self, reference: PropertyRef) -> pa.Array:
        """A property on each row."""
        ...


@dataclass(frozen=True)
class FrameRows:
    """The rows of a frame."""

    context: Context
    frame: Frame

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
        return view.take(reference.property, view.position_of(values) if isinstance(view, NodeView) else values)


@dataclass(frozen=True)
class GroupRows:
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

    def fetch(self, reference: PropertyRef) -> pa.Array:
        """A whole column of the group."""
        return self.view.chunk(self.view.groups[self.index], reference.property)


def positions(context: Context, variable: str, values: Ints) -> npt.NDArray[Any]:
    """The table positions of a variable's integers: codes of nodes are looked up, edges are positions already."""
    view = context.view(variable)
    return view.position_of(values) if isinstance(view, NodeView) else values


def predicate_mask(context: Context, predicate: Predicate, rows: Rows) -> Bools:
    """Which rows satisfy the predicate; null counts as not satisfied."""
    match predicate:
        case Comparison():
            left, right = operand(context, predicate.left, rows), operand(context, predicate.right, rows)
            return compare(predicate.operator, left, right, rows.length)
        case ListContains():
            items, value = operand(context, predicate.items, rows), operand(context, predicate.value, rows)
            return contains(items, value, rows.length)
        case StringPredicate():
            left, right = operand(context, predicate.left, rows), operand(context, predicate.right, rows)
            return string_test(predicate.test.value, left, right, rows.length)
        case TextMatch():
            return np.asarray(text_mask(context, predicate)[rows.positions(predicate.property.variable)])


def operand(
    context: Context, expression: PropertyRef | ParameterRef | Literal | Now | TextMatch, rows: Rows
) -> Operand:
    """One side of a predicate."""
    match expression:
        case PropertyRef():
            return Column(rows.fetch(expression), expression.type)
        case TextMatch():
            return Column(arrays.array(predicate_mask(context, expression, rows)), BOOL)
        case _:
            return context.constant(expression)


def predicate_variables(predicate: Predicate) -> frozenset[str]:
    """The variables a predicate reads."""
    match predicate:
        case Comparison() | StringPredicate():
            return _variables((predicate.left, predicate.right))
        case ListContains():
            return _variables((predicate.items, predicate.value))
        case TextMatch():
            return frozenset((predicate.property.variable,))


def _variables(expressions: Sequence[Any]) -> frozenset[str]:
    found = set()
    for expression in expressions:
        if isinstance(expression, PropertyRef):
            found.add(expression.variable)
        elif isinstance(expression, TextMatch):
            found.add(expression.property.variable)
    return frozenset(found)
