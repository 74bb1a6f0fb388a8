"""A snapshot as load records: one JSON line per entity, tables in key order, rows by id.

Lines are put together column by column on Arrow, and large tables are read in ranges of ids, so that memory stays
bounded and the output starts at once. An export loads back unchanged.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.keys import json_texts
from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.literals import literal
from omnigraph.engine.storage.outlet import outlet
from omnigraph.engine.values.blobs import read_blobs
from omnigraph.engine.values.entities import GIVEN, Entity, row_schema
from omnigraph.errors import InputError
from omnigraph.ids import TableKey

RANGE_ROWS = 262_144
BATCH_ROWS = 16_384
BATCH_BYTES = 16 << 20
WRITTEN_LINES = 4_096


def export_lines(
    catalog: Catalog, snapshot: Snapshot, *, types: Sequence[str] = (), tables: Sequence[str] = ()
) -> Iterator[str]:
    """The lines of an export without line ends; no filter means every table.

    Raises:
        InputError: a type or table key is not in the schema.
    """
    chosen = chosen_tables(catalog, types, tables)
    return _lines(catalog, snapshot, chosen)


def _lines(catalog: Catalog, snapshot: Snapshot, chosen: Iterable[TableKey]) -> Iterator[str]:
    for key in chosen:
        if snapshot.entry(key).row_count:
            for lines in table_lines(snapshot.open(key), catalog.tables[key]):
                yield from lines


def table_lines(handle: TableHandle, entity: Entity) -> Iterator[list[str]]:
    """The lines of one table by id, some at a time."""
    for rows in table_rows(handle, entity):
        yield from line_runs(entity, rows)


def line_runs(entity: Entity, rows: pa.Table) -> Iterator[list[str]]:
    """The load records of some rows, some at a time: a line joins all columns, and the lines of a run are one array."""
    for piece in wide.pieces(rows, BATCH_ROWS, BATCH_BYTES):
        yield json_lines(entity, piece).to_pylist()


def chosen_tables(catalog: Catalog, types: Sequence[str], tables: Sequence[str]) -> list[TableKey]:
    """The tables of an export in order: those of the types and keys named, or all.

    Raises:
        InputError: one of them is not in the schema.
    """
    if not types and not tables:
        return list(catalog.tables)
    wanted: set[str] = set()
    for name in types:
        found = [key for key, entity in catalog.tables.items() if entity.name == name]
        if not found:
            raise InputError(f"the schema has no type '{name}'")
        wanted.update(found)
    for key in tables:
        if key not in catalog.tables:
            raise InputError(f"the graph has no table '{key}'")
        wanted.add(key)
    return [key for key in catalog.tables if key in wanted]


def table_rows(handle: TableHandle, entity: Entity) -> Iterator[pa.Table]:
    """The rows by id, in pieces of bounded size."""
    ids = wide.one_array(handle.scan(["id"]).column("id"))
    if len(ids) <= RANGE_ROWS:
        yield by_id(read_rows(handle, entity, None))
        return
    ids = wide.take(ids, pc.sort_indices(ids))
    starts = [ids[at].as_py() for at in range(0, len(ids), RANGE_ROWS)]
    for position, start in enumerate(starts):
        limits = [f"id >= {literal(start)}"] if position else []
        if position + 1 < len(starts):
            limits.append(f"id < {literal(starts[position + 1])}")
        yield by_id(read_rows(handle, entity, " AND ".join(limits)))


def by_id(rows: pa.Table) -> pa.Table:
    """The rows in the order of their ids."""
    return wide.take_rows(rows, pc.sort_indices(rows.column("id")))


def read_rows(handle: TableHandle, entity: Entity, limits: str | None) -> pa.Table:
    """The rows a condition selects, blobs in the text form they have in load records."""
    blobs = blob_columns(entity)
    # An index would give the row ids of a large part of the table, and finding these costs more than reading all ids.
    rows = handle.scan(row_schema(entity).names, limits, with_row_id=bool(blobs), use_scalar_index=False)
    for name in blobs:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, _blob_texts(handle, name, rows))
    return rows.drop_columns(["_rowid"]) if blobs else rows


def _blob_texts(handle: TableHandle, name: str, rows: pa.Table) -> pa.Array:
    """Inline blobs as `base64:…`, external ones as their URI."""
    texts: list[str | None] = []
    for blob in read_blobs(handle, name, rows.column("_rowid").to_numpy()).to_pylist():
        inline = None if blob is None else blob["data"]
        if inline is not None:
            texts.append("base64:" + base64.b64encode(inline).decode("ascii"))
        else:
            texts.append(None if blob is None else blob["uri"])
    return pa.array(texts, pa.string())


def check_target(root: str, path: str | os.PathLike[str]) -> None:
    """Refuse to write among the files of the graph itself, where an export could replace one of them.

    Raises:
        InputError: the path is in the graph's own folder.
    """
    if layout.lies_below(os.fspath(path), root):
        raise InputError(f"'{os.fspath(path)}' is in the folder of the graph itself: export to a place outside of it")


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> int:
    """Write lines to a file, which appears whole or not at all, or through a device or FIFO; returns how many.

    Raises:
        InputError: it cannot be written.
    """
    count = 0
    with outlet(path) as stream:
        held = iter(lines)
        while piece := list(islice(held, WRITTEN_LINES)):
            stream.write(("\n".join(piece) + "\n").encode())
            count += len(piece)
    return count


# --- JSON, a column at a time ----------------------------------------------------------------------------------------


def json_lines(entity: Entity, rows: pa.Table) -> pa.Array:
    """The load record of every row, as text; a record of an update has only what is given."""
    if isinstance(entity, EdgeType):
        parts: list[pa.Array | str] = [f'{{"edge":{json.dumps(entity.name)},"from":', _json(rows.column("src"))]
        parts += [',"to":', _json(rows.column("dst")), ',"data":{"id":', _json(rows.column("id"))]
    else:
        parts = [f'{{"type":{json.dumps(entity.name)},"data":{{"id":', _json(rows.column("id"))]
    for name in entity.properties:
        member = [f",{json.dumps(name)}:", _json(rows.column(name))]
        if entity.partial:
            given = wide.one_array(rows.column(f"{GIVEN}{name}"))
            member = [pc.if_else(given, pc.binary_join_element_wise(*member, ""), "")]
        parts += member
    parts.append("}}")
    return pc.binary_join_element_wise(*parts, "")


def _json(column: pa.ChunkedArray) -> pa.Array:
    values = wide.one_array(column)
    texts = _list_texts(values) if _is_list(values.type) else _plain_texts(values)
    return pc.fill_null(texts, "null") if texts.null_count else texts


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind))


def _list_texts(values: pa.Array) -> pa.Array:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0), dtype=np.int64)
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    items = pc.fill_null(_plain_texts(values.flatten()), "null")
    nulls = pc.is_null(values) if values.null_count else None
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items, mask=nulls), ",")
    return pc.binary_join_element_wise("[", joined, "]", "")


def _plain_texts(values: pa.Array) -> pa.Array:
    """Every value as JSON text; nulls stay null."""
    kind = values.type
    if pa.types.is_string(kind):
        return json_texts(values)
    if pa.types.is_floating(kind):
        return _float_texts(values)
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.string())
    if pa.types.is_date64(kind):
        moments = pc.strftime(values.view(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%SZ")
        return pc.binary_join_element_wise('"', moments, '"', "")
    return values.cast(pa.string())


def _float_texts(values: pa.Array) -> pa.Array:
    """Numbers with a point or exponent; what is not finite, and has no JSON number, as text."""
    texts = values.cast(pa.string())
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    if pc.all(pc.is_finite(values), min_count=0).as_py():
        return texts
    for written, text in (("nan", '"NaN"'), ("-nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
        texts = pc.if_else(pc.equal(texts, written), text, texts)
    return texts
