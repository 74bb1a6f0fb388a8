"""Values of a query, a literal or a bound parameter, become columns of the property they are assigned to."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.model import Property
from omnigraph.catalog.types import FLOATS, INTEGER_RANGES, PropertyType, Scalar
from omnigraph.catalog.values import days_of, millis_of
from omnigraph.engine.staging.entities import Entity
from omnigraph.engine.staging.values import column_type, finish_json, out_of_range
from omnigraph.errors import ConstraintError


def assigned(entity: Entity, prop: Property, value: Any, rows: int = 1) -> pa.Array:
    """A column of `rows` times the value, as the property stores it.

    Raises:
        ConstraintError: the value does not fit the property; the type checker cannot know this of a parameter.
    """
    what = f"{entity.name}.{prop.name}"
    if value is None:
        if not prop.type.nullable:
            raise ConstraintError(f"{what} is required and cannot be null")
        return pa.nulls(rows, column_type(prop.type))
    if prop.type.scalar is Scalar.BLOB:
        single = _blob(value, prop.type, what)
    elif prop.type.is_list or prop.type.scalar is Scalar.VECTOR:
        single = _list(value, prop.type, what)
    else:
        single = _column([_plain(value, prop.type.scalar, what)], prop.type)
    return single if rows == 1 else single.take(pa.array(np.zeros(rows, dtype=np.int64)))


def _column(values: list[Any], kind: PropertyType) -> pa.Array:
    if kind.scalar is Scalar.DATE:
        return pa.array(values, pa.int32()).cast(pa.date32())
    if kind.scalar is Scalar.DATETIME:
        return pa.array(values, pa.int64()).view(pa.date64())
    return pa.array(values, column_type(kind))


def _list(value: Any, kind: PropertyType, what: str) -> pa.Array:
    if isinstance(value, str) or not hasattr(value, "__len__"):
        raise ConstraintError(f"{what}: expected a list for {kind}, found {value!r}")
    if kind.scalar is Scalar.VECTOR:
        if len(value) != kind.dimension:
            raise ConstraintError(f"{what}: expected {kind.dimension} numbers, found {len(value)}")
        items = [_plain(item, Scalar.F32, what) for item in value]
        return pa.array([items], column_type(kind))
    items = [_plain(item, kind.scalar, what) for item in value]
    flat = _column(items, PropertyType(kind.scalar))
    return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), flat, type=column_type(kind))


def _blob(value: Any, kind: PropertyType, what: str) -> pa.Array:
    column, problems = finish_json(pa.array([value], pa.string()), kind)
    if problems:
        raise ConstraintError(f"{what}: {problems[0].message}")
    return column


def _plain(value: Any, scalar: Scalar, what: str) -> Any:
    if scalar in INTEGER_RANGES:
        return _integer(value, scalar, what)
    if scalar in FLOATS:
        return _float(value, scalar, what)
    if scalar is Scalar.DATE and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return days_of(value)
    if scalar is Scalar.DATETIME and isinstance(value, dt.datetime):
        return millis_of(value)
    if scalar is Scalar.BOOL and isinstance(value, bool):
        return value
    if scalar is Scalar.STRING and isinstance(value, str):
        return value
    raise ConstraintError(f"{what}: {value!r} is not a {scalar}")


def _integer(value: Any, scalar: Scalar, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConstraintError(f"{what}: {value!r} is not an integer")
    low, high = INTEGER_RANGES[scalar]
    if not low <= value <= high:
        raise ConstraintError(f"{what}: {out_of_range(value, scalar)}")
    return value


def _float(value: Any, scalar: Scalar, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConstraintError(f"{what}: {value!r} is not a number")
    try:
        number = float(value)
    except OverflowError:
        raise ConstraintError(f"{what}: {value} is out of range for {scalar}") from None
    if not math.isfinite(number):
        raise ConstraintError(f"{what}: {number} is not a finite number")
    if scalar is Scalar.F32:
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
        if not math.isfinite(number):
            raise ConstraintError(f"{what}: {value} is out of range for F32")
    return number
