"""Tables of a snapshot, and fragments that are only staged, as DataFrames.

Every DataFrame here is a list of task numbers that executors turn into Arrow batches read straight from Lance: rows
enter the JVM once, in the columns that were asked for. Spark's side of Arrow knows neither unsigned integers nor
fixed-size lists, so such columns travel as the next wider type Spark has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.ingest.stage import StagedFragment
from omnigraph.engine.ingest.staged import OFFSET_BITS, POSITION, ROW_ADDRESS, ROW_ID, fragment_groups
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.storage.fragments import is_blob, read_fragment
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.values.blobs import refuse_references
from omnigraph.pipeline.tasks import task_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


Batches = Iterator[pa.RecordBatch]


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
    with_address: bool = False,
    names: Sequence[str] | None = None,
) -> DataFrame:
    """Columns of a published table; with `with_address` also where each row lies and its row id.

    `names` are what the columns are called in the frame, by default as they are stored.
    """
    handle = table.open()
    groups = fragment_groups(handle)
    stored = stored_schema(handle, columns, with_address=with_address)
    called = [*(names or columns), *stored.names[len(columns) :]]
    schema = spark_schema(pa.schema([field.with_name(name) for field, name in zip(stored, called, strict=True)]))

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = read_group(table, columns, groups[number], filter=None, with_address=with_address)
                yield from (rows.rename_columns(called) for rows in found)

    if not groups:
        return session.createDataFrame([], schema)
    return task_numbers(session, len(groups)).mapInArrow(read, schema)


def read_group(
    table: TableAt, columns: Sequence[str], fragments: Sequence[int], *, filter: str | None, with_address: bool
) -> Batches:
    """The rows of some fragments, in types Spark can hold."""
    handle = table.open()
    plain = stored_schema(handle, columns)
    blobs = [name for name in columns if is_blob(handle.schema.field(name))]
    refuse_references(handle, blobs, table.path, filter, fragment_ids=list(fragments))
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
    *,
    names: Sequence[str] | None = None,
) -> DataFrame:
    """Columns of staged rows with `POSITION`: the fragment's number in the upper bits, the row's in the lower.

    `names` are what the columns are called in the frame, by default as they are stored.
    """
    called = list(names or columns)
    fields = [stored.field(name).remove_metadata().with_name(new) for name, new in zip(columns, called, strict=True)]
    schema = spark_schema(pa.schema([*fields, pa.field(POSITION, pa.int64(), nullable=False)]))
    texts = [fragment.text for fragment in fragments]

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                position = number << OFFSET_BITS
                for rows in read_fragment(uri, texts[number], columns):
                    places = pa.array(np.arange(position, position + rows.num_rows, dtype=np.int64))
                    position += rows.num_rows
                    wide = to_spark(rows.select(list(columns)))
                    yield pa.RecordBatch.from_arrays([*wide.columns, places], names=[*called, POSITION])

    if not texts:
        return session.createDataFrame([], schema)
    return task_numbers(session, len(texts)).mapInArrow(read, schema)
