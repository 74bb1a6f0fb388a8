"""What a load is given, as lines on their way to a server; never whole in memory.

Files of load records travel as they are, piece by piece. Records become lines as they are taken. Arrow tables, Parquet
and CSV by type are read, checked and spelled as lines batch by batch, by the code that a load in this process uses, so
that a mistake has the same name on either side.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.model import Catalog
from omnigraph.engine.ingest.inputs import LoadFeeds, LoadRows, line_streams, table_feeds
from omnigraph.engine.ingest.local import local_source
from omnigraph.engine.ingest.sources import input_paths
from omnigraph.engine.operations.export import line_runs
from omnigraph.engine.operations.load import reading_catalog
from omnigraph.engine.operations.outcomes import LoadMode
from omnigraph.engine.values.entities import Entity
from omnigraph.errors import InputError

Lines = tuple[Callable[[], Iterator[bytes]], bool]
"""Makes the body of a load, and whether it can be made only once."""


def as_lines(
    source: Any, catalog: Callable[[], Catalog], columns: Mapping[str, Mapping[str, str]] | None, mode: str
) -> Lines:
    """A source as the body of a load; `catalog` gives the accepted schema where a source has to be fitted to it.

    Raises:
        InputError: it is something that only a load in this process can read.
    """
    if hasattr(source, "sparkSession") or hasattr(source, "rdd"):
        raise InputError("a Spark DataFrame is loaded where the graph is stored: connect to its path or URI")
    if isinstance(source, bytes):
        return lambda: iter([source]), False
    if columns or isinstance(source, Mapping):
        known = reading_catalog(catalog(), mode)
        found = local_source(source, known, columns=columns)
        once = isinstance(source, Mapping) and any(isinstance(part, pa.RecordBatchReader) for part in source.values())
        return _of_tables(found, known, once, overwrites=mode == LoadMode.OVERWRITE)
    files = _files(source, catalog)
    if files is not None:
        return lambda: _joined(line_streams(files)), False
    once = not isinstance(source, list | tuple)
    return lambda: _joined(line_streams(source)), once


def _files(source: Any, catalog: Callable[[], Catalog]) -> Any:
    """The files that a source names; None when it holds the data itself."""
    named = input_paths(source)
    if named is None:
        return None
    if any("://" in str(path) and not str(path).startswith("file://") for path in named):
        raise InputError("files of an object store are loaded where the graph is stored: connect to its path or URI")
    return local_source(source, catalog())


def _joined(streams: Iterable[tuple[str, Iterable[bytes]]]) -> Iterator[bytes]:
    """All streams as one; a line that a file does not end is ended, so that the next file begins a new one."""
    for _, pieces in streams:
        last = b"\n"
        for piece in pieces:
            if piece:
                last = piece[-1:]
                yield piece
        if last != b"\n":
            yield b"\n"


def _of_tables(found: Any, catalog: Catalog, once: bool, *, overwrites: bool) -> Lines:
    if isinstance(found, LoadFeeds):
        return lambda: _spelled(found, overwrites), True
    if isinstance(found, LoadRows):
        tables = [(catalog.tables[key], table) for key, table in sorted(found.tables.items())]
        return lambda: _spelled(LoadFeeds([(entity, iter([(it, True)])) for entity, it in tables]), overwrites), False
    return lambda: _spelled(table_feeds(found, catalog), overwrites), once


def _spelled(feeds: LoadFeeds, overwrites: bool) -> Iterator[bytes]:
    for entity, batches in feeds.tables:
        rows = 0
        for table, _ in batches:
            rows += table.num_rows
            yield from _pieces(entity, table)
        if overwrites and not rows:
            raise InputError(
                f"the data of {entity.name} has no rows, and lines, which a server is sent, cannot say that the type is"
                f" to be emptied: mutate with 'delete {entity.name} where true', or load where the graph is stored"
            )


def _pieces(entity: Entity, table: pa.Table) -> Iterator[bytes]:
    for name in blob_columns(entity):
        texts = [_blob_text(value) for value in table.column(name).to_pylist()]
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(texts, pa.string()))
    for lines in line_runs(entity, table):
        yield ("\n".join(lines) + "\n").encode()


def _blob_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        if value.get("data") is None:
            return None if value.get("uri") is None else str(value["uri"])
        value = value["data"]
    return value if isinstance(value, str) else "base64:" + base64.b64encode(value).decode("ascii")
