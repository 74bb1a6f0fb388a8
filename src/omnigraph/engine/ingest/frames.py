"""Data frames and files of one type, brought to what a load takes: a mapping from types to Arrow or paths.

Whatever can hand over an Arrow stream is taken as one: frames of polars, DuckDB relations, record batches, Narwhals.
pandas is asked through Arrow's own converter, which knows that a missing number is a null; what offers only the
dataframe interchange protocol comes through that. No library is imported to find out what something is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.interchange import from_dataframe

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.engine.ingest.entities import counts_rows, entity_of
from omnigraph.engine.ingest.sources import is_frame
from omnigraph.errors import InputError

_OF_AN_EXPORT = re.compile(r"\d+-(node|edge)-(.+)")
"""The folder of one type in a folder that an export to Parquet wrote."""
_ENDS = ("from", "to", "src", "dst")


def framed(source: Any, catalog: Callable[[], Catalog], *, type_name: str | None = None, whole: bool = False) -> Any:
    """A source as the engines take it; what they take already comes back as it is.

    `catalog` gives the accepted schema where it is needed. `type_name` says of which type a frame, a path, several
    paths or plain records are. With `whole` frames become tables and not streams, for whoever reads them twice or
    beside other kinds of input.

    Raises:
        InputError: a frame comes without its type, a type is given for types, or a frame cannot become Arrow.
    """
    if type_name is not None:
        source = _of_type(source, type_name, catalog)
    if isinstance(source, Mapping):
        for name in [name for name, part in source.items() if not _is_data(part)]:
            # Before anybody looks for files: a mapping of columns has no types as keys.
            entity_of(str(name), catalog())
        if any(_is_rows(part) for part in source.values()):
            return _rows_of_types(source, catalog())
        mixed = whole or not all(_is_data(part) for part in source.values())
        return {name: as_arrow(part, whole=mixed) if _is_data(part) else part for name, part in source.items()}
    alone = source[0] if isinstance(source, list | tuple) and len(source) == 1 else source
    if isinstance(alone, str | os.PathLike):
        return _exported(Path(alone)) or source
    if _is_data(source):
        raise InputError(
            "say of which type the rows of a frame are: load(frame, type='Person'), or load({'Person': frame})"
        )
    return source


def as_arrow(part: Any, *, whole: bool = False) -> pa.Table | pa.RecordBatchReader:
    """A frame as an Arrow table or stream, without views of texts, which not everything downstream can cut."""
    try:
        found = _arrow_of(part)
        found = found.read_all() if whole and isinstance(found, pa.RecordBatchReader) else found
        return _without_views(found)
    except (pa.ArrowException, TypeError, ValueError) as exc:
        raise InputError(
            f"a {type(part).__name__} could not be read as Arrow: {'; '.join(map(str, exc.args))}"
        ) from exc


def _arrow_of(part: Any) -> pa.Table | pa.RecordBatchReader:
    if isinstance(part, pa.Table | pa.RecordBatchReader):
        return part
    if isinstance(part, pa.RecordBatch):
        return pa.Table.from_batches([part])
    if _is_lazy(part):
        return _arrow_of(part.collect())
    if _is_pandas(part):
        return _of_pandas(part)
    if hasattr(part, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(part)
    if _is_dataset(part):
        return part.scanner().to_reader()
    if hasattr(part, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(part)])
    return from_dataframe(part)


def _is_data(part: Any) -> bool:
    """True for what holds rows of one type in columns; a DataFrame of Spark is Spark's to read."""
    if any(base.__module__.startswith("pyspark.") for base in type(part).__mro__):
        return False
    offers = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")
    return any(hasattr(part, name) for name in offers) or _is_dataset(part) or _is_lazy(part)


def _is_pandas(part: Any) -> bool:
    return any(base.__name__ == "DataFrame" and base.__module__.startswith("pandas.") for base in type(part).__mro__)


def _of_pandas(frame: Any) -> pa.Table:
    """A frame of pandas with the named levels of its index as columns; an index without a name only counts rows."""
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    table = pa.Table.from_pandas(frame, preserve_index=bool(named)).replace_schema_metadata(None)
    counted = [name for name in table.column_names if counts_rows(name)]
    return table.drop_columns(counted) if named and counted else table


def _is_dataset(part: Any) -> bool:
    return any(base.__name__ == "Dataset" and base.__module__.startswith("pyarrow.") for base in type(part).__mro__)


