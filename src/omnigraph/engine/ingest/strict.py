"""The exact reader of one load record: slow, and able to say what is wrong.

`records` parses whole batches with Arrow and comes here only for lines that Arrow refuses or that need a careful look.
A record this module accepts has values of the right JSON kind in range; texts of dates and blobs are judged later, by
the same code for both readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, NoReturn

from msgspec import Struct, field

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.catalog.types import FLOATS, INTEGER_RANGES, PropertyType, Scalar
from omnigraph.engine.values.columns import not_finite, out_of_range
from omnigraph.engine.values.entities import Entity
from omnigraph.engine.values.temporal import DAY_MAX, DAY_MIN, MILLIS_MAX, MILLIS_MIN
from omnigraph.ids import text_fault

LINE_BYTES_MAX = 32 * 1024 * 1024
RESERVED_FIELDS = frozenset(
    {"_tombstone", "_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""How results and exports write what JSON has no number for; only graphs of earlier releases hold such values."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecordFault(Exception):  # never leaves this package: it becomes a numbered problem
    """What is wrong with one record."""


class Record(Struct, frozen=True):
    """One accepted record; `data` holds values of the kind JSON has, dates as text, and None where null is given."""

    entity: Entity
    id: str | None
    source: str | None = None
    target: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def read_record(line: bytes, catalog: Catalog, of: Entity | None = None) -> Record:
    """Read one physical line; `of` is the type of those that are plain rows and no records.

    Raises:
        RecordFault: the line is not exactly one well-formed record of a type of the catalog.
    """
    shape = _load_object(line)
    if of is not None and not _is_record(shape, of):
        shape = _as_record(shape, of)
    if ("type" in shape) == ("edge" in shape):
        found = "both" if "type" in shape else "neither"
        raise RecordFault(f"a record has either 'type' or 'edge'; this one has {found}")
    word = "type" if "type" in shape else "edge"
    allowed = {"type", "data"} if word == "type" else {"edge", "from", "to", "data"}
    for name in shape:
        if name not in allowed:
            raise RecordFault(f"unknown field '{name}' beside '{word}'")
    entity = _entity(shape[word], word, catalog)
    data = shape.get("data", {})
    if not isinstance(data, dict):
        raise RecordFault(f"'data' must be an object, not {_kind_of(data)}")
    source = target = None
    if isinstance(entity, EdgeType):
        source, target = _end(shape, "from", entity), _end(shape, "to", entity)
    return Record(entity, _explicit_id(data, entity), source, target, _values(data, entity))


def _is_record(shape: Mapping[str, Any], of: Entity) -> bool:
    """Whether an object names its type itself, even where a property is called `type`: none holds an object."""
    return any(
        word in shape and (word not in of.properties or isinstance(shape.get("data"), dict))
        for word in ("type", "edge")
    )


def _as_record(row: dict[str, Any], of: Entity) -> dict[str, Any]:
    if not isinstance(of, EdgeType):
        return {"type": of.name, "data": row}
    columns = {word: word if word in row else stored for word, stored in (("from", "src"), ("to", "dst"))}
    ends = {word: row.pop(column, None) for word, column in columns.items()}
    return {"edge": of.name, **ends, "data": row}


def _load_object(line: bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES_MAX:
        raise RecordFault(f"the line has {len(line)} bytes; at most {LINE_BYTES_MAX} are allowed")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordFault(f"not valid UTF-8: {error.reason} at byte {error.start}") from None
    stripped = text.strip(" \t\r\n")
    if stripped.startswith(("//", "/*", "#")):
        raise RecordFault("comments are not allowed in a load file; every line is one JSON object")
    try:
        shape = json.loads(stripped, object_pairs_hook=_unique_members, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise RecordFault(_json_fault(stripped, error)) from None
    except RecursionError:
        raise RecordFault("the JSON is nested too deeply") from None
    except ValueError as error:
        raise RecordFault(f"not JSON: {error}") from None
    if not isinstance(shape, dict):
        hint = ": write each of its objects on a line of its own" if isinstance(shape, list) else ""
        raise RecordFault(f"a record is a JSON object, not {_kind_of(shape)}{hint}")
    return shape


def _json_fault(text: str, error: json.JSONDecodeError) -> str:
    if text.startswith("\ufeff"):
        return "it begins with a byte order mark: save the data as UTF-8 without one"
    if error.pos >= len(text) or text in ("}", "{", "]", "},"):
        return "not JSON on its own: an object must stand whole on one line"
    if error.msg == "Extra data":
        return f"one line holds one object; more text follows at column {error.pos + 1}"
    return f"not JSON: {error.msg} at column {error.pos + 1}"


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise RecordFault(f"duplicate member '{name}'")
            seen.add(name)
    return members


def _no_constant(text: str) -> NoReturn:
    raise RecordFault(f"not JSON: {text} is not a finite number, and no property holds others: leave it null")


def _entity(name: object, word: str, catalog: Catalog) -> Entity:
    if not isinstance(name, str):
        raise RecordFault(f"'{word}' must be a string, not {_kind_of(name)}")
    if word == "type":
        node = catalog.nodes.get(name)
        if node is None:
            raise RecordFault(f"unknown node type '{name}'{_meant(name, catalog)}")
        return node
    edge = catalog.edges_by_lower_name.get(name.lower())
    if edge is None:
        raise RecordFault(f"unknown edge type '{name}'{_meant(name, catalog)}")
    return edge


def _meant(name: str, catalog: Catalog) -> str:
    if name in catalog.nodes:
        return "; it is a node type: write 'type' instead of 'edge'"
    if name.lower() in catalog.edges_by_lower_name:
        return "; it is an edge type: write 'edge' instead of 'type', and 'from' and 'to' beside it"
    return did_you_mean(name, [*catalog.nodes, *catalog.edges])


def _end(shape: Mapping[str, Any], word: str, edge: EdgeType) -> str | None:
    value = shape.get(word)
    if value is None and edge.partial:
        return None
    if value is None:
        raise RecordFault(f"edge {edge.name} misses '{word}'")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # the id of a node whose key is that number
    return _text(value, f"'{word}'")


def _explicit_id(data: Mapping[str, Any], entity: Entity) -> str | None:
    if "id" not in data:
        return None
    if data["id"] is None:
        raise RecordFault(f"an explicit id of {entity.name} must not be null")
    if data["id"] == "" and not (len(entity.key) == 1 and data.get(entity.key[0]) == ""):
        raise RecordFault(f"an explicit id of {entity.name} must not be empty")
    return _text(data["id"], f"{entity.name}.id")


def _values(data: Mapping[str, Any], entity: Entity) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name == "id":
            continue
        prop = entity.properties.get(name)
        if prop is None:
            raise RecordFault(_unknown_field(name, entity))
        values[name] = None if value is None else _value(value, prop.type, f"{entity.name}.{name}")
    return values


def _unknown_field(name: str, entity: Entity) -> str:
    if name in RESERVED_FIELDS:
        return f"'{name}' is a reserved name and cannot be loaded"
    if name in ("src", "dst") and isinstance(entity, EdgeType):
        return f"'{name}' does not belong into the data of an edge; use 'from' and 'to' beside 'edge'"
    return f"unknown field '{name}' of {entity.name}{did_you_mean(name, entity.properties)}"


def read_list(text: str, kind: PropertyType) -> list[Any]:
    """A list or vector from its JSON text, judged as in a record; dates and times come as texts.

    Raises:
        RecordFault: the text is no such list.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RecordFault(f"not JSON: {error}") from None
    found: list[Any] = _value(value, kind, "the value")
    return found


