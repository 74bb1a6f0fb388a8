"""Input files cut into pieces that tasks can read on their own.

A text file is cut at fixed byte offsets; a piece owns the lines that *start* inside it, so every line has exactly one
owner whatever the offsets are. A Parquet file is cut between row groups. A compressed text file is one piece, read as
a stream. Absolute line numbers cost a pass over the file, so they are found only for lines somebody wants to name.
"""

from __future__ import annotations

import glob
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from msgspec import Struct

from omnigraph.errors import InputError, NotFoundError

PIECE_BYTES = 16 << 20
LINE_BYTES_MAX = 32 << 20

CHUNK = 1 << 20
COLUMN_BYTES = 128 << 10
"""How much of each column of a Parquet file here is read at once; a page that is longer is read whole."""
_BLANK_LINES = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_GLOB = re.compile(r"[*?\[]")
_ARROW_SCHEMES = frozenset({"file", "s3", "gs", "gcs", "abfs", "abfss"})
_URI_GLOB = re.compile(r"[*\[]")


class FileFormat(StrEnum):
    """What a file holds, told by its name."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


_FORMAT_BY_ENDING = {
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
    ".csv": FileFormat.CSV,
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
}


class InputFile(Struct, frozen=True):
    """One file as it was when the job was planned; a change of size meanwhile is an error, not half a load.

    `uri` is what the caller calls it, and what messages say. `place` is where it lies for every process: the workers of
    Spark may have started in another folder, from which a relative path leads elsewhere.
    """

    uri: str
    size: int
    format: FileFormat
    compressed: bool
    place: str


class Piece(Struct, frozen=True):
    """A part of a file for one task: bytes of a text file, or row groups of a Parquet file, from `start` to `end`.

    `weight` is its size in bytes. `first_row` counts the Parquet rows before it, which makes row numbers absolute.
    `inside` is true for a piece of CSV whose first byte, or the one before it, lies in a quoted value.
    """

    file: InputFile
    start: int
    end: int
    weight: int
    first_row: int = 0
    inside: bool = False


class TextBlock(Struct, frozen=True):
    """Whole lines, and how many lines of the same piece came before them."""

    data: bytes
    lines_before: int


# --- finding files ---------------------------------------------------------------------------------------------------


def open_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """The Arrow filesystem of a path or URI, and the path inside it."""
    if not is_uri(uri):
        return pafs.LocalFileSystem(), absolute(uri)
    try:
        found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, OSError) as exc:
        raise InputError(f"'{uri}' is not a location files can be read from: {exc}") from exc
    return found


def find_files(source: str | os.PathLike[str], *, default: FileFormat = FileFormat.JSONL) -> list[InputFile]:
    """The files a path, folder, glob or URI stands for, in name order; hidden files of a folder are left out.

    In a URI `*` and `[…]` are wild, while `?` begins the options of its filesystem, such as an endpoint.

    Raises:
        NotFoundError: nothing is there.
    """
    text = os.fspath(source)
    if is_uri(text):
        found = _matching_uris(text, default) if _URI_GLOB.search(text.partition("?")[0]) else _files_at(text, default)
    elif is_glob(text):
        names = sorted(glob.glob(os.path.expanduser(text), recursive=True))
        found = [file for name in names for file in _files_at(name, default)]
    else:
        found = _files_at(text, default)
    if not found:
        raise NotFoundError(f"no input file at '{text}': what is there is empty or hidden")
    return found


def absolute(uri: str) -> str:
    """A path or URI that means the same in every process of this machine, whatever folder it started in."""
    return uri if is_uri(uri) else os.path.abspath(os.path.expanduser(uri))


def is_uri(path: str) -> bool:
    """True for a location that names its filesystem."""
    return "://" in path


def is_stream(path: str | os.PathLike[str]) -> bool:
    """True for a device or FIFO of this machine, such as `/dev/stdin`, which can be read once and has no size."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def only_spark_reads(path: str) -> bool:
    """True for a location on a filesystem that Arrow does not know, so that only a Spark session may."""
    return is_uri(path) and path.partition("://")[0].lower() not in _ARROW_SCHEMES


def format_of(path: str, default: FileFormat) -> FileFormat:
    """What a file holds, by its name."""
    return _describe(path, 0, default).format


def is_glob(path: str) -> bool:
    """True for a path on this machine that stands for others."""
    return not is_uri(path) and bool(_GLOB.search(path)) and not os.path.exists(path)


def _files_at(uri: str, default: FileFormat) -> list[InputFile]:
    filesystem, path = open_filesystem(uri)
    try:
        info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.NotFound:
            raise NotFoundError(f"no input file at '{uri}'")
        if info.type == pafs.FileType.File:
            return [_describe(uri, info.size, default)]
        if info.type != pafs.FileType.Directory:
            raise InputError(f"'{uri}' is no regular file: load it by its path with engine \"local\", which streams it")
        listed = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    except OSError as exc:
        raise InputError(f"'{uri}' cannot be read: {exc}") from exc
    inner = path.rstrip("/")
    visible = [entry for entry in listed if entry.is_file and not _hidden(entry.path[len(inner) + 1 :])]
    return _described(uri, inner, visible, default)


