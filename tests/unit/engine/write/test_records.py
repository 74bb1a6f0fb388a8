from __future__ import annotations

import datetime as dt
import io
import json

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.ingest import records
from omnigraph.engine.ingest.records import chunks, read_lines, record_lines
from omnigraph.engine.values.entities import LINE, RECORD
from omnigraph.errors import ConstraintError, InputError

TUG = '{"type":"Vessel","data":{"code":"AB-%d","name":"x","kind":"tug"%s}}'


def read(catalog, *lines, **options):
    return read_lines("\n".join(lines).encode("utf-8", "surrogatepass"), catalog, **options)


def test_rows_know_their_record_and_their_line(catalog):
    found = read(catalog, TUG % (1, ""), "", "  \r", TUG % (2, ""), first_line=100, first_record=7)
    [table] = found.tables["node:Vessel"]
    assert table.column("id").to_pylist() == ["AB-1", "AB-2"]
    assert table.column(RECORD).to_pylist() == [7, 8]
    assert table.column(LINE).to_pylist() == [100, 103]
    assert (found.lines, found.records, found.problems) == (4, 2, [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"type":"Nope","data":{}}', "unknown node type 'Nope'"),
        ('{"edge":"Nope","from":"a","to":"b"}', "unknown edge type 'Nope'"),
        ('{"type":"Birth","data":{}}', "unknown node type 'Birth'; did you mean 'Berth'?"),
        ('{"type":"tows","data":{}}', "unknown node type 'tows'; it is an edge type: write 'edge' instead of 'type'"),
        ('{"edge":"Berth","data":{}}', "unknown edge type 'Berth'; it is a node type: write 'type' instead of 'edge'"),
        ('{"type":"Berth","data":{"code":"N1","depth":1}}', "unknown field 'depth' of Berth; did you mean 'depth_m'?"),
        ('[{"type":"Berth","data":{}}]', "not an array: write each of its objects on a line of its own"),
        ('{"foo":1}', "neither"),
        ('{"type":"Berth","edge":"Tows"}', "both"),
        ('{"type":7,"data":{}}', "'type' must be a string"),
        ('{"type":"Berth","data":null}', "'data' must be an object, not null"),
        ('{"type":"Berth","data":[]}', "'data' must be an object, not an array"),
        ('{"type":"Berth","date":{}}', "unknown field 'date' beside 'type'"),
        ('{"type":"Berth","data":{"code":"N1","depth_m":1,"colour":1}}', "unknown field 'colour' of Berth"),
        ('{"type":"Berth","data":{"code":"N1","code":"N2","depth_m":1}}', "duplicate member 'code'"),
        ('{"type":"Berth","type":"Berth","data":{}}', "duplicate member 'type'"),
        ('{"edge":"Tows","from":"a"}', "edge Tows misses 'to'"),
        ('{"edge":"Tows","from":"a","to":null}', "edge Tows misses 'to'"),
        ('{"edge":"Tows","from":1.5,"to":"b"}', "'from': expected a string, found the number 1.5"),
        ('{"edge":"Tows","from":"a","to":"b","data":{"src":"a"}}', "'src' does not belong"),
        ('{"type":"Berth","data":{"_rowid":1}}', "'_rowid' is a reserved name"),
        ('{"type":"Berth","data":{"_tombstone":true}}', "'_tombstone' is a reserved name"),
        ('{"type":"LogEntry","data":{"id":null,"body":"x"}}', "must not be null"),
        ('{"type":"LogEntry","data":{"id":"","body":"x"}}', "must not be empty"),
        ('{"type":"LogEntry","data":{"id":5,"body":"x"}}', "LogEntry.id: expected a string"),
        ('{"type":"Berth","data":{"id":"x","code":"N1","depth_m":1}}', "id 'x' of Berth is not"),
        ('{"type":"Berth","data":{"code":"N1"}}', "Berth.depth_m is required"),
        ('{"type":"Berth","data":{"code":"N1","depth_m":null}}', "Berth.depth_m is required"),
        ('{"type":"Berth","data":{"depth_m":1}}', "Berth.code is required"),
        ('{"type":"Berth","data":{"code":"N1","depth_m":1e39}}', "Berth.depth_m: 1e+39 is out of range for F32"),
        ('{"type":"Berth","data":{"code":"N1","depth_m":1e999}}', "Berth.depth_m: inf is not a finite number"),
        ('{"type":"Berth","data":{"code":"N1","depth_m":NaN}}', "nan is not a finite number"),
        ('{"type":"Berth","data":{"code":"N1","depth_m":"1"}}', 'expected a number, found the string "1"'),
        ('{"type":"Sailor","data":{"badge":-1,"name":"x"}}', "Sailor.badge: -1 is below the range of U32"),
        ('{"type":"Sailor","data":{"badge":4294967296,"name":"x"}}', "4294967296 exceeds the range of U32"),
        ('{"type":"Sailor","data":{"badge":1.0,"name":"x"}}', "expected an integer, found the number 1.0"),
        ('{"type":"Sailor","data":{"badge":true,"name":"x"}}', "expected an integer, found true"),
        ('{"type":"Sailor","data":{"badge":1,"name":["x"]}}', "expected a string, found an array"),
        ('{"type":"Sailor","data":{"badge":1,"name":{}}}', "expected a string, found an object"),
        (TUG % (1, ',"built":"2001-02-29"'), "'2001-02-29' is not a Date"),
        (TUG % (1, ',"built":true'), "expected a Date text or an integer, found true"),
        (TUG % (1, ',"built":99999999'), "99999999 is not a day number"),
        (TUG % (1, ',"last_seen":"yesterday"'), "'yesterday' is not a DateTime"),
        (TUG % (1, ',"flags":"ice"'), "expected an array"),
        (TUG % (1, ',"flags":["ice",null]'), "a list must not contain null"),
        (TUG % (1, ',"flags":["ice",1]'), "expected a string, found the number 1"),
        (TUG % (1, ',"profile":[1,0]'), "expected 4 numbers, found 2"),
        (TUG % (1, ',"profile":[1,0,0,"x"]'), "expected a number"),
        (TUG % (1, ',"profile":[1,0,0,1e39]'), "a vector element must be a finite number"),
        (TUG % (1, ',"manual":"base64:@@"'), "not standard base64"),
        (TUG % (1, ',"manual":1'), "expected a string"),
        ('{"type":"LogEntry","data":{"body":"\\ud800"}}', "half of a surrogate pair"),
        ('// {"type":"Berth"}', "comments are not allowed"),
        ("\ufeff" + '{"type":"Berth"}', "without one"),
        ('{"type":"Berth",', "an object must stand whole on one line"),
        ('{"type":"Berth"} {"type":"Berth"}', "one line holds one object"),
        ('["type"]', "a record is a JSON object, not an array"),
        ("[" * 100_000, "nested too deeply"),
        ('{"type":"Sailor","data":{"badge":' + "9" * 5_000 + ',"name":"x"}}', "not JSON"),
    ],
)
def test_a_wrong_record_is_named_with_its_number_line_and_reason(catalog, line, message):
    good = '{"type":"Berth","data":{"code":"G%d","depth_m":1}}'
    found = read(catalog, good % 1, "", line, good % 2)
    [problem] = found.problems
    assert (problem.record, problem.line) == (2, 3)
    assert message in problem.message
    assert str(problem).startswith("record 2 (line 3): ")


