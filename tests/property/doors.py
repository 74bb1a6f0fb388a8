"""Every way a value gets into a graph and out of it, and values that are hard on all of them.

`random_rows` draws rows of `Thing`, which has a property of every type, as plain Python values: text, numbers, `date`,
UTC `datetime`, bytes and lists. A door in takes such rows to a graph, a door out gives the rows of a graph back; what
goes in through any door comes out of every other as the same rows.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.graph import Graph

Row = dict[str, Any]
PLAIN = [scalar for scalar in Scalar if scalar not in (Scalar.VECTOR, Scalar.BLOB, Scalar.PATH)]
DIMENSION = 3
MOMENT = pa.timestamp("ms", tz="UTC")


def _columns() -> dict[str, PropertyType]:
    found = {"key": PropertyType(Scalar.STRING)}
    for scalar in PLAIN:
        found[f"one_{scalar.lower()}"] = PropertyType(scalar)
        found[f"maybe_{scalar.lower()}"] = PropertyType(scalar, nullable=True)
        found[f"list_{scalar.lower()}"] = PropertyType(scalar, is_list=True)
        found[f"maybe_list_{scalar.lower()}"] = PropertyType(scalar, nullable=True, is_list=True)
    found["one_vector"] = PropertyType(Scalar.VECTOR, dimension=DIMENSION)
    found["maybe_vector"] = PropertyType(Scalar.VECTOR, nullable=True, dimension=DIMENSION)
    return found


COLUMNS = _columns()
SCHEMA = "node Thing {\n" + "\n".join(f"  {name}: {kind}" for name, kind in COLUMNS.items()) + "\n  @key(key)\n}\n"
BLOBS = "node Thing { key: String @key  maybe_blob: Blob? }\n"
READ = "query read() { match { $t: Thing } return { " + ", ".join(f"$t.{name} as {name}" for name in COLUMNS) + " } }"

_INTEGER_ENDS = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
_TEXTS = [
    *("", " ", "null", "NaN", "true", "0", "-0.0", '"', "'", "''", "\\", "\\n", "a,b", "a\nb", "a\r\nb", "\t", "\x00"),
    *("a\x00b", "\x1f\x7f", "é", "e\u0301", "\u2028", "\ufeff", "𝄞", "\U0010ffff", "ß" * 300, "`", "{}", "[1]"),
    *("base64:AQID", "$x", "@key", ";--", "\U0001f469\u200d\U0001f467"),
]
_FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 1e16, 1e-7, 123456789.125, 2.0**53, 2.0**24 + 1]
_F64 = [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308, math.pi, 1e300]
_F32 = [float(np.float32(value)) for value in (1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38, math.pi, 0.1)]
_DATES = [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2000, 2, 29)]
_DATES += [dt.date(1582, 10, 14), dt.date(1582, 10, 15), dt.date(1900, 3, 1)]
_MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_000),
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
    dt.datetime(1582, 10, 15, 12),
    dt.datetime(1900, 1, 1, 0, 0, 0, 7_000),
    dt.datetime(2016, 12, 31, 23, 59, 59),
    dt.datetime(2026, 3, 29, 1, 30, 0, 1_000),
    dt.datetime(2026, 10, 25, 1, 30),
]


# --- values ----------------------------------------------------------------------------------------------------------


def random_rows(count: int, *, seed: int) -> list[Row]:
    """Rows of `Thing`; the ends of every range are among them as soon as there are some dozens.

    Any text is a key, the empty one too; with some hundred rows all hard ones are among the keys.
    """
    draw = random.Random(seed)
    keys = [f"k{number:05d}{draw.choice(['', ' ', 'é', '𝄞', chr(39), chr(34)])}" for number in range(count)]
    hard = _TEXTS[: count // 2]
    keys[len(keys) - len(hard) :] = hard
    return [{"key": key, **_random_values(draw)} for key in keys]


def _random_values(draw: random.Random) -> Row:
    return {name: random_value(kind, draw) for name, kind in COLUMNS.items() if name != "key"}


def random_value(kind: PropertyType, draw: random.Random) -> Any:
    """A value of a type, null now and then where that is allowed."""
    if kind.nullable and draw.random() < 0.2:
        return None
    if kind.scalar is Scalar.VECTOR:
        return [_scalar(Scalar.F32, draw) for _ in range(DIMENSION)]
    if kind.is_list:
        return [_scalar(kind.scalar, draw) for _ in range(draw.choice([0, 0, 1, 2, 5]))]
    return _scalar(kind.scalar, draw)


def _scalar(scalar: Scalar, draw: random.Random) -> Any:
    if scalar is Scalar.STRING:
        return draw.choice(_TEXTS) + (draw.choice(_TEXTS) if draw.random() < 0.3 else "")
    if scalar is Scalar.BOOL:
        return draw.random() < 0.5
    if scalar in _INTEGER_ENDS:
        low, high = _INTEGER_ENDS[scalar]
        ends = [low, low + 1, high, high - 1, 0, 1, min(high, 2**53 + 1), min(high, 2**63), high // 2 + 1]
        return draw.choice([*ends, draw.randint(low, high)])
    if scalar in (Scalar.F32, Scalar.F64):
        known = _F32 if scalar is Scalar.F32 else _F64
        value = draw.choice([*_FLOATS, *known, draw.uniform(-1e6, 1e6), draw.gauss(0, 1)])
        return float(np.float32(value)) if scalar is Scalar.F32 else value
    if scalar is Scalar.DATE:
        return draw.choice([*_DATES, dt.date.fromordinal(draw.randint(1, dt.date.max.toordinal()))])
    millis = draw.randint(-62135596800000, 253402300799999)
    drawn = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=millis)
    return draw.choice([*_MOMENTS, drawn]).replace(tzinfo=dt.UTC)


def canonical(value: Any) -> Any:
    """A form in which equal values are the same and others are not: the two zeros differ, and so do 1 and 1.0."""
    if isinstance(value, list | tuple | np.ndarray):
        return [canonical(item) for item in value]
    if isinstance(value, float | np.floating):
        return ("float", struct.pack("<d", float(value)))
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, dt.datetime):
        assert value.tzinfo is not None, "a moment without a time zone"
        return ("moment", value.astimezone(dt.UTC).isoformat())
    return value


def by_key(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows in canonical form, by key; a property a row does not mention is null."""
    found = {row["key"]: {name: canonical(row.get(name)) for name in COLUMNS} for row in rows}
    assert len(found) == len(rows)
    return found