def _matching_uris(uri: str, default: FileFormat) -> list[InputFile]:
    """The files below the last plain folder of a URI whose paths match the rest of it."""
    base, _, options = uri.partition("?")
    plain = base[: _URI_GLOB.search(base).start()].rpartition("/")[0]  # type: ignore[union-attr]
    folder = f"{plain}?{options}" if options else plain
    filesystem, path = open_filesystem(folder)
    pattern = _glob_pattern(base[len(plain) + 1 :])
    try:
        listed = filesystem.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    except OSError as exc:
        raise InputError(f"'{uri}' cannot be read: {exc}") from exc
    inner = path.rstrip("/")
    matching = [entry for entry in listed if entry.is_file and pattern.fullmatch(entry.path[len(inner) + 1 :])]
    return _described(folder, inner, matching, default)


def _glob_pattern(text: str) -> re.Pattern[str]:
    """A glob over a path: `*` stays within a folder, `**` does not."""
    parts = re.split(r"(\*\*/?|\*|\[[^\]]*\])", text)
    meanings = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*"}
    return re.compile(
        "".join(meanings.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)
    )


def _described(folder: str, inner: str, entries: list[Any], default: FileFormat) -> list[InputFile]:
    """Files below a folder, named as the folder is."""
    base, mark, options = folder.partition("?") if is_uri(folder) else (folder, "", "")
    named = [(f"{base.rstrip('/')}{entry.path[len(inner) :]}{mark}{options}", entry.size) for entry in entries]
    return [_describe(name, size, default) for name, size in sorted(named)]


def _hidden(relative: str) -> bool:
    """Spark and editors leave `_SUCCESS`, `.crc` and the like beside data."""
    return any(part.startswith((".", "_")) for part in relative.split("/"))


def _describe(uri: str, size: int, default: FileFormat) -> InputFile:
    name = _plain_name(uri)
    return InputFile(uri, size, _FORMAT_BY_ENDING.get(_ending(name), default), name.endswith(".gz"), absolute(uri))


def _plain_name(uri: str) -> str:
    return (uri.partition("?")[0] if is_uri(uri) else uri).lower()


def _ending(name: str) -> str:
    return os.path.splitext(name.removesuffix(".gz"))[1]


# --- cutting ---------------------------------------------------------------------------------------------------------


