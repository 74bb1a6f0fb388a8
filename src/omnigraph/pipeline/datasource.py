"""`spark.read.format("omnigraph")` and its counterpart for writing.

Spark creates these objects in processes of its own, so they know a graph by its location and open it themselves. A
read is pinned to one version when it is planned. A write stages on executors and commits in one place, through the same
validator and transaction as every other write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.engine.ingest.entities import entity_of
from omnigraph.engine.ingest.staged import fragment_groups
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import InputError
from omnigraph.ids import MAIN, parse_branch
from omnigraph.pipeline.filters import condition
from omnigraph.pipeline.frames import read_group, spark_schema, stored_schema
from omnigraph.pipeline.options import location, open_context, type_option
from omnigraph.pipeline.sink import GraphWriter

FORMAT = "omnigraph"
PARTITION_ROWS = 1_000_000


def register(session: SparkSession) -> None:
    """Make the format known to a session; doing so again changes nothing."""
    # Without this setting Spark refuses every reader that takes conditions, also in sessions users made.
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.dataSource.register(OmnigraphSource)


class OmnigraphSource(DataSource):  # type: ignore[misc]
    """Options: the location (`load(path)`), `type`, and optionally `branch`, `at` or `version`, and `columns`."""

    @classmethod
    def name(cls) -> str:
        """The name after `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the type, as the option `columns` leaves them."""
        target = _Target.of(self.options)
        handle = target.table(read_only=True).open()
        return spark_schema(stored_schema(handle, target.columns or handle.schema.names))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader pinned to the version the options name, or to the newest one now."""
        table = _Target.of(self.options).table(read_only=True)
        unknown = set(schema.fieldNames()) - set(table.open().schema.names)
        if unknown:
            raise InputError(f"'{min(unknown)}' is not a column of {type_option(self.options)}")
        return _Reader(table, to_arrow_schema(schema, timezone="UTC"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer; `mode` in the options may say `merge`, which Spark has no word for."""
        return GraphWriter(dict(self.options), schema.names, overwrite)


class _Target(Struct, frozen=True):
    """What the options name."""

    root: str
    type_name: str
    branch: str
    at: str | None
    columns: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Target:
        return cls(
            location(options),
            type_option(options),
            parse_branch(options.get("branch") or MAIN),
            options.get("version") or options.get("at"),
            tuple(name for name in (options.get("columns") or "").split(",") if name),
        )

    def table(self, *, read_only: bool) -> TableAt:
        context = open_context(self.root, read_only=read_only)
        entry = self.snapshot(context).entry(entity_of(self.type_name, context.catalog).table_key)
        unknown = set(self.columns) - set(TableAt.of(self.root, entry).open().schema.names)
        if unknown:
            raise InputError(f"'{min(unknown)}' is not a column of {self.type_name}")
        return TableAt.of(self.root, entry)

    def snapshot(self, context: GraphContext) -> Snapshot:
        if self.at is None:
            return context.manifest.snapshot(self.branch)
        return context.manifest.history.snapshot_at(self.at, self.branch)


class _Fragments(InputPartition):  # type: ignore[misc]
    """The fragments one task reads."""

    def __init__(self, fragments: Sequence[int]) -> None:
        super().__init__(list(fragments))


class _Reader(DataSourceReader):  # type: ignore[misc]
    """One table at one version in the columns asked for; conditions Spark offers are evaluated while reading."""

    def __init__(self, table: TableAt, schema: pa.Schema) -> None:
        self._table = table
        self._schema = schema
        self._condition: str | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Remember what Lance can evaluate; Spark keeps all of them."""
        self._condition = condition(filters, self._table.open().schema)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Large fragments alone, small ones together."""
        return [_Fragments(group) for group in fragment_groups(self._table.open(), PARTITION_ROWS)] or [_Fragments([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        if partition.value:
            columns = self._schema.names
            found = read_group(self._table, columns, partition.value, filter=self._condition, with_address=False)
            for batch in found:
                yield batch.cast(self._schema)
