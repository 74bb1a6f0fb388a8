"""Values of a query, a literal or a bound parameter, become columns of the property they are assigned to."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import wide
from omnigraph.catalog.model import Property
from omnigraph.catalog.types import FLOATS, INTEGER_RANGES, NUMERIC, PropertyType, Scalar
from omnigraph.catalog.values import days_of, millis_of
from omnigraph.engine.values.columns import column_type, finish_json, not_finite, out_of_range
from omnigraph.engine.values.entities import Entity
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
    return single if rows == 1 else wide.take(single, np.zeros(rows, dtype=np.int64))


def fitted(entity: Entity, prop: Property, values: pa.Array) -> pa.Array:
    """A column of computed values as the property stores it.

    Raises:
        ConstraintError: a value does not fit the property, or is null where none may be.
    """
    what = f"{entity.name}.{prop.name}"
    if values.null_count and not prop.type.nullable:
        raise ConstraintError(f"{what} is required and cannot be null")
    scalar, kind = prop.type.scalar, column_type(prop.type)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if prop.type.is_list or scalar not in NUMERIC:
        return values if values.type in (kind, wide.wide_type(kind)) else values.cast(kind)
    if scalar in INTEGER_RANGES:
        return _fitted_integers(values, scalar, what)
    return _fitted_floats(values.cast(pa.float64(), safe=False), scalar, what)


def _fitted_integers(values: pa.Array, scalar: Scalar, what: str) -> pa.Array:
    kind = column_type(PropertyType(scalar))
    if values.type == kind or values.null_count == len(values):
        return values.cast(kind)
    low, high = INTEGER_RANGES[scalar]
    bounds = pc.min_max(values)
    for value in (bounds["min"].as_py(), bounds["max"].as_py()):
        if not low <= value <= high:
            raise ConstraintError(f"{what}: {out_of_range(value, scalar)}")
    return values.cast(kind)


def _fitted_floats(values: pa.Array, scalar: Scalar, what: str) -> pa.Array:
    numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    if not np.isfinite(numbers).all():
        raise ConstraintError(f"{what}: {not_finite(float(numbers[~np.isfinite(numbers)][0]), scalar)}")
    if scalar is not Scalar.F32:
        return values
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise ConstraintError(f"{what}: {numbers[~np.isfinite(narrow)][0]} is out of range for F32")
    return pa.array(narrow, pa.float32(), mask=np.asarray(pc.is_null(values)))


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
        raise ConstraintError(f"{what}: {not_finite(number, scalar)}")
    if scalar is Scalar.F32:
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
        if not math.isfinite(number):
            raise ConstraintError(f"{what}: {value} is out of range for F32")
    return number
