"""Binding parameters."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from omnigraph.catalog.resolve import compile_schema
from omnigraph.errors import ParameterError
from omnigraph.plan import compile_query
from omnigraph.plan.parameters import bind

CATALOG = compile_schema("node A { }")
EAST, WEST = (dt.timezone(dt.timedelta(hours=hours)) for hours in (14, -12))


def bound(kind: str, value: Any, **options: Any) -> Any:
    plan = compile_query(CATALOG, f"query t($x: {kind}) {{ match {{ $a: A }} return {{ $a }} }}")
    return bind(plan.parameters, {"x": value}, **options)["x"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("String", "é", "é"),
        ("I32", 12, 12),
        ("I32", "12", 12),
        ("I32", "-12", -12),
        ("I64", "+9223372036854775807", 2**63 - 1),
        ("I64", -(2**63), -(2**63)),
        ("I64", np.int64(7), 7),
        ("U32", "4294967295", 2**32 - 1),
        ("U64", 2**63 - 1, 2**63 - 1),
        ("U64", 2**64 - 1, 2**64 - 1),
        ("U64", str(2**64 - 1), 2**64 - 1),
        ("U64", np.uint64(2**64 - 1), 2**64 - 1),
        ("[U64]", [2**63, 2**64 - 1], (2**63, 2**64 - 1)),
        ("F64", 1, 1.0),
        ("F64", 1.5, 1.5),
        ("F32", 0.1, float(np.float32(0.1))),
        ("Bool", True, True),
        ("Date", "2026-02-14", dt.date(2026, 2, 14)),
        ("Date", "2026-02-14T23:59:00-01:00", dt.date(2026, 2, 15)),
        ("Date", dt.date(2026, 2, 14), dt.date(2026, 2, 14)),
        ("DateTime", "2026-02-14", dt.datetime(2026, 2, 14, tzinfo=dt.UTC)),
        ("DateTime", "2026-02-14T10:00:00.1239Z", dt.datetime(2026, 2, 14, 10, 0, 0, 123_000, tzinfo=dt.UTC)),
        ("DateTime", dt.datetime(2026, 2, 14, 10, 0, 0, 999), dt.datetime(2026, 2, 14, 10, tzinfo=dt.UTC)),
        ("Blob", "base64:AQID", "base64:AQID"),
        ("Blob", b"\x01\x02\x03", "base64:AQID"),
        ("[String]", ["a", "b"], ("a", "b")),
        ("[Date]", ["2026-02-14"], (dt.date(2026, 2, 14),)),
        ("[I32]", [], ()),
        ("Vector(2)", [1, 2.5], (1.0, 2.5)),
        ("Vector(2)", np.array([1.0, 2.0]), (1.0, 2.0)),
        ("Vector(2)", np.array([1.0, 2.0], dtype=np.float16), (1.0, 2.0)),
        ("Vector(2)", (0.1, 1e-50), (float(np.float32(0.1)), 0.0)),
        ("Vector(2)", [True + 0.5, 3], (1.5, 3.0)),
        ("String?", None, None),
        ("[String]?", None, None),
    ],
)
def test_a_value_is_bound(kind: str, value: Any, expected: Any) -> None:
    actual = bound(kind, value)
    assert actual == expected
    assert type(actual) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("String", 5, "param 'x': expected string, got number"),
        ("String", "\ud800", "not valid Unicode"),
        ("String", None, "param 'x': null is not allowed for String"),
        ("I32", 5_000_000_000, "param 'x': value 5000000000 exceeds I32"),
        ("I32", 3.0, "param 'x': expected integer for I32, got number"),
        ("I32", True, "param 'x': expected integer for I32, got boolean"),
        ("I32", "x", "param 'x': expected integer for I32, got string"),
        ("I32", "1.0", "expected integer"),
        ("I32", "٣", "expected integer"),
        ("I32", "1_0", "expected integer"),
        ("I64", 2**63, "exceeds I64"),
        ("U32", -1, "param 'x': value -1 exceeds U32"),
        ("U64", 2**64, "exceeds U64"),
        ("F64", "1.5", "param 'x': expected float, got string"),
        ("F64", True, "expected float"),
        ("F64", 10**400, "exceeds F64"),
        ("F64", float("nan"), "value nan is not a finite number"),
        ("F32", 1e39, "exceeds F32"),
        ("Bool", 1, "param 'x': expected boolean, got number"),
        ("Bool", "true", "expected boolean"),
        ("Date", 20498, "param 'x': expected date string, got number"),
        ("Date", "2026-02-30", "expected date string"),
        ("DateTime", 5, "expected date string"),
        ("DateTime", "soon", "expected date string"),
        ("DateTime", pd.NaT, "expected date string, got NaTType"),
        ("Date", pd.NaT, "expected date string, got NaTType"),
        ("[DateTime]", [pd.NaT], "expected date string, got NaTType"),
        ("DateTime", dt.datetime(1, 1, 1, tzinfo=EAST), "not between the years 1 and 9999"),
        ("Date", dt.datetime(1, 1, 1, tzinfo=EAST), "not between the years 1 and 9999"),
        ("DateTime", dt.datetime(9999, 12, 31, 23, tzinfo=WEST), "not between the years 1 and 9999"),
        ("[String]", "a", "param 'x': expected array for [String], got string"),
        ("[String]", [None], "null is not allowed in [String]"),
        ("[I32]", [1, "x"], "expected integer"),
        ("Vector(4)", [1, 2, 3], "param 'x': expected 4 values for Vector(4), got 3"),
        ("Vector(1)", ["1"], "expected float"),
        ("Vector(2)", [1.0, 1e39], "value 1e+39 exceeds F32"),
        ("Vector(2)", [1.0, float("nan")], "value nan is not a finite number"),
        ("Vector(2)", np.array([1.0, np.inf]), "value inf is not a finite number"),
        ("Vector(2)", np.array([[1.0], [2.0]]), "expected float, got array"),
        ("Vector(1)", [None], "expected float, got null"),
        ("Vector(1)", 1, "expected array for Vector(1)"),
        ("Blob", 5, "expected string"),
        ("String", {}, "expected string, got object"),
    ],
)
def test_other_values_are_refused_by_name(kind: str, value: Any, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        bound(kind, value)
    assert message in caught.value.message
    assert caught.value.code == "param"


def test_a_missing_parameter_is_named_and_a_nullable_one_is_null() -> None:
    plan = compile_query(CATALOG, "query t($x: I32, $y: I32?) { match { $a: A } return { $a } }")
    with pytest.raises(ParameterError, match=r"parameter '\$x' not provided"):
        bind(plan.parameters, None)
    assert bind(plan.parameters, {"x": 1}) == {"x": 1, "y": None}


@pytest.mark.parametrize("value", [1, None, [1], {}, "text"])
def test_an_undeclared_name_is_refused_and_the_declared_ones_are_told(value: Any) -> None:
    plan = compile_query(CATALOG, "query t($name: String?, $age: I32?) { match { $a: A } return { $a } }")
    told = r"param 'nmae': .* did you mean '\$name'\? it declares \$name, \$age"
    with pytest.raises(ParameterError, match=told):
        bind(plan.parameters, {"nmae": value})
    with pytest.raises(ParameterError, match=r"param 'z': the query declares no such parameter; it declares none"):
        bind((), {"z": value})
    assert bind(plan.parameters, {"age": 7}) == {"name": None, "age": 7}


def test_parameters_are_an_object() -> None:
    with pytest.raises(ParameterError, match="params must be a JSON object"):
        bind((), [1])  # type: ignore[arg-type]


def test_the_javascript_mode_refuses_what_javascript_rounds() -> None:
    assert bound("I64", 2**53 - 1, js_safe=True) == 2**53 - 1
    assert bound("I64", str(2**53), js_safe=True) == 2**53
    assert bound("I64", 3.0, js_safe=True) == 3
    for value in (2**53, -(2**53), 2.5):
        with pytest.raises(ParameterError):
            bound("I64", value, js_safe=True)