def check_same(found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> None:
    """Compare rows value by value, and name the first that differs."""
    left, right = by_key(found), by_key(wanted)
    assert left.keys() == right.keys()
    for key, row in right.items():
        for name, value in row.items():
            assert left[key][name] == value, f"{key}.{name}"


# --- text forms ------------------------------------------------------------------------------------------------------

_OFFSETS = [dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30)), dt.timezone(-dt.timedelta(hours=11))]


def moment_text(value: dt.datetime, draw: random.Random) -> str:
    """A moment with an offset, where the year allows one; some with a blank for the `T`, some without an offset."""
    zone = draw.choice(_OFFSETS) if 1 < value.year < 9999 else dt.UTC
    text = value.astimezone(zone).isoformat(timespec="milliseconds")
    if zone is dt.UTC:
        text = text.replace("+00:00", draw.choice(["Z", "+00:00", ""]))
    return text.replace("T", draw.choice(["T", " "]))


def json_value(value: Any, draw: random.Random) -> Any:
    """What JSON has for a value: dates as text or, alone, as numbers of days."""
    if isinstance(value, list):
        return [json_value(item, draw) for item in value]
    if isinstance(value, dt.datetime):
        return moment_text(value, draw)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode()
    return value


def _csv_cell(value: Any, draw: random.Random) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        text = json.dumps(json_value(value, draw), ensure_ascii=draw.random() < 0.5)
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, float):
        text = repr(value)
    else:
        text = str(json_value(value, draw))
    return '"' + text.replace('"', '""') + '"'


