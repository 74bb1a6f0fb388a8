"""Two readers, one meaning: batches parsed by Arrow and lines read one by one give the same rows and problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.ingest import records
from omnigraph.engine.ingest.records import ReadLines, read_lines
from omnigraph.engine.values.entities import RECORD

CATALOG = compile_schema((Path(__file__).parents[1] / "conformance" / "harbour.pg").read_text())

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-9, 9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.sampled_from(["2001-05-04", "2026-01-02T03:04:05Z", "base64:AQID", "base64:@@", "tug", "AB-1", "x"]),
)
_values = st.one_of(_scalars, st.lists(_scalars, max_size=5), st.just([1, 0, 0, 0]), st.just({}))
_fields = st.sampled_from(
    [
        "id",
        "code",
        "name",
        "kind",
        "length_m",
        "built",
        "last_seen",
        "flags",
        "profile",
        "manual",
        "badge",
        "depth_m",
        "x",
    ]
)
_sound = st.fixed_dictionaries(
    {"code": st.sampled_from(["AB-1", "AB-2"]), "name": st.text(max_size=4), "kind": st.just("tug")},
    optional={
        "length_m": st.none() | st.floats(1, 500) | st.integers(1, 500),
        "built": st.sampled_from(["2001-05-04", 11446, None]),
        "last_seen": st.sampled_from(["2026-01-02T03:04:05.678Z", 5, None]),
        "flags": st.none() | st.lists(st.text(max_size=3), max_size=3),
        "profile": st.none() | st.lists(st.floats(-1, 1), min_size=4, max_size=4),
        "manual": st.sampled_from(["base64:AQID", "base64:", "s3://b/x", None]),
    },
)
_node = st.fixed_dictionaries({"type": st.just("Vessel"), "data": _sound})
_edge = st.fixed_dictionaries(
    {"edge": st.sampled_from(["Tows", "tows"]), "from": st.sampled_from(["a", "b"]), "to": st.just("c")},
    optional={"data": st.fixed_dictionaries({}, optional={"line": st.just("long"), "id": st.just("e")})},
)
_wild = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["Vessel", "Berth", "Sailor", "Nope"]),
        "data": st.dictionaries(_fields, _values, max_size=5),
    }
)
_odd = st.dictionaries(st.sampled_from(["type", "edge", "from", "to", "data", "y"]), _scalars, max_size=4)
_lines = st.one_of(
    _node.map(json.dumps),
    _node.map(json.dumps),
    _edge.map(json.dumps),
    _wild.map(json.dumps),
    _odd.map(json.dumps),
    st.sampled_from(["", " ", "{", "[1]", "nonsense", "// no"]),
)


def content(found: ReadLines) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Rows without the ids that are minted anew each time, and where the problems are."""
    rows: dict[str, Any] = {}
    for key, parts in found.tables.items():
        table = pa.concat_tables(parts).sort_by(RECORD)
        rows[key] = [
            {name: value for name, value in row.items() if not (name == "id" and value and len(value) == 26)}
            for row in table.to_pylist()
        ]
    return rows, sorted({(problem.record, problem.line) for problem in found.problems})


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.lists(_lines, max_size=8))
def test_both_readers_agree_on_every_input(lines):
    data = "\n".join(lines).encode()
    fast = read_lines(data, CATALOG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "parse_records", lambda *_: None)
        exact = read_lines(data, CATALOG)
    agree(fast, exact)


def agree(fast: ReadLines, exact: ReadLines) -> None:
    assert (fast.lines, fast.records) == (exact.lines, exact.records)
    rows, problems = content(fast)
    exact_rows, exact_problems = content(exact)
    assert problems == exact_problems
    if not problems:
        assert rows == exact_rows


ODD = compile_schema(
    "node P { k: String @key  type: String?  data: String?  n: I64 @default(7) }\n"
    "edge Plain: P -> P { w: F64?  n: I64 @default(7)  edge: String? }\n"
)
_ends = st.sampled_from(["a", "b", "", 1, 2, -0, True, None, 1.5, 2**70])
_plain_members = {
    "P": st.fixed_dictionaries(
        {"k": st.text(max_size=3)},
        optional={
            "id": st.sampled_from(["a", None, 1]),
            "type": st.sampled_from(["x", "P", None, 1]),
            "data": st.sampled_from(["x", None, {}, {"k": "a"}]),
            "n": st.sampled_from([1, None, "1", 2**70]),
            "edge": st.just("Plain"),
        },
    ),
    "Plain": st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("from", "to", "src", "dst"), _ends),
            "w": st.sampled_from([1, 0.5, None]),
            "n": st.sampled_from([1, None]),
            "edge": st.sampled_from(["Plain", "x", None]),
            "id": st.sampled_from(["e", ""]),
        },
    ),
}
_sound_rows = {
    "P": st.fixed_dictionaries(
        {"k": st.text(max_size=3)}, optional={"type": st.just("x"), "n": st.sampled_from([1, None])}
    ),
    "Plain": st.fixed_dictionaries(
        {"from": st.sampled_from(["a", "b"]), "to": st.just("c")}, optional={"w": st.just(1), "n": st.just(1)}
    )
    | st.fixed_dictionaries({"src": st.integers(-3, 3), "dst": st.just("c")}),
}
_layouts = st.sampled_from([json.dumps, lambda row: json.dumps(row, ensure_ascii=False, separators=(" , ", " : "))])


@pytest.mark.long
@settings(max_examples=600, deadline=None)
@given(st.data(), st.sampled_from(sorted(_plain_members)))
def test_both_readers_agree_on_plain_rows(data, name):
    rows = (
        st.one_of(_sound_rows[name], _sound_rows[name], _plain_members[name])
        if data.draw(st.booleans())
        else (_sound_rows[name])
    )
    written = st.builds(lambda row, layout: layout(row), rows, _layouts)
    record = st.sampled_from(['{"type":"P","data":{"k":"z"}}', '{"edge":"Plain","from":"a","to":"b"}', "", "{", "null"])
    found = data.draw(st.lists(written if data.draw(st.booleans()) else written | record, max_size=6))
    text, of = "\n".join(found).encode(), {**ODD.nodes, **ODD.edges}[name]
    fast = read_lines(text, ODD, of=of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "parse_rows", lambda *_: None)
        patch.setattr(records, "parse_records", lambda *_: None)
        exact = read_lines(text, ODD, of=of)
    agree(fast, exact)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(st.lists(_lines, max_size=10), st.integers(1, 200))
def test_reading_in_pieces_numbers_records_and_lines_as_reading_at_once(lines, size):
    import io

    data = "\n".join(lines).encode()
    whole = read_lines(data, CATALOG)
    problems, line, record = [], 1, 1
    for piece in records.chunks(io.BytesIO(data), size):
        found = read_lines(piece, CATALOG, first_line=line, first_record=record)
        line, record = line + found.lines, record + found.records
        problems += [(problem.record, problem.line) for problem in found.problems]
    assert sorted(set(problems)) == sorted({(p.record, p.line) for p in whole.problems})
    assert record - 1 == whole.records
