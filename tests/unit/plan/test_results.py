"""Results as JSON."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.plan.results import rows_to_json


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.string(), ["a", None, ""], ["a", None, ""]),
        (pa.bool_(), [True, False, None], [True, False, None]),
        (pa.int32(), [-1, None], [-1, None]),
        (pa.uint64(), [2**64 - 1, None], [2**64 - 1, None]),
        (
            pa.float64(),
            [1.5, float("nan"), float("inf"), float("-inf"), None],
            [1.5, "NaN", "Infinity", "-Infinity", None],
        ),
        (pa.float32(), [0.5, float("nan")], [0.5, "NaN"]),
        (pa.date32(), [dt.date(2026, 2, 14), dt.date(1, 1, 1), None], ["2026-02-14", "0001-01-01", None]),
        (pa.list_(pa.string()), [["a", None], [], None], [["a", None], [], None]),
        (pa.list_(pa.date32()), [[dt.date(2026, 2, 14)], None], [["2026-02-14"], None]),
        (pa.list_(pa.float64()), [[float("nan"), 1.0]], [["NaN", 1.0]]),
        (pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [0.5, float("inf")]], [[1.0, 2.0], None, [0.5, "Infinity"]]),
    ],
)
def test_a_column_becomes_json_values(kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    whole = pa.table({"x": pa.array(values, kind)})
    assert [row["x"] for row in rows_to_json(whole)] == expected
    sliced = pa.table({"x": pa.concat_arrays([pa.array(values, kind)] * 2)}).slice(1, len(values))
    assert [row["x"] for row in rows_to_json(sliced)] == [*expected[1:], expected[0]]
    json.dumps(rows_to_json(whole), allow_nan=False)


def test_times_have_three_decimals_and_a_z() -> None:
    column = pa.array([1767323045000, 1767323045007, -1, None], pa.int64()).view(pa.date64())
    table = pa.table({"t": column, "l": pa.array([[1]] * 4, pa.list_(pa.int64())).cast(pa.list_(pa.date64()))})
    assert [row["t"] for row in rows_to_json(table)] == [
        "2026-01-02T03:04:05.000Z",
        "2026-01-02T03:04:05.007Z",
        "1969-12-31T23:59:59.999Z",
        None,
    ]
    assert rows_to_json(table)[0]["l"] == ["1970-01-01T00:00:00.001Z"]


def test_wide_integers_are_strings_for_javascript_only() -> None:
    table = pa.table({"x": pa.array([2**53 - 1, 2**53, -(2**53)]), "l": pa.array([[2**60]] * 3)})
    assert [row["x"] for row in rows_to_json(table)] == [2**53 - 1, 2**53, -(2**53)]
    safe = rows_to_json(table, js_safe=True)
    assert [row["x"] for row in safe] == [2**53 - 1, "9007199254740992", "-9007199254740992"]
    assert safe[0]["l"] == ["1152921504606846976"]


def test_rows_keep_the_order_of_columns() -> None:
    table = pa.table({"b": [1, 2], "a": pa.chunked_array([["x"], ["y"]])})
    assert json.dumps(rows_to_json(table)) == '[{"b": 1, "a": "x"}, {"b": 2, "a": "y"}]'
    assert rows_to_json(table.slice(0, 0)) == []


def test_dictionary_columns_are_plain_values() -> None:
    table = pa.table({"k": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert [row["k"] for row in rows_to_json(table)] == ["a", "b", "a"]
