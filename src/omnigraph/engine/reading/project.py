"""Rows become columns: the last step, and the only one that fetches what a result shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.catalog import arrays
from omnigraph.catalog.arrow import arrow_type
from omnigraph.catalog.types import INTEGERS, PropertyType, Scalar
from omnigraph.engine.reading.context import Context
from omnigraph.engine.reading.frame import Frame
from omnigraph.engine.reading.nearest import distances
from omnigraph.engine.reading.ordering import ids_of
from omnigraph.engine.reading.predicates import FrameRows, positions, predicate_mask
from omnigraph.engine.reading.search import bm25_scores
from omnigraph.errors import InternalError
from omnigraph.plan.operators import (
    Aggregate,
    AggregateFunction,
    Bm25,
    EntityId,
    Expression,
    Literal,
    Nearest,
    Now,
    ParameterRef,
    Projection,
    PropertyRef,
    Rrf,
    TextMatch,
)

Scores = Mapping[Expression, npt.NDArray[np.float64]]
"""What ranking already computed, aligned with the rows."""


def column_type(projection: Projection) -> pa.DataType:
    """The Arrow type of a result column."""
    match projection.expression:
        case EntityId():
            return pa.string()
        case TextMatch():
            return pa.bool_()
        case Bm25() | Nearest() | Rrf():
            return pa.float64()
        case Now():
            return pa.date64()
        case Aggregate(function=AggregateFunction.COUNT):
            return pa.int64()
        case Aggregate(function=AggregateFunction.SUM | AggregateFunction.AVG):
            return pa.float64()
        case Aggregate(argument=PropertyRef() as argument):
            return arrow_type(argument.type)
        case PropertyRef() | ParameterRef() | Literal() as expression:
            return arrow_type(expression.type)
        case _:
            return arrow_type(projection.type)


def evaluate(context: Context, expression: Expression, frame: Frame, scores: Scores) -> pa.Array:
    """One expression over the rows of a frame."""
    if scores and expression in scores:
        return arrays.array(scores[expression], pa.float64())
    match expression:
        case PropertyRef():
            return FrameRows(context, frame).fetch(expression)
        case EntityId():
            return ids_of(context, expression.variable, frame.columns[expression.variable])
        case ParameterRef() | Literal() | Now():
            return constant_column(context, expression, len(frame))
        case TextMatch():
            return arrays.array(predicate_mask(context, expression, FrameRows(context, frame)))
        case Bm25():
            key = ("bm25", expression)
            if key not in context.memo:
                context.memo[key] = bm25_scores(context, expression)
            places = FrameRows(context, frame).positions(expression.property.variable)
            return arrays.array(context.memo[key][places])
        case Nearest():
            places = FrameRows(context, frame).positions(expression.property.variable)
            values, known = distances(context, expression, places)
            return arrays.array(values, pa.float64(), mask=~known)
        case Rrf() | Aggregate():
            raise InternalError(f"{type(expression).__name__} was not computed before the rows were projected")


def few_values(context: Context, expression: Expression, frame: Frame) -> list[Any] | None:
    """A property on a few rows as values that are JSON-ready; None where `evaluate` has to fetch or convert it.

    Taking single values from a column in memory costs less than making a column of them.
    """
    if not isinstance(expression, PropertyRef) or expression.type.scalar not in _PLAIN or expression.type.is_list:
        return None
    view = context.view(expression.variable)
    places = positions(context, expression.variable, frame.columns[expression.variable])
    if len(view.groups) == 1:
        column = view.held(view.groups[0], expression.property)
        return None if column is None else [column[place].as_py() for place in places.tolist()]
    owners = view.group_starts.searchsorted(places, side="right") - 1
    offsets = places - view.group_starts[owners]
    values = []
    for owner, offset in zip(owners.tolist(), offsets.tolist(), strict=True):
        column = view.held(view.groups[owner], expression.property)
        if column is None:
            return None
        values.append(column[offset].as_py())
    return values


_PLAIN = INTEGERS | {Scalar.STRING, Scalar.BOOL}
"""Types whose values are JSON-ready as Python gives them."""


def constant_column(context: Context, expression: ParameterRef | Literal | Now, length: int) -> pa.Array:
    """The same value on every row."""
    constant = context.constant(expression)
    kind = arrow_type(constant.type)
    if constant.value is None:
        return pa.nulls(length, kind)
    return pa.repeat(_scalar(constant.value, constant.type, kind), length)


def _scalar(value: Any, declared: PropertyType, kind: pa.DataType) -> pa.Scalar:
    physical = {Scalar.DATETIME: pa.int64(), Scalar.DATE: pa.int32()}.get(declared.scalar)
    if physical is None:
        return arrays.scalar(list(value) if isinstance(value, tuple) else value, kind)
    if declared.is_list:
        return arrays.array([list(value)], pa.list_(physical)).cast(pa.list_(kind.value_type))[0]
    return arrays.array([value], physical).view(kind)[0]


def result_schema(projections: tuple[Projection, ...]) -> pa.Schema:
    """The columns of a result, in projection order."""
    return pa.schema([pa.field(projection.column, column_type(projection)) for projection in projections])