def _is_lazy(part: Any) -> bool:
    """A frame that is yet to be computed, of polars or of Narwhals."""
    return type(part).__name__ == "LazyFrame" and callable(getattr(part, "collect", None))


def _without_views(found: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    schema = pa.schema([field.with_type(_plain(field.type)) for field in found.schema])
    if schema.equals(found.schema.remove_metadata()):
        return found
    if isinstance(found, pa.Table):
        return found.cast(schema)
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in found))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_dictionary(kind):  # Categories of polars are views.
        return pa.dictionary(kind.index_type, _plain(kind.value_type))
    return kind


# --- one type --------------------------------------------------------------------------------------------------------


def _of_type(source: Any, name: str, catalog: Callable[[], Catalog]) -> Any:
    if isinstance(source, str | os.PathLike) or _is_data(source) or is_frame(source):
        return {name: source}
    if isinstance(source, Mapping):
        raise InputError("a type is given for one input, and a mapping names the type of each: leave one of them out")
    if isinstance(source, bytes) or hasattr(source, "read"):
        raise InputError("bytes and open files hold load records, which name their types: leave the type out")
    items = iter(source)
    first = next(items, None)
    if first is None:
        return _records((), name, catalog())
    if isinstance(first, pa.RecordBatch):
        return {name: _streamed(first, items)}
    found = [first, *items]
    if _is_data(first):
        return {name: _joined(found)}
    if all(isinstance(item, str | os.PathLike) for item in found):
        return {name: found}
    return _records(found, name, catalog())


def _streamed(first: pa.RecordBatch, others: Iterator[Any]) -> pa.RecordBatchReader:
    """Batches as the stream they are, so that a generator of them is never held whole."""

    def checked() -> Iterator[pa.RecordBatch]:
        yield first
        for batch in others:
            if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(first.schema):
                raise InputError("record batches of one load must all have the columns of the first")
            yield batch

    return pa.RecordBatchReader.from_batches(first.schema, checked())


def _joined(frames: Iterable[Any]) -> pa.Table:
    """Several frames as one table; a column that only some have is null in the others."""
    try:
        return pa.concat_tables([as_arrow(frame, whole=True) for frame in frames], promote_options="permissive")
    except pa.ArrowException as exc:
        raise InputError(f"the frames do not fit together as rows of one type: {exc}") from exc


def _is_rows(part: Any) -> bool:
    return isinstance(part, list | tuple) and bool(part) and all(isinstance(row, Mapping) for row in part)


def _rows_of_types(source: Mapping[str, Any], catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Plain rows of several types as load records.

    They are not made a table, because a row may leave out a property that another one has.
    """
    others = [str(name) for name, part in source.items() if not _is_rows(part)]
    if others:
        raise InputError(
            "give plain rows for all types of one load, or frames and files for all of them:"
            f" {', '.join(others)} is given as no list with rows"
        )
    return (record for name, rows in source.items() for record in _records(rows, str(name), catalog))


def _records(items: Iterable[Any], name: str, catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Plain rows of one type as load records; the ends of an edge are among its values."""
    bare = name.removeprefix("node:").removeprefix("edge:")
    edge: EdgeType | None = None
    if name.startswith("edge:") or bare not in catalog.nodes:
        edge = catalog.edges_by_lower_name.get(bare.lower())
    for item in items:
        if not isinstance(item, Mapping):
            raise InputError(f"a {type(item).__name__} is no row of '{name}': give mappings from properties to values")
        if edge is None:
            yield {"type": bare, "data": dict(item)}
            continue
        ends = {"from": item.get("from", item.get("src")), "to": item.get("to", item.get("dst"))}
        data = {key: value for key, value in item.items() if key not in _ENDS}
        yield {"edge": edge.name, **ends, **({"data": data} if data else {})}


def _exported(folder: Path) -> dict[str, str] | None:
    """The folders of types in a folder of this machine that an export to Parquet wrote; None for anything else."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None  # What cannot be listed is no such folder; whoever reads it says what is wrong with it.
    found: dict[str, str] = {}
    for name in names:
        named = _OF_AN_EXPORT.fullmatch(name)
        if named is None or not os.path.isdir(folder / name):
            return None
        found[f"{named[1]}:{named[2]}"] = str(folder / name)
    return found or None