def test_a_line_that_is_not_utf8_is_named(catalog):
    data = (TUG % (1, "")).encode() + b'\n{"type":"Berth","data":{"code":"\xff","depth_m":1}}\n'
    [problem] = read_lines(data, catalog).problems
    assert (problem.record, problem.line) == (2, 2)
    assert "not valid UTF-8" in problem.message


def test_problems_of_all_types_come_in_the_order_of_the_file(catalog):
    found = read(catalog, '{"type":"Berth","data":{"code":"N1"}}', TUG % (1, ',"x":1'), '{"edge":"Tows"}')
    assert [problem.record for problem in found.problems] == [1, 2, 3]


def test_dates_may_be_texts_and_numbers_in_one_file(catalog):
    lines = [TUG % (1, ',"built":"2001-05-04"'), TUG % (2, ',"built":11446'), TUG % (3, ',"last_seen":1000')]
    for order in (lines, lines[::-1]):
        found = read(catalog, *order)
        assert not found.problems
        [table] = found.tables["node:Vessel"]
        built = dict(zip(table.column("id").to_pylist(), table.column("built").to_pylist(), strict=True))
        assert str(built["AB-1"]) == str(built["AB-2"]) == "2001-05-04"


def test_edge_names_are_found_whatever_their_case_and_members_in_any_order(catalog):
    found = read(
        catalog,
        '{"edge":"tows","from":"a","to":"b"}',
        '{"data":{"line":"long"},"to":"b","from":"a","edge":"TOWS"}',
        ' { "edge" : "Tows" , "from" : "a" , "to" : "b" , "data" : { } } ',
    )
    assert not found.problems
    assert sum(table.num_rows for table in found.tables["edge:Tows"]) == 3
    assert found.with_ids == set()


