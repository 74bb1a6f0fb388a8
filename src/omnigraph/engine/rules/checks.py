"""The rules one row can break by itself: required values, enums, `@range` and `@check`.

Pure Arrow over one batch, so the engine and the Spark executors run the very same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog.model import CheckRule, EntityType, RangeRule
from omnigraph.engine.values.columns import PROBLEMS_MAX


class Violation(Struct, frozen=True):
    """A broken rule: the position of the row in its batch, and the sentence for the user."""

    row: int
    message: str


def check_rows(entity: EntityType, rows: pa.Table) -> list[Violation]:
    """Every rule the rows break by themselves, by ascending row; nulls pass all rules but "required"."""
    found: list[Violation] = []
    for prop in entity.properties.values():
        column = rows.column(prop.name)
        if not prop.type.nullable and column.null_count:
            found += _hits(pc.is_null(column), _required(entity, prop.name))
        if prop.type.enum_values is not None:
            found += _check_enum(entity, prop.name, prop.type.enum_values, column)
    for rule in entity.ranges:
        found += _check_range(entity, rule, rows.column(rule.property))
    for check in entity.checks:
        found += _check_pattern(entity, check, rows.column(check.property))
    return sorted(found, key=lambda violation: violation.row)


def outside_enum(allowed: Iterable[str], column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which values are none of an enum; null is no such value."""
    values = pa.array(list(allowed), pa.string())
    return pc.and_(pc.is_valid(column), pc.invert(pc.is_in(column, value_set=values)))


def enum_problem(entity: EntityType, name: str, allowed: Iterable[str], value: object) -> str:
    """What is wrong with a value that is none of an enum."""
    return f"enum violation: {entity.name}.{name} '{value}' is not one of {', '.join(allowed)}"


def _check_enum(entity: EntityType, name: str, allowed: tuple[str, ...], column: pa.ChunkedArray) -> list[Violation]:
    return _hits(outside_enum(allowed, column), lambda row: enum_problem(entity, name, allowed, column[row]))


def outside_range(rule: RangeRule, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which numbers are outside a range; null is no such number, and NaN is within none."""
    numbers = pc.cast(column, pa.float64(), safe=False)
    inside = pc.is_valid(numbers)
    # A comparison with NaN is false, so NaN fails whichever bound is given.
    if rule.low is not None:
        inside = pc.and_(inside, pc.greater_equal(numbers, rule.low))
    if rule.high is not None:
        inside = pc.and_(inside, pc.less_equal(numbers, rule.high))
    return pc.and_(pc.is_valid(numbers), pc.invert(inside))


def range_problem(entity: EntityType, rule: RangeRule, value: object) -> str:
    """What is wrong with a number outside a range."""
    low = "" if rule.low is None else _shown(rule.low)
    high = "" if rule.high is None else _shown(rule.high)
    return f"@range violation: {entity.name}.{rule.property} {value} is not within {low}..{high}"


def _check_range(entity: EntityType, rule: RangeRule, column: pa.ChunkedArray) -> list[Violation]:
    return _hits(outside_range(rule, column), lambda row: range_problem(entity, rule, column[row]))


def unmatched(rule: CheckRule, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which texts do not contain a match of a pattern; null for null."""
    return pc.invert(pc.match_substring_regex(column, pattern=rule.pattern))


def check_problem(entity: EntityType, rule: CheckRule, value: object) -> str:
    """What is wrong with a text that a pattern does not match."""
    return f"@check violation: {entity.name}.{rule.property} '{value}' does not match {rule.pattern}"


def _check_pattern(entity: EntityType, rule: CheckRule, column: pa.ChunkedArray) -> list[Violation]:
    return _hits(unmatched(rule, column), lambda row: check_problem(entity, rule, column[row]))


def _shown(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _hits(mask: pa.ChunkedArray, message: Callable[[int], str]) -> list[Violation]:
    rows = np.flatnonzero(np.asarray(pc.fill_null(mask, False)))
    return [Violation(int(row), message(int(row))) for row in rows[:PROBLEMS_MAX]]


def _required(entity: EntityType, name: str) -> Callable[[int], str]:
    return lambda row: required_problem(entity, name)


def required_problem(entity: EntityType, name: str) -> str:
    """What is wrong with a required property without a value."""
    return f"{entity.name}.{name} is required"
