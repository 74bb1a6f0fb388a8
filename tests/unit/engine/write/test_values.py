from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from omnigraph.catalog.model import Property
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.values.columns import BLOB_STRUCT, column_type, finish_arrow, finish_json
from omnigraph.engine.write.assign import assigned
from omnigraph.errors import ConstraintError


def kind(scalar, **facts):
    return PropertyType(Scalar(scalar), nullable=True, **facts)


def test_a_float_that_f32_cannot_hold_is_a_problem_at_its_row():
    column, problems = finish_json(pa.array([1.5, None, 1e39]), kind("F32"))
    assert column.to_pylist() == [1.5, None, None]
    assert [(p.row, p.message) for p in problems] == [(2, "1e+39 is out of range for F32")]


def test_numbers_that_are_not_finite_are_problems():
    _, problems = finish_json(pa.array([float("nan"), float("inf"), 0.0]), kind("F64"))
    assert [p.row for p in problems] == [0, 1]


def test_vectors_of_another_length_are_problems_and_the_others_stay_in_place():
    column, problems = finish_json(
        pa.array([[1, 2], None, [3], [4, 5]], pa.list_(pa.float64())), kind("Vector", dimension=2)
    )
    assert column.to_pylist() == [[1, 2], None, None, [4, 5]]
    assert [p.row for p in problems] == [2]
    assert column.type == column_type(kind("Vector", dimension=2))


def test_a_null_inside_a_list_is_reported_at_the_row_of_the_list():
    column, problems = finish_json(pa.array([["a"], [], None, ["b", None]]), kind("String", is_list=True))
    assert [p.row for p in problems] == [3]
    assert column.to_pylist()[:3] == [["a"], [], None]


def test_lists_of_dates_are_read_as_dates():
    column, problems = finish_json(pa.array([["2001-05-04", "1970-01-02"], []]), kind("Date", is_list=True))
    assert not problems
    assert column.to_pylist() == [[dt.date(2001, 5, 4), dt.date(1970, 1, 2)], []]


def test_an_empty_blob_is_not_a_missing_one_and_a_uri_is_kept():
    column, problems = finish_json(pa.array(["base64:", None, "base64:AQID", "s3://b/x"]), kind("Blob"))
    assert not problems
    assert column.type == BLOB_STRUCT
    assert [row and (row["data"], row["uri"]) for row in column.to_pylist()] == [
        (b"", None),
        None,
        (b"\x01\x02\x03", None),
        (None, "s3://b/x"),
    ]


@pytest.mark.parametrize("text", ["base64:@@", "base64:A", "base64:AQ", "base64:é", " "])
def test_text_that_is_neither_base64_nor_a_uri_is_a_problem(text):
    _, problems = finish_json(pa.array([text]), kind("Blob"))
    assert [p.row for p in problems] == [0]


@pytest.mark.parametrize(
    ("column", "scalar", "stored"),
    [
        (pa.array([1, None], pa.int64()), "I32", [1, None]),
        (pa.array([1, 2], pa.int8()), "F64", [1.0, 2.0]),
        (pa.array(["a", "b"]).dictionary_encode(), "String", ["a", "b"]),
        (pa.array(["2001-05-04"]), "Date", [dt.date(2001, 5, 4)]),
        (pa.array([dt.date(2001, 5, 4)]), "Date", [dt.date(2001, 5, 4)]),
        (pa.array([dt.datetime(1969, 12, 31, 23)]), "Date", [dt.date(1969, 12, 31)]),
        (pa.nulls(2), "U64", [None, None]),
    ],
)
def test_arrow_columns_of_a_fitting_kind_are_taken(column, scalar, stored):
    finished, problems = finish_arrow(column, kind(scalar))
    assert not problems
    assert finished.type == column_type(kind(scalar))
    assert finished.to_pylist() == stored


def test_arrow_timestamps_of_any_unit_and_zone_become_milliseconds():
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    for unit in ("us", "ns"):
        finished, problems = finish_arrow(pa.array([moment], pa.timestamp(unit, tz="UTC")), kind("DateTime"))
        assert not problems
        assert finished.view(pa.int64()).to_pylist() == [-1]


@pytest.mark.parametrize(
    ("column", "scalar"),
    [
        (pa.array([1.5]), "I32"),
        (pa.array([3_000_000_000]), "I32"),
        (pa.array([-1]), "U64"),
        (pa.array(["1"]), "I64"),
        (pa.array([1]), "Bool"),
        (pa.array([True]), "F64"),
        (pa.array([1]), "String"),
        (pa.array([dt.time(1)]), "DateTime"),
    ],
)
def test_arrow_columns_of_another_kind_are_refused(column, scalar):
    _, problems = finish_arrow(column, kind(scalar))
    assert problems


@pytest.mark.parametrize("scalar", ["String", "Bool", "Date", "DateTime", "Blob", "I32"])
@pytest.mark.parametrize("column", [pa.array([None, None], pa.float64()), pa.array([], pa.bool_())])
def test_an_arrow_column_without_a_value_fits_every_property(column, scalar):
    for wanted in (kind(scalar), kind("Vector", dimension=2)):
        finished, problems = finish_arrow(column, wanted)
        assert not problems
        assert finished.type == column_type(wanted)
        assert finished.null_count == len(finished) == len(column)


def test_arrow_vectors_may_be_lists_of_any_numbers():
    given = pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))
    finished, problems = finish_arrow(given, kind("Vector", dimension=2))
    assert not problems
    assert finished.to_pylist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("scalar", "value", "stored"),
    [
        ("F64", 3, 3.0),
        ("U32", 7, 7),
        ("Date", dt.date(2001, 5, 4), dt.date(2001, 5, 4)),
        ("Bool", True, True),
        ("String", "x", "x"),
    ],
)
def test_assigned_values_become_a_column_of_the_property(catalog, scalar, value, stored):
    prop = Property("p", kind(scalar))
    assert assigned(catalog.nodes["Vessel"], prop, value, 2).to_pylist() == [stored, stored]


def test_an_assigned_datetime_keeps_its_milliseconds(catalog):
    prop = Property("p", kind("DateTime"))
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC)
    assert assigned(catalog.nodes["Vessel"], prop, moment).view(pa.int64()).to_pylist() == [1767323045678]


@pytest.mark.parametrize(
    ("property_type", "value"),
    [
        (kind("I32"), 2**31),
        (kind("I32"), 1.0),
        (kind("I32"), True),
        (kind("U64"), -1),
        (kind("F32"), 1e39),
        (kind("F64"), float("inf")),
        (kind("String"), 1),
        (kind("Bool"), 1),
        (kind("Date"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (kind("String", is_list=True), "abc"),
        (kind("Vector", dimension=2), (1.0,)),
        (kind("Blob"), "base64:@@"),
        (PropertyType(Scalar.STRING), None),
    ],
)
def test_a_value_that_does_not_fit_its_property_is_a_constraint_error(catalog, property_type, value):
    with pytest.raises(ConstraintError, match=r"Vessel\.p"):
        assigned(catalog.nodes["Vessel"], Property("p", property_type), value)