def literal(value: Any) -> str | None:
    """A value as the query language writes it; None where it has no literal: negative numbers and exponents."""
    if isinstance(value, list):
        items = [literal(item) for item in value]
        return None if any(item is None for item in items) else f"[{', '.join(map(str, items))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if 0 <= value < 2**63 else None
    if isinstance(value, float):
        text = repr(value)
        return None if "e" in text or text.startswith("-") else text
    if isinstance(value, dt.datetime):
        return f'datetime("{value.isoformat(timespec="milliseconds").replace("+00:00", "Z")}")'
    if isinstance(value, dt.date):
        return f'date("{value.isoformat()}")'
    escaped = (
        value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return f'"{escaped}"'


# --- Arrow forms -----------------------------------------------------------------------------------------------------

_ARROW: dict[Scalar, list[pa.DataType]] = {
    Scalar.STRING: [pa.string(), pa.large_string(), pa.string_view()],
    Scalar.BOOL: [pa.bool_()],
    Scalar.I32: [pa.int32(), pa.int64()],
    Scalar.I64: [pa.int64(), pa.decimal128(38)],
    Scalar.U32: [pa.uint32(), pa.int64(), pa.uint64()],
    Scalar.U64: [pa.uint64(), pa.decimal128(20), pa.decimal256(40)],
    Scalar.F32: [pa.float32(), pa.float64()],
    Scalar.F64: [pa.float64()],
    Scalar.DATE: [pa.date32(), pa.date64(), pa.timestamp("s")],
    Scalar.DATETIME: [MOMENT, pa.timestamp("ms"), pa.timestamp("us", tz="Asia/Kolkata"), pa.timestamp("us")],
}


def arrow_table(rows: Sequence[Row], draw: random.Random | None = None) -> pa.Table:
    """The rows as an Arrow table, in the types of results or, with `draw`, in any that holds the values."""
    columns = {}
    for name, kind in COLUMNS.items():
        values = [row[name] for row in rows]
        if kind.scalar is Scalar.VECTOR:
            wide = draw is not None and draw.random() < 0.5
            chosen = pa.list_(pa.float64()) if wide else pa.list_(pa.field("item", pa.float32()), DIMENSION)
        else:
            item = _ARROW[kind.scalar][0] if draw is None else draw.choice(_ARROW[kind.scalar])
            chosen = pa.list_(pa.field("item", item)) if kind.is_list else item
        columns[name] = _array(values, kind, chosen)
    return pa.table(columns)


def _array(values: list[Any], kind: PropertyType, chosen: pa.DataType) -> pa.Array:
    if kind.scalar is not Scalar.DATE:
        return pa.array(values, chosen)
    days = pa.array(values, pa.list_(pa.date32()) if kind.is_list else pa.date32())
    return days.cast(chosen)


# --- doors in --------------------------------------------------------------------------------------------------------

DoorIn = Callable[[Graph, list[Row], Path, random.Random], None]


def _json_lines(graph: Graph, rows: list[Row], folder: Path, draw: random.Random) -> None:
    with open(folder / "rows.jsonl", "w", encoding="utf-8", newline="") as file:
        for row in rows:
            shown = {name: value for name, value in row.items() if value is not None or draw.random() < 0.5}
            data = {name: json_value(value, draw) for name, value in shown.items()}
            file.write(json.dumps({"type": "Thing", "data": data}, ensure_ascii=draw.random() < 0.5, allow_nan=True))
            file.write("\n")
    graph.load(folder / "rows.jsonl", mode="overwrite", engine="local")


def _numbered_json_lines(graph: Graph, rows: list[Row], folder: Path, draw: random.Random) -> None:
    """Days and milliseconds as numbers."""

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(item) for item in value]
        if isinstance(value, dt.datetime):
            return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
        return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value

    lines = [{"type": "Thing", "data": {name: number(value) for name, value in row.items()}} for row in rows]
    text = "\n".join(json.dumps(line, allow_nan=True) for line in lines)
    graph.load(text.encode(), mode="overwrite", engine="local")


def _records(graph: Graph, rows: list[Row], folder: Path, draw: random.Random) -> None:
    graph.load([{"type": "Thing", "data": row} for row in rows], mode="overwrite", engine="local")


def _arrow(graph: Graph, rows: list[Row], folder: Path, draw: random.Random) -> None:
    graph.load({"Thing": arrow_table(rows, draw)}, mode="overwrite", engine="local")


def _parquet(graph: Graph, rows: list[Row], folder: Path, draw: random.Random) -> None:
    pq.write_table(arrow_table(rows, draw), folder / "rows.parquet", row_group_size=draw.choice([7, 1000]))
    graph.load({"Thing": str(folder / "rows.parquet")}, mode="overwrite", engine="local")


