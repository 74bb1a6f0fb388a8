"""What can be loaded, brought to one form.

A load is given as paths (JSON lines that name their types themselves) or as one input per type: files, an Arrow table
or a Spark DataFrame, with a mapping from properties to columns where their names differ. `resolve` turns either into
`Feed`s and frames, which is all that the engines know.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from omnigraph.catalog.model import Catalog, EdgeType, EntityType
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.engine.ingest.csvs import cut_csv
from omnigraph.engine.ingest.entities import counts_rows, entity_of
from omnigraph.engine.ingest.files import (
    PIECE_BYTES,
    FileFormat,
    InputFile,
    Piece,
    cut,
    find_files,
    format_of,
    only_spark_reads,
)
from omnigraph.errors import InputError
from omnigraph.ids import TableKey

ColumnMap = Mapping[str, str]
"""Property (or `id`, `from`, `to`) to the column that holds it."""

LINES_COLUMN = "value"
"""A DataFrame with this one text column holds JSON lines, as `spark.read.text` and message queues give them."""


class Feed(Struct, frozen=True):
    """A piece of a file with what is needed to read it: its type, or None where each line names its own."""

    piece: Piece
    table_key: TableKey | None = None
    columns: ColumnMap = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file, for messages."""
        return self.piece.file.uri


class SparkFiles(Struct, frozen=True):
    """Files at a location that only a Spark session may know how to read."""

    uri: str
    format: FileFormat


class Frame(Struct, frozen=True):
    """Data of one type, or JSON lines when `table_key` is None: a Spark DataFrame, an Arrow table or `SparkFiles`."""

    data: Any
    table_key: TableKey | None
    columns: ColumnMap = field(default_factory=dict)
    name: str = "the DataFrame"

    @property
    def holds_texts(self) -> bool:
        """True when every value has to be read from its text."""
        return isinstance(self.data, SparkFiles) and self.data.format is FileFormat.CSV


