"""`@default`: what a property holds when an insert or a load leaves it out.

The value is checked where it is declared, against the type of its property and the rules the type puts on it, so that
leaving a property out never breaks a rule that giving the same value would break.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.catalog.model import Catalog, CheckRule, Default, EntityType, Property, RangeRule
from omnigraph.catalog.types import FLOATS, INTEGER_RANGES, PropertyType, Scalar
from omnigraph.catalog.values import parse_date, parse_datetime, round_to_f32
from omnigraph.language import schema_ast as ast
from omnigraph.language.literals import float_text

NOW = "now()"
_E = TypeVar("_E", bound=EntityType)


def read_default(kind: PropertyType, annotation: ast.Annotation) -> Default:
    """The default that an annotation gives a property of this type.

    Raises:
        ValueError: it is none of this type; the text says why.
    """
    written = annotation.value
    if annotation.kwargs or written is None:
        raise ValueError("@default takes one value: @default(5), or @default(now()) on a DateTime")
    if not kind.is_plain:
        raise ValueError(f"@default is not possible on {kind}, only on a single plain value")
    text = literal_text(written)
    if annotation.value_is_call:
        if written != NOW or kind.scalar is not Scalar.DATETIME:
            raise ValueError(f"{written} is no {kind.scalar}; the one call that @default knows is now(), on a DateTime")
        return Default(text, None)
    if annotation.value_is_name and kind.enum_values is None:
        raise ValueError(f"the name {written} is no value of {kind.with_nullable(False)}; a text stands in quotes")
    return Default(text, _value(kind, written))


def broken_rule(prop: Property, ranges: Iterable[RangeRule], checks: Iterable[CheckRule]) -> str | None:
    """The rule of its type that a property's default would break, in words; None when it keeps them all."""
    value = None if prop.default is None else prop.default.value
    for bounds in ranges:
        if bounds.property == prop.name and isinstance(value, int | float):
            low, high = bounds.low, bounds.high
            if (low is not None and value < low) or (high is not None and value > high):
                return "@range"
    for check in checks:
        applies = check.property == prop.name and isinstance(value, str)
        if applies and not pc.match_substring_regex(pa.array([value]), check.pattern)[0].as_py():
            return "@check"
    return None


def at_moment(catalog: Catalog, now: dt.datetime) -> Catalog:
    """A catalog whose defaults of `now()` are one moment, however many processes read by it and however long."""

    def settled(entity: _E) -> _E:
        fixed = {
            name: replace(prop, default=replace(prop.default, value=now))
            for name, prop in entity.properties.items()
            if prop.default is not None and prop.default.is_now
        }
        return replace(entity, properties={**entity.properties, **fixed}) if fixed else entity

    nodes = {name: settled(node) for name, node in catalog.nodes.items()}
    edges = {name: settled(edge) for name, edge in catalog.edges.items()}
    return replace(catalog, nodes=nodes, edges=edges)


def literal_text(value: ast.LiteralValue) -> str:
    """A literal as the stored form of annotations has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return float_text(value) if isinstance(value, float) else str(value)


def _value(kind: PropertyType, written: ast.LiteralValue) -> str | int | float | bool | dt.date:
    scalar = kind.scalar
    if kind.enum_values is not None:
        if written not in kind.enum_values:
            raise ValueError(f"the default '{written}' is not one of {', '.join(kind.enum_values)}")
        return written
    if scalar is Scalar.BOOL and isinstance(written, bool):
        return written
    if isinstance(written, str) and scalar is Scalar.STRING:
        return written
    if isinstance(written, str) and scalar in (Scalar.DATE, Scalar.DATETIME):
        return parse_date(written) if scalar is Scalar.DATE else parse_datetime(written)
    if isinstance(written, int) and not isinstance(written, bool) and scalar in INTEGER_RANGES:
        low, high = INTEGER_RANGES[scalar]
        if not low <= written <= high:
            raise ValueError(f"the default {written} is outside the range of {scalar} ({low} to {high})")
        return written
    if isinstance(written, int | float) and not isinstance(written, bool) and scalar in FLOATS:
        if scalar is Scalar.F32 and not math.isfinite(round_to_f32(written)):
            raise ValueError(f"the default {written} is out of range for F32")
        return float(written)
    raise ValueError(f"the default {literal_text(written)} is not a {scalar}")
