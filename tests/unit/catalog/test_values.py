"""Dates and times as text."""

import datetime as dt

import pytest

from omnigraph.catalog.values import days_of, millis_of, parse_date, parse_datetime


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-02-14", "2026-02-14T00:00:00+00:00"),
        ("2026-02-14T10:00", "2026-02-14T10:00:00+00:00"),
        ("2026-02-14 10:00:01", "2026-02-14T10:00:01+00:00"),
        ("2026-02-14T10:00:01.5Z", "2026-02-14T10:00:01.500000+00:00"),
        ("2026-02-14T10:00:01.9999999Z", "2026-02-14T10:00:01.999000+00:00"),
        ("2026-02-14T00:30:00+01:00", "2026-02-13T23:30:00+00:00"),
        ("2026-02-14T10:00-05:30", "2026-02-14T15:30:00+00:00"),
        ("1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999000+00:00"),
        ("0001-01-01", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999000+00:00"),
        ("2024-02-29", "2024-02-29T00:00:00+00:00"),
    ],
)
def test_a_time_is_utc_to_the_millisecond(text: str, expected: str) -> None:
    assert parse_datetime(text).isoformat() == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026",
        "2026-2-14",
        "2026-02-30",
        "2026-13-01",
        "2023-02-29",
        "0000-01-01",
        "10000-01-01",
        "2026-02-14t10:00:00Z",
        "2026-02-14T10:00:00z",
        "2026-02-14T24:00:00",
        "2026-02-14T10:00:60Z",
        "2026-02-14T10",
        "2026-02-14T10:00:00.Z",
        "2026-02-14T10:00:00+0100",
        "2026-02-14T10:00:00+24:00",
        "2026-02-14T10:00:00+01:60",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        " 2026-02-14",
        "2026-02-14\n",
        "２０２６-02-14",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date"):
        parse_datetime(text)
    with pytest.raises(ValueError, match="is not a date"):
        parse_date(text)


def test_a_longer_text_is_cut_to_its_utc_date() -> None:
    assert parse_date("2026-02-14T00:30:00+01:00") == dt.date(2026, 2, 13)


def test_stored_numbers() -> None:
    assert days_of(dt.date(2001, 5, 4)) == 11446
    assert millis_of(parse_datetime("1969-12-31T23:59:59.999Z")) == -1