class Inputs(Struct, frozen=True):
    """Everything one load reads."""

    feeds: tuple[Feed, ...] = ()
    frames: tuple[Frame, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of the files, for choosing an engine and a number of tasks."""
        return sum(feed.piece.weight for feed in self.feeds)


def pack(feeds: Sequence[tuple[int, Feed]], task_bytes: int) -> list[list[tuple[int, Feed]]]:
    """Neighbouring feeds gathered into tasks of about `task_bytes`, so that a task's rows make few fragments."""
    tasks: list[list[tuple[int, Feed]]] = []
    filled = task_bytes
    for number, feed in feeds:
        if filled >= task_bytes:
            tasks.append([])
            filled = 0
        tasks[-1].append((number, feed))
        filled += feed.piece.weight
    return tasks


def is_frame(source: Any) -> bool:
    """True for a Spark DataFrame of either kind, without importing Spark to find out."""
    return any(base.__name__ == "DataFrame" and base.__module__.startswith("pyspark.") for base in type(source).__mro__)


def resolve(
    source: Any,
    catalog: Catalog,
    *,
    columns: Mapping[str, ColumnMap] | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> Inputs:
    """Find the files and frames a load is made of.

    `source` is a path, URI, glob or folder, several of them, a DataFrame of JSON lines, or a mapping from type names
    to a path, several paths, an Arrow table or a DataFrame. `columns` maps type names to column maps.

    Raises:
        InputError: a name is no type of the schema, a source is of no kind that can be loaded, or columns are mapped
            of lines, which have none.
        NotFoundError: a file is not there.
    """
    maps = {entity_of(name, catalog).table_key: dict(found) for name, found in (columns or {}).items()}
    if isinstance(source, Mapping):
        feeds: list[Feed] = []
        frames: list[Frame] = []
        for name, data in source.items():
            key = entity_of(str(name), catalog).table_key
            if is_frame(data) or isinstance(data, pa.Table):
                frames.append(Frame(data, key, maps.get(key, {}), f"the data of {name}"))
            else:
                paths, elsewhere = _told_apart(data, FileFormat.PARQUET)
                frames += [
                    Frame(_of_one_type(files, str(name)), key, maps.get(key, {}), files.uri) for files in elsewhere
                ]
                found = [file for path in paths for file in find_files(path, default=FileFormat.PARQUET)]
                if maps.get(key):
                    _refuse_lines(found)
                feeds += [Feed(piece, key, maps.get(key, {})) for file in found for piece in _pieces(file, piece_bytes)]
        return Inputs(tuple(feeds), tuple(frames))
    if is_frame(source):
        return Inputs(frames=(_lines_frame(source),))
    paths, elsewhere = _told_apart(source, FileFormat.JSONL)
    files = [file for path in paths for file in find_files(path)]
    everything: list[InputFile | SparkFiles] = [*files, *elsewhere]
    for file in everything:
        require_lines(file.uri, file.format)
    if any(maps.values()):
        _refuse_lines(everything)
    lines = tuple(Frame(each, None, name=each.uri) for each in elsewhere)
    return Inputs(tuple(Feed(piece) for file in files for piece in cut(file, piece_bytes)), lines)


def _pieces(file: InputFile, piece_bytes: int) -> list[Piece]:
    """The pieces of a file of one type; one without a byte has one, too, because it says that there are no rows."""
    if file.format is FileFormat.CSV:
        return cut_csv(file, piece_bytes)
    return cut(file, piece_bytes) or [Piece(file, 0, 0, 0)]


def endpoint_columns(entity: EntityType, names: Sequence[str], columns: ColumnMap) -> tuple[str, str] | None:
    """The columns with the source and target ids of edges: as mapped, else `from`/`to`, else `src`/`dst`.

    An update may leave both out.
    """
    if not isinstance(entity, EdgeType):
        return None
    found: dict[str, str | None] = {}
    for word, stored in (("from", "src"), ("to", "dst")):
        choices = [columns.get(word) or columns.get(stored) or word, stored]
        found[word] = next((name for name in choices if name in names), None)
    mapped = columns.keys() & {"from", "to", "src", "dst"}
    if entity.partial and not mapped and not any(found.values()):
        return None
    for word, column in found.items():
        if column is None:
            raise InputError(f"edge {entity.name} needs a column '{word}' (or map one: {entity.name}.{word}=…)")
    return str(found["from"]), str(found["to"])


def column_choice(entity: EntityType, names: Sequence[str], columns: ColumnMap) -> dict[str, str]:
    """Property to column for a table with columns `names`; `id` and the ends come under `id`, `src`, `dst`.

    Without a mapping every column must be a property, so that a misspelt one is noticed; with one, columns nobody
    asked for are left out.

    Raises:
        InputError: a mapped column is not there, a mapping names no property, a column is no property or comes twice.
    """
    ends = endpoint_columns(entity, names, columns)
    choice = dict(zip(("src", "dst"), ends, strict=True)) if ends else {}
    end_words = {"from", "to", "src", "dst"} if ends else set()
    for prop, column in columns.items():
        if prop not in entity.properties and prop != "id" and prop not in end_words:
            raise InputError(f"the mapping names '{prop}', which is not a property of {entity.name}")
        if column not in names:
            raise InputError(f"the mapping of {entity.name}.{prop} names column '{column}', which is not there")
        if prop not in end_words:
            choice[prop] = column
    for prop in ["id", *entity.properties]:
        if prop not in choice and prop in names:
            choice[prop] = prop
    unknown = sorted(name for name in set(names) - set(choice.values()) if not counts_rows(name))
    if unknown and not columns:
        raise InputError(
            f"unknown column '{unknown[0]}' of {entity.name}: rename, drop or map the columns"
            f"{_what_was_meant(unknown[0], names, entity)}"
        )
    twice = [name for name in choice.values() if names.count(name) > 1]
    if twice:
        raise InputError(f"the column '{twice[0]}' of {entity.name} is there twice: rename or drop one of them")
    return choice


def _what_was_meant(unknown: str, names: Sequence[str], entity: EntityType) -> str:
    separator = next((each for each in ";\t|" if each in unknown), None)
    if separator is not None and len(names) == 1:
        return f"; values are separated by commas, and this header line has none but {separator!r}"
    return did_you_mean(unknown, [*entity.properties, *(("from", "to") if isinstance(entity, EdgeType) else ())])


def input_paths(source: Any) -> list[str | os.PathLike[str]] | None:
    """The paths a source consists of, None when it is something else."""
    if isinstance(source, str | os.PathLike):
        return [source]
    if isinstance(source, Sequence) and source and all(isinstance(item, str | os.PathLike) for item in source):
        return list(source)
    return None


def _paths(source: Any) -> Iterable[str | os.PathLike[str]]:
    paths = input_paths(source)
    if paths is not None:
        return paths
    raise InputError(
        f"cannot load from {type(source).__name__}: give paths, or a mapping from type names to paths, Arrow tables or"
        " Spark DataFrames"
    )


def _told_apart(source: Any, default: FileFormat) -> tuple[list[str | os.PathLike[str]], list[SparkFiles]]:
    """The paths this program reads itself, and those it leaves to Spark."""
    paths = list(_paths(source))
    left = [path for path in paths if only_spark_reads(os.fspath(path))]
    files = [SparkFiles(os.fspath(path), format_of(os.fspath(path), default)) for path in left]
    return [path for path in paths if path not in left], files


def _of_one_type(files: SparkFiles, name: str) -> SparkFiles:
    if files.format is FileFormat.JSONL:
        raise InputError(f"{files.uri} holds lines that name their types themselves: give it without '{name}'")
    return files


def require_lines(uri: str, form: FileFormat) -> None:
    """Refuse a file whose rows do not name their types, where no type was said."""
    if form is not FileFormat.JSONL:
        raise InputError(
            f'{uri} holds rows of one type and does not say which: say type="Person", give a mapping such as'
            f' {{"Person": "{os.path.basename(uri)}"}}, or --type Person on the command line'
        )


def _refuse_lines(files: Sequence[InputFile | SparkFiles]) -> None:
    """Refuse a mapping of columns for lines of JSON, which would be read as if there were none."""
    for file in files:
        if file.format is FileFormat.JSONL:
            raise InputError(
                f"{file.uri} holds lines of JSON, whose members have the names of properties, and columns are mapped of"
                " tables (CSV, Parquet, frames): rename the members, or leave the mapping out"
            )


def _lines_frame(source: Any) -> Frame:
    if list(source.columns) != [LINES_COLUMN]:
        raise InputError(
            'a DataFrame does not say which type its rows are: give a mapping such as {"Person": frame}, or a frame'
            f" with the one text column '{LINES_COLUMN}' of JSON lines"
        )
    return Frame(source, None)