def write_csv(rows: list[Row], path: Path, draw: random.Random) -> None:
    """The rows as CSV: an empty cell is null, a quoted one is empty text."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(",".join(COLUMNS) + "\n")
        for row in rows:
            file.write(",".join(_csv_cell(row[name], draw) for name in COLUMNS) + "\n")


def _csv(graph: Graph, rows: list[Row], folder: Path, draw: random.Random) -> None:
    write_csv(rows, folder / "rows.csv", draw)
    graph.load({"Thing": str(folder / "rows.csv")}, mode="overwrite", engine="local")


def _pandas(graph: Graph, rows: list[Row], folder: Path, draw: random.Random) -> None:
    frame = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in COLUMNS})
    table = pa.Table.from_pandas(frame, schema=arrow_table(rows).schema, preserve_index=False)
    graph.load({"Thing": table}, mode="overwrite", engine="local")


def _parameters(graph: Graph, rows: list[Row], folder: Path, draw: random.Random) -> None:
    declared = ", ".join(f"${name}: {kind}" for name, kind in COLUMNS.items())
    assigned = ", ".join(f"{name}: ${name}" for name in COLUMNS)
    text = f"query add({declared}) {{ insert Thing {{ {assigned} }} }}"
    for row in rows:
        given = row if draw.random() < 0.5 else {name: json_value(value, draw) for name, value in row.items()}
        graph.mutate(text, params={name: value for name, value in given.items() if value is not None})


def _literals(graph: Graph, rows: list[Row], folder: Path, draw: random.Random) -> None:
    """Literals where the language has them, parameters for the other values."""
    for row in rows:
        texts = {name: literal(value) for name, value in row.items() if value is not None}
        others = [name for name, text in texts.items() if text is None]
        declared = ", ".join(f"${name}: {COLUMNS[name]}" for name in others)
        assigned = ", ".join(f"{name}: {text or '$' + name}" for name, text in texts.items())
        text = f"query add({declared}) {{ insert Thing {{ {assigned} }} }}"
        graph.mutate(text, params={name: row[name] for name in others})


LOADS: dict[str, DoorIn] = {
    "json lines": _json_lines,
    "json lines with numbers for dates": _numbered_json_lines,
    "records": _records,
    "arrow": _arrow,
    "parquet": _parquet,
    "csv": _csv,
    "pandas": _pandas,
}
MUTATIONS: dict[str, DoorIn] = {"parameters": _parameters, "literals": _literals}


# --- doors out -------------------------------------------------------------------------------------------------------


def result_rows(graph: Graph) -> list[Row]:
    """A result as plain Python, its texts and numbers read back to values."""
    return [{name: _from_json(value, COLUMNS[name]) for name, value in row.items()} for row in graph.query(READ)]


def _from_json(value: Any, kind: PropertyType) -> Any:
    if isinstance(value, list):
        item = PropertyType(Scalar.F32 if kind.scalar is Scalar.VECTOR else kind.scalar)
        return [_from_json(each, item) for each in value]
    if value is not None and kind.scalar is Scalar.DATETIME:
        assert value[-5] == "."
        assert value[-1] == "Z"
        return dt.datetime.fromisoformat(value)
    if value is not None and kind.scalar is Scalar.DATE:
        return dt.date.fromisoformat(value) if isinstance(value, str) else dt.date(1970, 1, 1) + dt.timedelta(value)
    # An export writes the shortest text that means the same F32.
    return float(np.float32(value)) if value is not None and kind.scalar is Scalar.F32 else value


def pandas_rows(graph: Graph) -> list[Row]:
    """A result as pandas gives it."""
    frame = graph.query(READ).to_pandas()
    return [
        {name: _from_pandas(value, COLUMNS[name]) for name, value in zip(frame.columns, row, strict=True)}
        for row in frame.itertuples(index=False, name=None)
    ]


def _from_pandas(value: Any, kind: PropertyType) -> Any:
    if isinstance(value, list | np.ndarray):
        return [_from_pandas(item, PropertyType(kind.scalar)) for item in value]
    if value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    if kind.scalar is Scalar.DATETIME:
        moment = pd.Timestamp(value)
        return (moment.tz_localize("UTC") if moment.tzinfo is None else moment).to_pydatetime()
    if kind.scalar is Scalar.DATE and not isinstance(value, dt.date):
        return pd.Timestamp(value).to_pydatetime().date()
    if kind.scalar is Scalar.DATE and isinstance(value, pd.Timestamp):
        return value.to_pydatetime().date()
    if kind.scalar is Scalar.BOOL:
        return bool(value)
    # A column of integers with nulls comes as floats, as pandas has it; those of 64 bits are compared as such.
    return value


def exported_rows(lines: str) -> list[Row]:
    """The rows of exported JSON lines, read as any other program would."""
    rows = []
    for line in lines.split("\n"):
        if line:
            data = json.loads(line, parse_constant=_no_json)["data"]
            rows.append({name: _from_json(data[name], kind) for name, kind in COLUMNS.items()})
    return rows


def _no_json(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")
