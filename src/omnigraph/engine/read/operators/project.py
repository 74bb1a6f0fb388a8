"""Rows become columns: the last step, and the only one that fetches what a result shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type, outside_type
from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.operators.computed import column_of
from omnigraph.engine.read.operators.ordering import ids_of
from omnigraph.engine.read.operators.positions import positions
from omnigraph.engine.read.operators.predicates import FrameRows
from omnigraph.plan.operators import EntityId, Expression, Projection, PropertyRef
from omnigraph.plan.types import type_of

Scores = Mapping[Expression, npt.NDArray[np.float64]]
"""What ranking already computed, aligned with the rows."""


def column_type(projection: Projection) -> pa.DataType:
    """The Arrow type of a result column."""
    return outside_type(arrow_type(type_of(projection.expression)))


def evaluate(context: Context, expression: Expression, frame: Frame, scores: Scores) -> pa.Array:
    """One expression over the rows of a frame."""
    if scores and expression in scores:
        return pa.array(scores[expression], pa.float64())
    match expression:
        case PropertyRef():
            return FrameRows(context, frame).fetch(expression)
        case EntityId(nullable=False):
            return ids_of(context, expression.variable, frame.columns[expression.variable])
        case _:
            known = {each: pa.array(values, pa.float64()) for each, values in scores.items()}
            return column_of(context, expression, FrameRows(context, frame, known))


def few_values(context: Context, expression: Expression, frame: Frame) -> list[Any] | None:
    """A property on a few rows as values that are JSON-ready; None where `evaluate` has to fetch or convert it.

    Taking single values from a column in memory costs less than making a column of them.
    """
    if not isinstance(expression, PropertyRef) or expression.type.scalar not in _PLAIN or expression.type.is_list:
        return None
    if expression.variable in context.nullable:
        return None
    view = context.view(expression.variable)
    places = positions(context, expression.variable, frame.columns[expression.variable])
    if len(view.groups) == 1:
        column = view.held(view.groups[0], expression.property)
        return None if column is None else [column[place].as_py() for place in places.tolist()]
    texts = view.known_texts(expression.property, places)
    if texts is not None:
        return texts
    owners = view.group_starts.searchsorted(places, side="right") - 1
    offsets = places - view.group_starts[owners]
    columns: dict[int, pa.Array] = {}
    for owner in set(owners.tolist()):
        column = view.held(view.groups[owner], expression.property)
        if column is None:
            return None
        columns[owner] = column
    return [columns[owner][offset].as_py() for owner, offset in zip(owners.tolist(), offsets.tolist(), strict=True)]


_PLAIN = INTEGERS | {Scalar.STRING, Scalar.BOOL}
"""Types whose values are JSON-ready as Python gives them."""


def result_schema(projections: tuple[Projection, ...]) -> pa.Schema:
    """The columns of a result, in projection order."""
    return pa.schema([pa.field(projection.column, column_type(projection)) for projection in projections])
