"""Spark's filters as Lance conditions.

Spark hands a reader the simple conditions of a query. Those that mean exactly the same to Lance are evaluated while
reading; Spark evaluates all of them again, so leaving one out costs time and never an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from omnigraph.engine.storage.literals import literal as spelled

_COMPARISONS: dict[type[Any], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def condition(filters: Iterable[Filter], schema: pa.Schema) -> str | None:
    """The conjunction of the filters that Lance can evaluate, None when there is none."""
    known = [text for found in filters if (text := _text(found, schema)) is not None]
    return " AND ".join(f"({text})" for text in known) or None


def _text(found: Any, schema: pa.Schema) -> str | None:
    if isinstance(found, Not):
        inner = _text(found.child, schema)
        return None if inner is None else f"NOT ({inner})"
    column = _column(found, schema)
    if column is None:
        return None
    if isinstance(found, IsNull):
        return f"{column} IS NULL"
    if isinstance(found, IsNotNull):
        return f"{column} IS NOT NULL"
    if isinstance(found, In):
        values = [_literal(value) for value in found.value]
        return None if None in values or not values else f"{column} IN ({', '.join(map(str, values))})"
    if isinstance(found, StringStartsWith):
        # LIKE gives two characters a meaning of their own, so a prefix that has them stays with Spark.
        special = any(mark in found.value for mark in "%_\\")
        return None if special else f"{column} LIKE {spelled(found.value + '%')}"
    operator = _COMPARISONS.get(type(found))
    literal = None if operator is None else _literal(found.value)
    return None if literal is None else f"{column} {operator} {literal}"


def _column(found: Any, schema: pa.Schema) -> str | None:
    """The quoted column of a filter, if values of its type compare alike in Spark and Lance."""
    path: tuple[str, ...] = tuple(getattr(found, "attribute", ()))
    if len(path) != 1 or path[0] not in schema.names:
        return None
    kind = schema.field(path[0]).type
    plain = (
        pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date32(kind)
    )
    return f"`{path[0]}`" if plain or isinstance(found, IsNull | IsNotNull) else None


def _literal(value: Any) -> str | None:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return spelled(value)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return spelled(int(value))
    # The two zeros are equal to Spark and apart to Lance, so a comparison with zero stays with Spark.
    if isinstance(value, float) and math.isfinite(value) and value:
        return repr(value)
    if isinstance(value, str):
        return spelled(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return f"DATE '{value.isoformat()}'"
    return None
