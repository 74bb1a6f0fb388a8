"""The four formats of rows say the same, whatever the type; so do queries and exports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.server.serving import InProcess

import omnigraph

SCHEMA = """
node Thing {
    name: String @key
    text: String?
    yes: Bool?
    small: I32?
    large: I64?
    count: U32?
    most: U64?
    half: F32?
    ratio: F64?
    day: Date?
    moment: DateTime?
    place: Vector(2)?
    words: [String]?
    counts: [U64]?
    ratios: [F64]?
    days: [Date]?
    moments: [DateTime]?
    kind: enum(red, green)?
    photo: Blob?
}
node Nothing { name: String @key  moment: DateTime?  words: [String]?  photo: Blob? }
edge Near: Thing -> Thing { since: DateTime? }
"""
WHOLE = {
    "name": "whole",
    "text": 'a "b", c\r\n\t\u65e5\U0001f600',
    "yes": True,
    "small": -(2**31),
    "large": -(2**63),
    "count": 2**32 - 1,
    "most": 2**64 - 1,
    "half": 0.5,
    "ratio": 0.1,
    "day": "1815-12-10",
    "moment": "1969-12-31T23:59:59.999Z",
    "place": [1.0, -2.5],
    "words": ["a", "", 'x,"y'],
    "counts": [2**64 - 1, 0],
    "ratios": [1.5, 0.1],
    "days": ["2024-02-29"],
    "moments": ["2024-01-02T03:04:05.678Z", "9999-12-31T23:59:59.999Z"],
    "kind": "red",
}
NAMES = tuple(WHOLE)
NULL = {**dict.fromkeys(NAMES), "name": "nothing"}
ODD = {**NULL, "name": "odd", "text": "null", "words": [], "ratio": -0.0, "most": 0, "day": "0001-01-01"}
EMPTY = {**NULL, "name": "zero", "text": ""}
ROWS = [NULL, ODD, WHOLE, EMPTY]
RETURNED = ", ".join(f"$t.{name} as {name}" for name in NAMES)
ALL = f"query all() {{ match {{ $t: Thing }} return {{ {RETURNED} }} order {{ $t.name asc }} }}"
ARROW, LINES, CSV = "application/vnd.apache.arrow.stream", "application/x-ndjson", "text/csv"


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    root = tmp_path_factory.mktemp("formats") / "graph"
    with omnigraph.create(root, SCHEMA) as graph:
        records: list[dict[str, Any]] = [{"type": "Thing", "data": row} for row in ROWS]
        records[2] = {"type": "Thing", "data": {**WHOLE, "photo": "base64:aGVsbG8="}}
        records.append({"edge": "Near", "from": "whole", "to": "odd", "data": {"since": WHOLE["moment"]}})
        graph.load("".join(json.dumps(record) + "\n" for record in records).encode(), durability="fast")
    server = InProcess(root, access=None, settings=None, queries=None)
    yield server
    server.close()


def asked(server: InProcess, accept: str) -> bytes:
    answer = server.post("query", {"query": ALL}, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    return answer.content


def exported(server: InProcess, name: str, accept: str) -> bytes:
    answer = server.post("export", {"type_names": [name]}, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith(accept)
    return answer.content


def arrow(content: bytes) -> pa.Table:
    table = pa.ipc.open_stream(content).read_all()
    table.validate(full=True)
    return table


def plain(value: Any) -> Any:
    """A value of Arrow as JSON spells it."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if hasattr(value, "hour"):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    return value.isoformat() if hasattr(value, "isoformat") else value


def cells(row: dict[str, Any]) -> dict[str, str]:
    """A row as CSV spells it: null is nothing, lists are JSON, a text is itself."""
    return {
        name: "" if value is None else value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for name, value in row.items()
    }


def test_a_query_says_the_same_in_every_format(things: InProcess) -> None:
    assert json.loads(asked(things, "application/json"))["rows"] == ROWS
    assert [json.loads(line) for line in asked(things, LINES).splitlines()] == ROWS
    assert [{name: plain(value) for name, value in row.items()} for row in arrow(asked(things, ARROW)).to_pylist()] == (
        ROWS
    )
    assert list(csv.DictReader(io.StringIO(asked(things, CSV).decode(), newline=""))) == [cells(row) for row in ROWS]


def test_csv_tells_null_from_an_empty_text(things: InProcess) -> None:
    lines = asked(things, CSV).decode().split("\n")
    assert lines[1].startswith('"nothing",,')
    assert lines[-2].startswith('"zero","",')


def test_an_export_of_a_type_says_the_same_in_every_format(things: InProcess) -> None:
    rows = [{"id": row["name"], **row, "photo": None} for row in ROWS]
    rows[2]["photo"] = "base64:aGVsbG8="
    found = arrow(exported(things, "Thing", ARROW))
    assert [{name: plain(value) for name, value in row.items()} for row in found.to_pylist()] == rows
    assert found.schema.field("moment").type == pa.timestamp("ms", tz="UTC"), "a date64 is a day to everybody else"
    assert found.schema.field("moments").type == pa.list_(pa.timestamp("ms", tz="UTC"))
    assert all(field.metadata is None for field in found.schema), "how it is stored is nobody's concern"
    read = list(csv.DictReader(io.StringIO(exported(things, "Thing", CSV).decode(), newline="")))
    assert read == [cells({name: row[name] for name in read[0]}) for row in rows]
    edges = arrow(exported(things, "Near", ARROW)).to_pylist()
    assert [(edge["src"], edge["dst"], plain(edge["since"])) for edge in edges] == [("whole", "odd", WHOLE["moment"])]


def test_a_type_without_entities_is_exported_as_its_columns(things: InProcess) -> None:
    empty = arrow(exported(things, "Nothing", ARROW))
    assert (empty.num_rows, empty.column_names) == (0, ["id", "moment", "name", "photo", "words"])
    assert exported(things, "Nothing", CSV) == b'"id","moment","name","photo","words"\n'
    assert exported(things, "Nothing", LINES) == b""


def test_what_an_export_says_loads_back(things: InProcess, tmp_path: Path) -> None:
    whole = things.post("export", {}).text
    with omnigraph.create(tmp_path / "copy", SCHEMA) as graph:
        graph.load(whole.encode(), durability="fast")
        assert "".join(f"{line}\n" for line in graph.export()) == whole


@pytest.mark.parametrize("path", ["changes?start=beginning", "diff?from=1&to=main&values=full"])
def test_changes_are_told_in_the_words_of_a_query(things: InProcess, path: str) -> None:
    body = things.get(path).json()
    changes = body["changes"] if "changes" in body else [one for block in body["blocks"] for one in block["changes"]]
    told = {one["id"]: one["after"]["properties"] for one in changes if one["kind"] == "node"}
    assert {name: told["whole"][name] for name in NAMES} == WHOLE
