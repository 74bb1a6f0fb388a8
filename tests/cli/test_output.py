"""The five formats of a read."""

import csv
import io
import json

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.cli.output import Layout, ReadView, csv_lines, metadata_line, render, table_lines

ADULTS = ReadView("adults", "main", None, ("name", "age"), [{"name": "Ada", "age": 36}, {"name": "Linus", "age": 29}])


def lines(view: ReadView, form: str) -> list[str]:
    return "\n".join(render(view, form, Layout())).split("\n")


def test_table() -> None:
    assert lines(ADULTS, "table") == [
        "2 rows from branch main via adults",
        "name  | age",
        "------+----",
        "Ada   | 36",
        "Linus | 29",
    ]


def test_kv() -> None:
    assert lines(ADULTS, "kv") == [
        "2 rows from branch main via adults",
        "row 1",
        "name: Ada",
        "age: 36",
        "",
        "row 2",
        "name: Linus",
        "age: 29",
    ]


def test_csv() -> None:
    assert lines(ADULTS, "csv") == ["name,age", "Ada,36", "Linus,29"]


def test_jsonl() -> None:
    assert lines(ADULTS, "jsonl") == [
        '{"name":"Ada","age":36}',
        '{"name":"Linus","age":29}',
    ]


def test_what_was_read_is_told_apart_from_the_rows() -> None:
    assert metadata_line(ADULTS) == ('{"query_name":"adults","target":{"branch":"main","snapshot":null},"row_count":2}')


def test_json() -> None:
    text = "\n".join(lines(ADULTS, "json"))
    assert text.startswith('{\n  "query_name": "adults"')
    assert json.loads(text) == {
        "query_name": "adults",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 2,
        "columns": ["name", "age"],
        "rows": [{"name": "Ada", "age": 36}, {"name": "Linus", "age": 29}],
    }


def test_a_snapshot_and_a_single_row_are_named_as_such() -> None:
    view = ReadView("q", None, "01K", ("n",), [{"n": None}])
    assert lines(view, "table") == ["1 row from snapshot 01K via q", "n", "----", "null"]


def test_no_rows_says_so() -> None:
    empty = ReadView("q", "main", None, ("n",), [])
    assert lines(empty, "table") == ["0 rows from branch main via q", "(no rows)"]
    assert lines(empty, "kv") == ["0 rows from branch main via q", "(no rows)"]
    assert lines(empty, "csv") == ["n"]


def test_long_cells_are_cut_or_wrapped() -> None:
    rows = [{"a": "abcdefgh", "b": 1}]
    assert list(table_lines(("a", "b"), rows, Layout(max_width=4))) == ["a    | b", "-----+--", "abc… | 1"]
    assert list(table_lines(("a", "b"), rows, Layout(max_width=4, wrap=True))) == [
        "a    | b",
        "-----+--",
        "abcd | 1",
        "efgh |",
    ]


def test_wide_characters_keep_the_columns_aligned() -> None:
    rows = [{"a": "日本", "b": 1}, {"a": "x", "b": 2}]
    assert list(table_lines(("a", "b"), rows, Layout())) == ["a    | b", "-----+--", "日本 | 1", "x    | 2"]
    assert list(table_lines(("a", "b"), rows, Layout(max_width=3)))[2] == "日… | 1"


def test_control_characters_are_written_out_for_people() -> None:
    rows = [{"a": "one\ntwo\x1b[31m\x07"}]
    assert list(table_lines(("a",), rows, Layout()))[-1] == r"one\ntwo\x1b[31m\x07"


def test_csv_quotes_what_needs_it_and_writes_lists_as_json() -> None:
    row = {"a": 'say "hi", now\n', "b": None, "c": [1, "x"], "d": True, "e": 1.5}
    assert list(csv_lines(tuple(row), [row])) == ["a,b,c,d,e", '"say ""hi"", now\n",null,"[1,""x""]",true,1.5']


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_a_csv_reader_gets_back_the_texts(pairs: list[tuple[str, str]]) -> None:
    rows = [{"a": first, "b": second} for first, second in pairs]
    text = io.StringIO("".join(line + "\r\n" for line in csv_lines(("a", "b"), rows)), newline="")
    assert list(csv.reader(text, strict=True))[1:] == [[first, second] for first, second in pairs]


@given(st.lists(st.text(), min_size=1, max_size=6), st.integers(1, 12), st.booleans())
def test_no_table_line_is_wider_than_its_columns_allow(cells: list[str], width: int, wrap: bool) -> None:
    from rich.cells import cell_len

    rows = [{"a": cell, "b": "x"} for cell in cells]
    for line in table_lines(("a", "b"), rows, Layout(width, wrap)):
        assert "\n" not in line
        assert cell_len(line) <= max(width, 2) + 4
