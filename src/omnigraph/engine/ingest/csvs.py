"""CSV files cut into pieces although a quoted value may hold line ends.

Whether a line end lies inside quotes is told by the number of quotes before it, odd or even (a quote inside a quoted
value is written twice, which changes nothing). One pass counts them where a file is cut, so that every task knows how
its piece begins; each task then finds the ends of its own records. A piece owns the records that *start* inside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from omnigraph.engine.ingest.files import (
    CHUNK,
    LINE_BYTES_MAX,
    PIECE_BYTES,
    InputFile,
    Piece,
    inflate,
    open_piece,
    pieces,
)
from omnigraph.errors import InputError

_QUOTE, _NEWLINE, _RETURN = 0x22, 0x0A, 0x0D

Numbers = npt.NDArray[np.int64]


class RecordBlock(Struct, frozen=True):
    """Whole records, and for each that is not blank the line it starts on; both count from the piece's first record."""

    data: bytes
    lines: Numbers
    records_before: int


def cut_csv(file: InputFile, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of a CSV file, each with whether it begins inside a quoted value; an empty one has one, too."""
    found = pieces(file, piece_bytes) or [Piece(file, 0, 0, 0)]
    if len(found) <= 1 or file.compressed:
        return found
    marked: list[Piece] = []
    inside = False
    with open_piece(found[0]) as stream:
        at = 0
        for piece in found:
            # Reading begins one byte before the piece, to see whether a record ends there.
            begin = max(piece.start - 1, 0)
            inside ^= stream.read(begin - at).count(b'"') % 2 == 1
            marked.append(replace(piece, inside=inside))
            at = begin
    return marked


def csv_blocks(piece: Piece) -> Iterator[RecordBlock]:
    """The records a piece owns, as blocks of whole records.

    Raises:
        InputError: the file changed since the job was planned, or has a record beyond the limit or an unclosed quote.
    """
    lines = records = 0
    with open_piece(piece) as stream:
        for data in _inflated(piece, stream) if piece.file.compressed else _range(piece, stream):
            starts = _record_lines(data)
            yield RecordBlock(data, starts + lines, records)
            lines += data.count(b"\n")
            records += len(starts)


def records_before(piece: Piece) -> tuple[int, int]:
    """How many lines, and how many records without the header, of the file come before a piece's first record."""
    if piece.start == 0 or piece.file.compressed:
        return 0, 0
    lines = records = 0
    before = replace(piece, start=0, end=piece.start, inside=False)
    with open_piece(before) as stream:
        for data in _range(before, stream):
            lines += data.count(b"\n")
            records += len(_record_lines(data))
    return lines, records - 1


def first_record(data: bytes) -> int:
    """The length of the first record of some records that is not blank, and of what is blank before it."""
    at = 0
    while data[at : at + 1] in (b"\n", b"\r"):
        at += 1
    ends, _ = _ends(data[at:], False)
    return at + int(ends[0]) + 1 if len(ends) else len(data)


def _range(piece: Piece, stream: Any) -> Iterator[bytes]:
    begin = max(piece.start - 1, 0)
    stream.seek(begin)
    held, inside = b"", piece.inside
    skipping = piece.start > 0
    while begin < piece.end and (chunk := stream.read(min(PIECE_BYTES, piece.end - begin))):
        begin += len(chunk)
        ends, inside = _ends(chunk, inside)
        if skipping and len(ends):
            # What precedes the first end of a record belongs to the piece before.
            cut = int(ends[0]) + 1
            chunk, ends, skipping = chunk[cut:], ends[1:] - cut, False
        if skipping:
            continue
        if len(ends):
            last = int(ends[-1]) + 1
            yield held + chunk[:last]
            held = chunk[last:]
        else:
            held += chunk
            _check_length(piece, held)
    if held and not skipping:
        yield held + _rest(piece, stream, inside, len(held))


def _rest(piece: Piece, stream: Any, inside: bool, length: int) -> bytes:
    """What is left of the last record behind the end of the piece."""
    parts: list[bytes] = []
    while chunk := stream.read(CHUNK):
        ends, inside = _ends(chunk, inside)
        if len(ends):
            parts.append(chunk[: int(ends[0]) + 1])
            return b"".join(parts)
        parts.append(chunk)
        length += len(chunk)
        if length > LINE_BYTES_MAX:
            _check_length(piece, b"".join(parts))
    if inside:
        raise InputError(f"{piece.file.uri} ends inside a quoted value: a quote is missing or one too many")
    return b"".join(parts)


def _inflated(piece: Piece, stream: Any) -> Iterator[bytes]:
    held, inside = b"", False
    for part in inflate(piece.file, stream):
        ends, inside = _ends(part, inside)
        if len(ends):
            last = int(ends[-1]) + 1
            yield held + part[:last]
            held = part[last:]
        else:
            held += part
            _check_length(piece, held)
    if inside:
        raise InputError(f"{piece.file.uri} ends inside a quoted value: a quote is missing or one too many")
    if held:
        yield held


def _check_length(piece: Piece, held: bytes) -> None:
    if len(held) > LINE_BYTES_MAX:
        raise InputError(
            f"{piece.file.uri} has a record longer than {LINE_BYTES_MAX >> 20} MiB, or a quote that is never closed"
        )


def _ends(data: bytes, inside: bool) -> tuple[Numbers, bool]:
    """Where records end in some bytes, and whether these end inside a quoted value."""
    values = np.frombuffer(data, dtype=np.uint8)
    newlines = np.flatnonzero(values == _NEWLINE)
    quotes = np.flatnonzero(values == _QUOTE)
    if len(quotes) == 0:
        return (newlines[:0] if inside else newlines), inside
    odd = (np.searchsorted(quotes, newlines) % 2 == 1) ^ inside
    return newlines[~odd], inside ^ (len(quotes) % 2 == 1)


def _record_lines(data: bytes) -> Numbers:
    """The line each record that is not blank starts on, counted from 1."""
    values = np.frombuffer(data, dtype=np.uint8)
    ends, _ = _ends(data, False)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        ends = np.append(ends, len(data))
    if not len(ends):
        return np.empty(0, dtype=np.int64)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts
    returns = values[np.minimum(starts, len(values) - 1)] == _RETURN
    blank = (lengths == 0) | ((lengths == 1) & returns)
    newlines = np.flatnonzero(values == _NEWLINE)
    found: Numbers = np.searchsorted(newlines, starts[~blank]) + 1
    return found