def cut(file: InputFile, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of a file of JSON lines or Parquet, in order; an empty text file has none."""
    return _cut_parquet(file, piece_bytes) if file.format is FileFormat.PARQUET else pieces(file, piece_bytes)


def pieces(file: InputFile, piece_bytes: int) -> list[Piece]:
    """A text file cut at fixed offsets, whatever stands there; a compressed one is not cut."""
    if file.size == 0:
        return []
    if file.compressed:
        return [Piece(file, 0, file.size, file.size)]
    starts = range(0, file.size, piece_bytes)
    ends = [min(start + piece_bytes, file.size) for start in starts]
    return [Piece(file, start, end, end - start) for start, end in zip(starts, ends, strict=True)]


def open_parquet(file: InputFile) -> pq.ParquetFile:
    """The Parquet file, ready to read.

    From a disk of this machine its columns are read as they are decoded, so that a row group, which may be the whole
    file, is never held. From elsewhere everything asked for is fetched at once, because each request waits.

    Raises:
        InputError: it is not one.
    """
    filesystem, path = open_filesystem(file.place)
    is_here = isinstance(filesystem, pafs.LocalFileSystem)
    try:
        stream = filesystem.open_input_file(path)
        return pq.ParquetFile(stream, pre_buffer=not is_here, buffer_size=COLUMN_BYTES if is_here else 0)
    except (pa.ArrowInvalid, OSError) as exc:
        is_guess = _ending(_plain_name(file.uri)) not in _FORMAT_BY_ENDING
        hint = "; what ends neither in .csv nor in .jsonl is taken for Parquet" if is_guess else ""
        raise InputError(f"{file.uri} is not a readable Parquet file: {exc}{hint}") from exc


def _cut_parquet(file: InputFile, piece_bytes: int) -> list[Piece]:
    metadata = open_parquet(file).metadata
    pieces: list[Piece] = []
    start, weight, first_row, rows = 0, 0, 0, 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        weight += group.total_byte_size
        rows += group.num_rows
        if weight >= piece_bytes or number + 1 == metadata.num_row_groups:
            if rows:
                pieces.append(Piece(file, start, number + 1, weight, first_row))
            start, weight, first_row, rows = number + 1, 0, first_row + rows, 0
    # A file without rows still has columns to be checked, and a type that it stands for.
    return pieces or [Piece(file, 0, 0, 0)]


# --- reading text ----------------------------------------------------------------------------------------------------


@contextmanager
def open_piece(piece: Piece) -> Iterator[Any]:
    """The file of a piece, from its first byte.

    Raises:
        InputError: it changed since the job was planned.
    """
    filesystem, path = open_filesystem(piece.file.place)
    with filesystem.open_input_file(path) as stream:
        if stream.size() != piece.file.size:
            raise InputError(f"{piece.file.uri} changed while it was being loaded")
        yield stream


def read_lines(piece: Piece) -> Iterator[TextBlock]:
    """The lines a piece owns, as blocks of whole lines.

    Raises:
        InputError: the file changed since the job was planned, or has a line beyond the limit.
    """
    with open_piece(piece) as stream:
        yield from _inflated(piece, stream) if piece.file.compressed else _range(piece, stream)


def _range(piece: Piece, stream: Any) -> Iterator[TextBlock]:
    """The lines that start inside the byte range, the last of which may end beyond it."""
    begin = max(piece.start - 1, 0)
    stream.seek(begin)
    data: bytes = stream.read(piece.end - begin)
    if piece.start > 0:
        newline = data.find(b"\n")
        if newline < 0:
            return
        data = data[newline + 1 :]
    if data and not data.endswith(b"\n"):
        data += _rest_of_line(piece.file, stream)
    if data:
        yield TextBlock(data, 0)


def _rest_of_line(file: InputFile, stream: Any) -> bytes:
    parts: list[bytes] = []
    length = 0
    while chunk := stream.read(CHUNK):
        newline = chunk.find(b"\n")
        if newline >= 0:
            parts.append(chunk[: newline + 1])
            break
        parts.append(chunk)
        length += len(chunk)
        if length > LINE_BYTES_MAX:
            raise InputError(f"{file.uri} has a line longer than {LINE_BYTES_MAX >> 20} MiB")
    return b"".join(parts)


def _inflated(piece: Piece, stream: Any) -> Iterator[TextBlock]:
    """The lines of a gzip file (of any number of members), a bounded block at a time."""
    held, lines = b"", 0
    for part in inflate(piece.file, stream):
        held += part
        if len(held) >= PIECE_BYTES:
            cut_at = held.rfind(b"\n") + 1
            if cut_at == 0:
                if len(held) > LINE_BYTES_MAX:
                    raise InputError(f"{piece.file.uri} has a line longer than {LINE_BYTES_MAX >> 20} MiB")
                continue
            yield TextBlock(held[:cut_at], lines)
            lines += held.count(b"\n", 0, cut_at)
            held = held[cut_at:]
    if held:
        yield TextBlock(held, lines)


def inflate(file: InputFile, stream: Any) -> Iterator[bytes]:
    """The content of a gzip file, of any number of members, as it comes.

    Raises:
        InputError: it is not one, or ends too early.
    """
    machine = None
    try:
        while chunk := stream.read(CHUNK):
            while chunk:
                machine = machine or zlib.decompressobj(wbits=31)
                yield machine.decompress(chunk)
                chunk = machine.unused_data
                machine = None if machine.eof else machine
        if machine is not None:
            raise zlib.error("it ends in the middle")
    except zlib.error as exc:
        raise InputError(f"{file.uri} is not a readable gzip file: {exc}") from exc


def count_lines(data: bytes) -> tuple[int, int]:
    """How many lines a run of lines has, and how many of them are blank; the last one may lack its line end."""
    lines, blanks = data.count(b"\n"), len(_BLANK_LINES.findall(data))
    rest = data[data.rfind(b"\n") + 1 :]
    return (lines + 1, blanks + (not rest.strip())) if rest else (lines, blanks)


def position_of(piece: Piece) -> tuple[int, int]:
    """How many lines, and how many records (lines that are not blank), of the file come before a piece's first line."""
    if piece.start == 0 or piece.file.compressed:
        return 0, 0
    filesystem, path = open_filesystem(piece.file.place)
    lines = blanks = 0
    held = b""
    with filesystem.open_input_file(path) as stream:
        while stream.tell() < piece.start and (chunk := stream.read(min(PIECE_BYTES, piece.start - stream.tell()))):
            held += chunk
            whole = held.rfind(b"\n") + 1
            counted = count_lines(held[:whole])
            lines, blanks = lines + counted[0], blanks + counted[1]
            held = held[whole:]
        if held:
            # The line cut by the piece's start belongs to the piece before it.
            counted = count_lines(held + _rest_of_line(piece.file, stream))
            lines, blanks = lines + counted[0], blanks + counted[1]
    return lines, lines - blanks
