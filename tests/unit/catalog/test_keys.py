"""Ids from keys."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.arrow import arrow_type
from omnigraph.catalog.keys import id_from_key
from omnigraph.catalog.model import NodeType
from omnigraph.catalog.resolve import compile_schema
from omnigraph.catalog.types import PropertyType
from omnigraph.catalog.values import millis_of
from omnigraph.errors import ConstraintError, InputError


def node(text: str) -> NodeType:
    return compile_schema(f"node A {{ {text} }}").nodes["A"]


def id_from_values(entity: NodeType, values: Mapping[str, Any]) -> str:
    """The id of one node, from plain Python values of its key properties."""
    columns = {name: _one(entity.properties[name].type, values[name]) for name in entity.key}
    return str(id_from_key(entity, columns)[0].as_py())


def _one(kind: PropertyType, value: Any) -> pa.Array:
    if isinstance(value, dt.datetime):  # Arrow would cut a time to its day
        moment = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
        return pa.array([millis_of(moment)], pa.int64()).view(pa.date64())
    return pa.array([value], type=arrow_type(kind))


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("String", "AB-1", "AB-1"),
        ("String", "", ""),
        ("String", "é 漢", "é 漢"),
        ("enum(x, y)", "x", "x"),
        ("I32", -7, "-7"),
        ("I64", -(2**63), "-9223372036854775808"),
        ("U64", 2**64 - 1, "18446744073709551615"),
        ("Bool", True, "true"),
        ("Bool", False, "false"),
        ("Date", dt.date(1970, 1, 3), "2"),
        ("Date", dt.date(1969, 12, 31), "-1"),
        ("DateTime", dt.datetime(2026, 1, 2, 3, 4, 5, 678_000), "1767323045678"),
        ("F64", 1.0, "1.0"),
        ("F64", 0.1, "0.1"),
        ("F64", 0.0, "0"),
        ("F64", -0.0, "0"),
        ("F64", -2.5, "-2.5"),
        ("F32", 0.1, "0.1"),
        ("F32", 16777216.0, "16777216.0"),
    ],
)
def test_the_canonical_text_of_a_key(kind: str, value: object, text: str) -> None:
    assert id_from_values(node(f"k: {kind} @key"), {"k": value}) == text


def test_a_composite_key_is_a_compact_json_array_by_column_name() -> None:
    kind = node("b: I32 a: String @key(b, a)")
    assert id_from_values(kind, {"a": 'x"\\\né', "b": 7}) == json.dumps(
        ['x"\\\né', "7"], ensure_ascii=False, separators=(",", ":")
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(), st.integers(-(2**31), 2**31 - 1)), min_size=1, max_size=8))
def test_composite_ids_are_what_json_would_write(pairs: list[tuple[str, int]]) -> None:
    kind = node("a: String b: I32 @key(a, b)")
    columns = {"a": pa.array([a for a, _ in pairs]), "b": pa.array([b for _, b in pairs], pa.int32())}
    expected = [json.dumps([a, str(b)], ensure_ascii=False, separators=(",", ":")) for a, b in pairs]
    assert id_from_key(kind, columns).to_pylist() == expected


@settings(max_examples=60, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float_text_reads_back_as_the_same_value(value: float) -> None:
    assert float(id_from_values(node("k: F64 @key"), {"k": value})) == value


def test_columns_may_come_in_chunks_dictionaries_and_large_strings() -> None:
    kind = node("k: String @key")
    for column in (
        pa.chunked_array([["a"], ["b"]]),
        pa.chunked_array([], pa.string()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array(["a", "b"], pa.large_string()),
    ):
        ids = id_from_key(kind, {"k": column})
        assert ids.type == pa.string()
        assert ids.to_pylist() == column.to_pylist()


@pytest.mark.parametrize(("kind", "value"), [("String", None), ("F64", float("nan")), ("F32", float("inf"))])
def test_a_key_is_never_null_nor_infinite(kind: str, value: object) -> None:
    with pytest.raises(ConstraintError, match=r"A\.k is part of the key"):
        id_from_values(node(f"k: {kind} @key"), {"k": value})


def test_a_type_without_key_has_no_ids_to_derive() -> None:
    with pytest.raises(InputError, match="no key"):
        id_from_key(node("k: String"), {})
