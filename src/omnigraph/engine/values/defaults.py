"""The values of `@default`, as columns."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.catalog.model import Property
from omnigraph.catalog.types import Scalar
from omnigraph.catalog.values import days_of, millis_of


def default_scalar(prop: Property, now: dt.datetime) -> pa.Scalar | None:
    """The default of a property in a write at some moment, as it is stored; None when it has none."""
    if prop.default is None:
        return None
    value = prop.default.at(now)
    if prop.type.scalar is Scalar.DATE and isinstance(value, dt.date):
        return pa.scalar(days_of(value), pa.int32()).cast(pa.date32())
    if prop.type.scalar is Scalar.DATETIME and isinstance(value, dt.datetime):
        return pa.array([millis_of(value)], pa.int64()).view(pa.date64())[0]
    return pa.scalar(value, arrow_type(prop.type))


def default_column(prop: Property, rows: int, now: dt.datetime) -> pa.Array | None:
    """The same for some rows."""
    value = default_scalar(prop, now)
    return None if value is None else pa.repeat(value, rows)


def this_moment() -> dt.datetime:
    """Now, to the millisecond, as a DateTime holds it."""
    moment = dt.datetime.now(dt.UTC)
    return moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)
