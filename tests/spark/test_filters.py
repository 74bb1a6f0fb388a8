"""Conditions Spark offers, as Lance evaluates them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThanOrEqual,
    Not,
    StringEndsWith,
    StringStartsWith,
)

from omnigraph.pipeline.filters import condition

SCHEMA = pa.schema(
    [("s", pa.string()), ("n", pa.int32()), ("u", pa.uint64()), ("f", pa.float64()), ("d", pa.date32()),
     ("t", pa.date64()), ("v", pa.list_(pa.float32(), 2)), ("b", pa.bool_())]
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (EqualTo(("s",), "it's"), "(`s` = 'it''s')"),
        (GreaterThan(("n",), 3), "(`n` > 3)"),
        (LessThanOrEqual(("u",), Decimal(2**64 - 1)), f"(`u` <= {2**64 - 1})"),
        (EqualTo(("b",), True), "(`b` = TRUE)"),
        (EqualTo(("d",), date(2020, 1, 2)), "(`d` = DATE '2020-01-02')"),
        (In(("n",), (1, 2)), "(`n` IN (1, 2))"),
        (IsNull(("t",)), "(`t` IS NULL)"),
        (IsNotNull(("v",)), "(`v` IS NOT NULL)"),
        (Not(GreaterThan(("f",), 0.5)), "(NOT (`f` > 0.5))"),
        (StringStartsWith(("s",), "ab"), "(`s` LIKE 'ab%')"),
    ],
)
def test_what_means_the_same_is_evaluated_while_reading(found: Filter, text: str) -> None:
    assert condition([found], SCHEMA) == text


@pytest.mark.parametrize(
    "found",
    [
        StringStartsWith(("s",), "50%"),
        StringEndsWith(("s",), "x"),
        EqualTo(("f",), float("nan")),
        EqualTo(("t",), datetime(2020, 1, 1)),
        EqualTo(("a", "b"), 1),
        EqualTo(("unknown",), 1),
        In(("n",), (1, None)),
    ],
)
def test_what_might_differ_is_left_to_spark(found: Filter) -> None:
    assert condition([found], SCHEMA) is None


def test_several_conditions_hold_together() -> None:
    assert condition([GreaterThan(("n",), 3), IsNull(("s",))], SCHEMA) == "(`n` > 3) AND (`s` IS NULL)"
