"""Tables of a snapshot, and fragments that are only staged, as DataFrames.

Every DataFrame here is a list of task numbers that executors turn into Arrow batches read straight from Lance: rows
enter the JVM once, in the columns that were asked for. Spark's side of Arrow knows neither unsigned integers nor
fixed-size lists, so such columns travel as the next wider type Spark has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.manifest.records import TableEntry
from omnigraph.engine.storage.fragments import is_blob, read_fragment
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.tables import TableStore
from omnigraph.pipeline.stage import StagedFragment, task_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROW_ID, ROW_ADDRESS, POSITION = "_rowid", "_rowaddr", "_position"
TASK_ROWS = 2_000_000
OFFSET_BITS = 32

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class TableAt:
    """One table at one version, as executors open it."""

    root: str
    path: str
    branch: str | None
    version: int
    tag: str | None = None
    storage_options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, root: str, entry: TableEntry) -> TableAt:
        """The table an entry of a snapshot publishes."""
        return cls(root, entry.path, entry.branch, entry.version, entry.e_tag)

    def open(self) -> TableHandle:
        """The table, opened once per process and version."""
        return _opened(self)


@lru_cache(maxsize=32)
def _opened(table: TableAt) -> TableHandle:
    store = TableStore.at(table.root, storage_options=dict(table.storage_options) or None)
    return store.open_pinned(table.path, branch=table.branch, version=table.version, tag=table.tag)


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark can hold in place of `kind`."""
    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}
    if kind in wider:
        return wider[kind]
    if pa.types.is_date64(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(spark_type(kind.value_type))
    return kind


def to_spark(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """The same rows in types Spark can hold."""
    fields = [pa.field(field.name, spark_type(field.type), field.nullable) for field in batch.schema]
    arrays = [_converted(column, field.type) for column, field in zip(batch.columns, fields, strict=True)]
    return type(batch).from_arrays(arrays, schema=pa.schema(fields))


def _converted(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    if pa.types.is_date64(column.type):
        return column.cast(pa.timestamp("ms")).cast(pa.timestamp("us")).cast(kind)
    return column.cast(kind)


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of rows converted by `to_spark`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    found: StructType = from_arrow_schema(pa.schema([pa.field(f.name, spark_type(f.type), f.nullable) for f in schema]))
    return found


def fragment_groups(handle: TableHandle, rows: int = TASK_ROWS) -> list[list[int]]:
    """Fragments gathered into tasks: large ones alone, small ones together."""
    groups: list[list[int]] = []
    filled = rows
    for fragment in handle.fragments():
        if filled + fragment.live_rows > rows:
            groups.append([])
            filled = 0
        groups[-1].append(fragment.id)
        filled += fragment.live_rows
    return groups


def stored_schema(handle: TableHandle, columns: Sequence[str], *, with_address: bool = False) -> pa.Schema:
    """The schema a scan of these columns has; blobs are read as bytes."""
    fields = []
    for name in columns:
        field = handle.schema.field(name)
        plain = pa.field(name, pa.large_binary(), field.nullable) if is_blob(field) else field.remove_metadata()
        fields.append(plain)
    if with_address:
        fields += [pa.field(ROW_ADDRESS, pa.int64()), pa.field(ROW_ID, pa.int64())]
    return pa.schema(fields)


def table_frame(
    session: SparkSession,
    table: TableAt,
    columns: Sequence[str],
    *,
    filter: str | None = None,
    with_address: bool = False,
) -> DataFrame:
    """Columns of a published table; with `with_address` also where each row lies and its row id."""
    handle = table.open()
    groups = fragment_groups(handle)
    schema = spark_schema(stored_schema(handle, columns, with_address=with_address))

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_group(table, columns, groups[number], filter=filter, with_address=with_address)

    if not groups:
        return session.createDataFrame([], schema)
    return task_numbers(session, len(groups)).mapInArrow(read, schema)


def read_group(
    table: TableAt, columns: Sequence[str], fragments: Sequence[int], *, filter: str | None, with_address: bool
) -> Batches:
    """The rows of some fragments, in types Spark can hold."""
    handle = table.open()
    plain = stored_schema(handle, columns)
    reader = handle.scan_batches(
        columns,
        filter,
        fragment_ids=list(fragments),
        with_row_id=with_address,
        with_row_address=with_address,
        blob_bytes=True,
    )
    for batch in reader:
        arrays = [batch.column(name).cast(plain.field(name).type) for name in columns]
        fields = list(plain)
        if with_address:
            arrays += [batch.column(name).cast(pa.int64()) for name in (ROW_ADDRESS, ROW_ID)]
            fields += [pa.field(ROW_ADDRESS, pa.int64()), pa.field(ROW_ID, pa.int64())]
        yield to_spark(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))


def staged_frame(
    session: SparkSession,
    fragments: Sequence[StagedFragment],
    uri: str,
    stored: pa.Schema,
    columns: Sequence[str],
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Columns of staged rows with `_position`: the fragment's number in the upper bits, the row's in the lower."""
    fields = [stored.field(name).remove_metadata() for name in columns]
    schema = spark_schema(pa.schema([*fields, pa.field(POSITION, pa.int64(), nullable=False)]))
    texts = [fragment.text for fragment in fragments]

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                position = number << OFFSET_BITS
                for rows in read_fragment(uri, texts[number], columns, storage_options=storage_options):
                    places = pa.array(np.arange(position, position + rows.num_rows, dtype=np.int64))
                    position += rows.num_rows
                    wide = to_spark(rows.select(list(columns)))
                    yield pa.RecordBatch.from_arrays([*wide.columns, places], names=[*wide.schema.names, POSITION])

    if not texts:
        return session.createDataFrame([], schema)
    return task_numbers(session, len(texts)).mapInArrow(read, schema)


def split_position(position: int) -> tuple[int, int]:
    """The fragment's number and the row's offset of a `_position`."""
    return position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1)
