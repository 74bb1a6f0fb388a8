"""The members of many JSON lines of one type, parsed by Arrow all at once; None where only the exact reader can tell.

The schema refuses unknown and duplicate members and values of the wrong kind. Lines are load records, with the
properties below `data`, or plain rows of a known type, with everything side by side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.model import EdgeType, Property
from omnigraph.catalog.types import Scalar
from omnigraph.engine.ingest.strict import LINE_BYTES_MAX
from omnigraph.engine.values.columns import json_type
from omnigraph.engine.values.entities import Entity

_BLOCK_BYTES = 4 * 1024 * 1024
_NULL_DATA = r'"data"[ \t\r]*:[ \t\r]*null'
_NULL_ID = r'"id"[ \t\r]*:[ \t\r]*null'
_OBJECT = r"\A[ \t\r]*\{"
_STORED_ENDS = {"from": "src", "to": "dst"}
"""The two names that a plain row may have for each end of an edge."""


class Members(Struct, frozen=True):
    """Columns as JSON has them, by property, with what decides ids, ends and defaults.

    `absent` marks, for each property of which it matters, the lines that leave it out.
    """

    columns: Mapping[str, pa.Array]
    ids: pa.Array
    ends: tuple[pa.Array, pa.Array] | None
    absent: Mapping[str, pa.Array]


def parse_records(lines: pa.Array, rows: npt.NDArray[np.int64], entity: Entity) -> Members | None:
    """The members of load records of one type."""
    chosen = _chosen(lines, rows)
    first = _first(chosen)
    data = first.get("data")
    fields = _fields(entity, data if isinstance(data, dict) else {})
    word = "edge" if isinstance(entity, EdgeType) else "type"
    ends = {name: _end_type(first.get(name)) for name in _STORED_ENDS} if word == "edge" else {}
    schema = pa.schema([(word, pa.string()), *ends.items(), ("data", pa.struct(fields))])
    body = _joined(chosen)
    table = _read(body, len(rows), schema)
    if table is None:
        return None
    found = wide.one_array(table["data"])
    # A member that is null and one that is missing look alike to Arrow, but here only the latter may be.
    if found.null_count and _mentions(chosen, body, _NULL_DATA):
        return None
    columns = {each.name: pc.struct_field(found, each.name) for each in fields}
    return _members(entity, columns, [table[name] for name in ends], chosen, body)


def parse_rows(lines: pa.Array, rows: npt.NDArray[np.int64], entity: Entity) -> Members | None:
    """The members of plain rows of one type. A load record among them has a member that no row has."""
    chosen = _chosen(lines, rows)
    if not pc.all(pc.match_substring_regex(chosen, _OBJECT)).as_py():
        return None
    first = _first(chosen)
    fields = _fields(entity, first)
    ends = {}
    if isinstance(entity, EdgeType):
        ends = {word if word in first else stored: stored for word, stored in _STORED_ENDS.items()}
    schema = pa.schema([*fields, *((name, _end_type(first.get(name))) for name in ends)])
    body = _joined(chosen)
    table = _read(body, len(rows), schema)
    if table is None:
        return None
    columns = {each.name: wide.one_array(table[each.name]) for each in fields}
    return _members(entity, columns, [table[name] for name in ends], chosen, body)


def marked(entity: Entity) -> list[Property]:
    """The properties of which it matters whether a line leaves them out: it has a default, or keeps its value."""
    return [prop for prop in entity.properties.values() if entity.partial or prop.default is not None]


def _chosen(lines: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    return lines if len(rows) == len(lines) else lines.take(pa.array(rows))


def _first(lines: pa.Array) -> dict[str, Any]:
    """The first line, which tells how ends and moments are written; nothing when it is not sound."""
    try:
        first = json.loads(lines[0].as_py())
    except (ValueError, RecursionError):
        return {}
    return first if isinstance(first, dict) else {}


def _fields(entity: Entity, first: Mapping[str, Any]) -> list[pa.Field]:
    """What Arrow may meet as id and properties; the first line tells whether dates are written as numbers."""
    fields = [pa.field("id", pa.string())]
    for prop in entity.properties.values():
        as_numbers = False
        if prop.type.scalar in (Scalar.DATE, Scalar.DATETIME):
            value = first.get(prop.name)
            value = value[0] if isinstance(value, list) and value else value
            as_numbers = isinstance(value, int)
        fields.append(pa.field(prop.name, json_type(prop.type, dates_as_numbers=as_numbers)))
    return fields


def _end_type(value: object) -> pa.DataType:
    """How an end is written: as text, or as the number that is the key of its node."""
    return pa.int64() if isinstance(value, int) and not isinstance(value, bool) else pa.string()


def _read(body: pa.Buffer, count: int, schema: pa.Schema) -> pa.Table | None:
    try:
        table = pj.read_json(
            pa.BufferReader(body),
            read_options=pj.ReadOptions(block_size=max(_BLOCK_BYTES, min(len(body) + 1, LINE_BYTES_MAX * 2))),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return table if table.num_rows == count and set(table.column_names) == set(schema.names) else None


def _members(
    entity: Entity, columns: dict[str, pa.Array], ends: list[pa.ChunkedArray], lines: pa.Array, body: pa.Buffer
) -> Members | None:
    ids = columns.pop("id")
    if ids.null_count and _mentions(lines, body, _NULL_ID):
        return None
    absent = _absent(entity, columns, lines)
    if absent is None:
        return None
    texts = [pc.cast(wide.one_array(end), pa.string()) for end in ends]
    return Members(columns, ids, (texts[0], texts[1]) if texts else None, absent)


def _absent(entity: Entity, columns: Mapping[str, pa.Array], lines: pa.Array) -> dict[str, pa.Array] | None:
    """Where a property was left out of which it matters; None when only the exact reader knows.

    Left out and null are one to Arrow. A member whose name is spelt with escapes is not found by its text, so lines
    that have both a null and an escape are read one by one.
    """
    absent: dict[str, pa.Array] = {}
    asked = marked(entity)
    has_null = pc.match_substring(lines, "null") if asked else None
    spelt = pc.and_(has_null, pc.match_substring(lines, "\\u")) if asked else None
    for prop in asked:
        missing = pc.is_null(columns[prop.name])
        if pc.any(pc.and_(missing, has_null)).as_py():
            if pc.any(pc.and_(missing, spelt)).as_py():
                return None
            named = rf'"{prop.name}"[ \t\r]*:[ \t\r]*null'
            missing = pc.and_(missing, pc.invert(pc.match_substring_regex(lines, named)))
        absent[prop.name] = missing
    return absent


def _mentions(lines: pa.Array, body: pa.Buffer, pattern: str) -> bool:
    return b"null" in body.to_pybytes() and bool(pc.any(pc.match_substring_regex(lines, pattern)).as_py())


def _joined(lines: pa.Array) -> pa.Buffer:
    """The bytes of the lines one after the other, without copying them again."""
    offsets = np.frombuffer(lines.buffers()[1], dtype=np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
