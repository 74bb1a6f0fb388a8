"""When two values are the same: every type, against comparing one value at a time."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.engine.changes.equality import equal_values

NAN = float("nan")
CASES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), [None, "", "a", "A", "é", "e\u0301", "\x00"]),
    "whole": (pa.int64(), [None, 0, 1, -1, 2**63 - 1]),
    "unsigned": (pa.uint64(), [None, 0, 2**64 - 1]),
    "float": (pa.float64(), [None, 0.0, -0.0, NAN, math.inf, -math.inf, 1.5]),
    "bool": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, 0, 1]),
    "list": (pa.list_(pa.string()), [None, [], [None], [""], ["a"], ["a", "b"], ["b", "a"], ["a", None]]),
    "floats": (pa.list_(pa.float64()), [None, [], [NAN], [0.0], [-0.0], [None]]),
    "vector": (pa.list_(pa.float32(), 2), [None, [0.0, 1.0], [-0.0, 1.0], [NAN, 1.0], [1.0, 0.0]]),
    "blob": (
        pa.struct([("data", pa.large_binary()), ("uri", pa.string())]),
        [None, {"data": b"", "uri": None}, {"data": b"a", "uri": None}, {"data": None, "uri": "s3://a"}],
    ),
}


def same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return all(same(one[name], other[name]) for name in one)
    return bool(one == other)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sliced", [False, True])
def test_columns_are_compared_as_values_are(name: str, sliced: bool) -> None:
    kind, values = CASES[name]
    left = [one for one in values for _ in values]
    right = [other for _ in values for other in values]
    pad = [values[-1]] * 3 if sliced else []
    columns = [pa.array([*pad, *side], kind).slice(len(pad)) for side in (left, right)]
    assert equal_values(*columns).tolist() == [same(a, b) for a, b in zip(left, right, strict=True)]


def test_no_rows_are_compared_too() -> None:
    for kind, _ in CASES.values():
        assert equal_values(pa.array([], kind), pa.array([], kind)).tolist() == []