def test_both_readers_find_the_same_rows(catalog, monkeypatch):
    from pathlib import Path

    data = (Path(__file__).parents[3] / "conformance" / "harbour.jsonl").read_bytes()

    def content(found):
        assert not found.problems
        return {
            key: pa.concat_tables(parts).drop_columns(["id"]).sort_by(RECORD).to_pylist()
            for key, parts in found.tables.items()
        }

    fast = content(read_lines(data, catalog))
    monkeypatch.setattr(records, "parse_records", lambda *_: None)
    assert content(read_lines(data, catalog)) == fast


PLAIN = {
    "node:Vessel": '{"code":"AB-%d","name":"x","kind":"tug","length_m":null}',
    "edge:Tows": '{"from":"AB-%d","to":"AB-2"}',
}


@pytest.mark.parametrize("key", list(PLAIN))
def test_plain_rows_of_a_type_are_parsed_all_at_once(catalog, monkeypatch, key):
    data = "\n".join([*(PLAIN[key] % n for n in range(1, 5)), "", " "]).encode()

    def content():
        found = read_lines(data, catalog, of=catalog.tables[key])
        assert (found.problems, found.records, found.lines) == ([], 4, 6)
        return pa.concat_tables(found.tables[key]).drop_columns(["id"]).to_pylist()

    exact = records._read_exactly
    monkeypatch.setattr(records, "_read_exactly", lambda *_: pytest.fail("read line by line"))
    fast = content()
    monkeypatch.setattr(records, "_read_exactly", exact)
    monkeypatch.setattr(records, "parse_rows", lambda *_: None)
    assert content() == fast


def test_ends_that_are_numbers_are_parsed_all_at_once(catalog, monkeypatch):
    monkeypatch.setattr(records, "_read_exactly", lambda *_: pytest.fail("read line by line"))
    lines = '{"edge":"Tows","from":1,"to":"a"}\n{"edge":"Tows","from":-20,"to":"b"}'
    plain = '{"src":1,"to":"a"}\n{"src":-20,"to":"b"}'
    for text, of in ((lines, None), (plain, catalog.tables["edge:Tows"])):
        [table] = read_lines(text.encode(), catalog, of=of).tables["edge:Tows"]
        assert table.column("src").to_pylist() == ["1", "-20"]


def test_a_stream_is_cut_between_lines_only():
    data = b"".join(b"%d\n" % n for n in range(1_000)) + b"tail"
    pieces = list(chunks(io.BytesIO(data), size=64))
    assert b"".join(pieces) == data
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])
    assert len(pieces) > 10


def test_a_line_beyond_the_limit_is_a_problem_and_not_a_memory_hog(catalog, monkeypatch):
    from omnigraph.engine.ingest import strict

    monkeypatch.setattr(strict, "LINE_BYTES_MAX", 200)
    found = read(catalog, TUG % (1, f',"notes":"{"x" * 300}","zzz":1'))
    [problem] = found.problems
    assert "at most 200 are allowed" in problem.message


def test_python_records_are_read_like_lines(catalog):
    record = {
        "type": "Vessel",
        "data": {
            "code": "AB-1",
            "name": "é\n",
            "kind": "tug",
            "built": dt.date(2001, 5, 4),
            "profile": np.array([1, 0, 0, 0], dtype=np.float32),
            "manual": b"\x01",
        },
    }
    [line] = record_lines([record], catalog)
    assert json.loads(line)["data"]["manual"] == "base64:AQ=="
    found = read_lines(line, catalog)
    assert not found.problems
    assert found.tables["node:Vessel"][0].column("built").to_pylist() == [dt.date(2001, 5, 4)]


@pytest.mark.parametrize(
    "value", [object(), float("nan"), {1: object()}], ids=["no JSON form", "not a number", "a member without JSON form"]
)
def test_a_python_record_without_json_form_is_named(value, catalog):
    good = {"type": "LogEntry", "data": {"body": "x"}}
    with pytest.raises(ConstraintError, match="record 2: "):
        list(record_lines([good, {"type": "LogEntry", "data": {"body": value}}], catalog))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", b"bytes"),
        ("name", bytearray(b"bytes")),
        ("name", dt.date(2026, 1, 1)),
        ("name", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        ("name", np.datetime64("2026-01-01")),
        ("built", b"2026-01-01"),
        ("manual", dt.date(2026, 1, 1)),
    ],
)
def test_bytes_and_moments_do_not_become_texts_of_other_properties(name, value, catalog):
    data = {"code": "AB-1", "name": "x", "kind": "tug", name: value}
    with pytest.raises(ConstraintError, match=f"record 1: Vessel.{name}: expected"):
        list(record_lines([{"type": "Vessel", "data": data}], catalog))


def test_a_stream_opened_as_text_is_refused_with_advice():
    with pytest.raises(InputError, match="binary"):
        list(chunks(io.StringIO("{}")))
