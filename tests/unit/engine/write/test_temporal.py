from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.values import days_of, millis_of, parse_date, parse_datetime
from omnigraph.engine.values.temporal import parse_date_texts, parse_datetime_texts


def test_every_day_of_the_calendar_gets_the_number_after_its_neighbour():
    first = dt.date(1, 1, 1)
    step = 97
    days = [first + dt.timedelta(days=n) for n in range(0, 3_652_059, step)]
    column, bad = parse_date_texts(pa.array([day.isoformat() for day in days]))
    assert not bad.any()
    assert column.to_pylist() == days


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-30",
        "2025-02-29",
        "2026-13-01",
        "2026-00-10",
        "0000-01-01",
        "2026-01-02T24:00",
        "2026-01-02T10:60",
        "2026-01-02T10:00:60Z",
        "2026-01-02t10:00Z",
        "2026-01-02T10:00z",
        "2026-01-02T10",
        "2026-01-02T10:00:00.Z",
        "2026-01-02T10:00+24:00",
        "2026-01-02T10:00+0100",
        "0001-01-01T00:00+01:00",
        "9999-12-31T23:59-00:01",
        " 2026-01-02",
        "2026-01-02\n",
        "26-01-02",
        "",
    ],
)
def test_a_text_that_names_no_moment_is_reported_and_never_stored(text):
    column, bad = parse_datetime_texts(pa.array([text, None]))
    assert bad.tolist() == [True, False]
    assert column.to_pylist() == [None, None]


def test_times_before_1970_are_cut_towards_the_past_of_their_fraction():
    column, bad = parse_datetime_texts(pa.array(["1969-12-31T23:59:59.9999Z"]))
    assert not bad.any()
    assert column.view(pa.int64()).to_pylist() == [-1]


_DATE = r"[0-9]{4}-[01][0-9]-[0-3][0-9]"
_TIME = r"[T ][0-2][0-9]:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-][0-2][0-9]:[0-5][0-9])?"
_TEXTS = st.one_of(
    st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30)).map(dt.datetime.isoformat),
    st.dates().map(dt.date.isoformat),
    st.from_regex(rf"\A{_DATE}({_TIME})?\Z"),
)


@settings(deadline=None)  # the first call loads what parsing needs
@given(st.lists(_TEXTS, max_size=20))
def test_a_column_of_texts_and_one_text_are_read_alike(texts):
    moments, bad_moments = parse_datetime_texts(pa.array(texts, pa.string()))
    dates, bad_dates = parse_date_texts(pa.array(texts, pa.string()))
    for row, text in enumerate(texts):
        try:
            expected = millis_of(parse_datetime(text))
        except ValueError:
            expected = None
        assert bad_moments[row] == (expected is None), text
        assert moments.view(pa.int64())[row].as_py() == expected
        try:
            day = days_of(parse_date(text))
        except ValueError:
            day = None
        assert bad_dates[row] == (day is None), text
        assert dates.cast(pa.int32())[row].as_py() == day