def _value(value: object, kind: PropertyType, what: str) -> Any:
    if kind.is_list or kind.scalar is Scalar.VECTOR:
        if not isinstance(value, list):
            raise RecordFault(f"{what}: expected an array for {kind}, found {_kind_of(value)}")
        if any(item is None for item in value):
            raise RecordFault(f"{what}: a list must not contain null")
        item = PropertyType(Scalar.F64 if kind.scalar is Scalar.VECTOR else kind.scalar)
        return [_plain(each, item, what) for each in value]
    return _plain(value, kind, what)


def _plain(value: object, kind: PropertyType, what: str) -> Any:
    scalar = kind.scalar
    if scalar in (Scalar.STRING, Scalar.BLOB):
        return _text(value, what)
    if scalar is Scalar.BOOL:
        if not isinstance(value, bool):
            raise RecordFault(f"{what}: expected true or false, found {_kind_of(value)}")
        return value
    if scalar in FLOATS:
        if value in _NOT_FINITE:
            raise RecordFault(f"{what}: {not_finite(value, scalar)}")
        return _number(value, what)
    if scalar in INTEGER_RANGES:
        whole = _integer(value, what)
        low, high = INTEGER_RANGES[scalar]
        if not low <= whole <= high:
            raise RecordFault(f"{what}: {out_of_range(whole, scalar)}")
        return whole
    return value if isinstance(value, str) else _time_text(value, scalar, what)


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordFault(f"{what}: expected a number, found {_kind_of(value)}")
    try:
        return float(value)
    except OverflowError:
        raise RecordFault(f"{what}: {value} is out of range for F64") from None


def _integer(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordFault(f"{what}: expected an integer, found {_kind_of(value)}")
    return value


def _time_text(value: object, scalar: Scalar, what: str) -> str:
    """A day or millisecond number as the text of the same instant, so that one column never mixes both forms."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordFault(f"{what}: expected a {scalar} text or an integer, found {_kind_of(value)}")
    if scalar is Scalar.DATE:
        if not DAY_MIN <= value <= DAY_MAX:
            raise RecordFault(f"{what}: {value} is not a day number between the years 1 and 9999")
        return date.fromordinal(value + _EPOCH_DAY).isoformat()
    if not MILLIS_MIN <= value <= MILLIS_MAX:
        raise RecordFault(f"{what}: {value} ms is not between the years 1 and 9999")
    return (_EPOCH + timedelta(milliseconds=value)).isoformat(timespec="milliseconds")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise RecordFault(f"{what}: expected a string, found {_kind_of(value)}")
    fault = text_fault(value)
    if fault is not None:
        raise RecordFault(f"{what}: {fault}")
    return value


def _kind_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the string {json.dumps(value[:40], ensure_ascii=False)}"
    return "an array" if isinstance(value, list) else "an object"
