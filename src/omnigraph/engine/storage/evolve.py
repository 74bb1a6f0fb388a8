"""Columns come and go without a row being rewritten.

A table's columns are numbered, and files name columns by number. So a column that is renamed keeps its number, one
that is dropped is merely no longer named, and a new one gets a number that no file has and reads as null. All of it
is one transaction that changes the list of columns alone. Lance commits such a transaction on top of whatever happened
since, so its writer first takes the table by a strict commit.

The list travels as protobuf messages, one per column and nested field, of which only name, number and parent are
touched here: numbering columns by their position would make files show one column's values under another's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
from lance import LanceOperation
from lance.schema import LanceSchema

from omnigraph.dataclass import dataclass
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import StagedWrite
from omnigraph.engine.storage.translate import translated
from omnigraph.errors import FormatError, InternalError

HIGHEST_FIELD = "omnigraph:highest_field_id"
"""The schema fact that remembers the highest number ever given, so that a dropped column's is not given again."""

_NAME, _ID, _PARENT = 2, 3, 4
_VARINT, _BYTES = 0, 2
_NONE = (1 << 64) - 1
"""The parent of a top-level column, minus one as Lance writes it."""

_Part = tuple[int, int, int | bytes]


def stage_columns(base: TableHandle, target: pa.Schema, renames: Mapping[str, str]) -> StagedWrite:
    """Stage the columns a table is to have, in their order; `renames` maps old names to new ones.

    A column of `target` that the table does not have is new, and null in every row there is. A column that stays keeps
    its type, whatever `target` says of it.

    Raises:
        InternalError: a new column cannot be null.
    """
    with translated(f"changing the columns of {base.path}"):
        metadata, columns = _columns(base.dataset.lance_schema)
        facts = json.loads(metadata) if metadata else {}
        # Lance writes the facts of a schema as lists of bytes.
        highest = max(int(bytes(facts.get(HIGHEST_FIELD, b"0"))), int(base.dataset.max_field_id))
        known = {renames.get(column.name, column.name): column for column in columns}
        chosen: list[bytes] = []
        for field in target:
            if field.name in known:
                chosen.extend(known[field.name].named(field.name))
                continue
            if not field.nullable:
                raise InternalError(f"column '{field.name}' of {base.path} is new and cannot be required")
            (column,) = _columns(LanceSchema.from_pyarrow(pa.schema([field])))[1]
            chosen.extend(column.numbered(highest + 1))
            highest += len(column.messages)
        facts[HIGHEST_FIELD] = list(str(highest).encode())
        schema = LanceSchema._from_protos(json.dumps(facts), *chosen)
    return StagedWrite(base.version, LanceOperation.Project(schema, preserves_nullability=True), 0, 0)


@dataclass(frozen=True)
class _Column:
    """One top-level column: its message, then those of the fields below it."""

    messages: tuple[bytes, ...]

    @property
    def name(self) -> str:
        return _text(self.messages[0])

    def named(self, name: str) -> list[bytes]:
        """The same column under another name."""
        first = [
            (tag, kind, name.encode() if tag == _NAME else value) for tag, kind, value in _decode(self.messages[0])
        ]
        return [_encode(first), *self.messages[1:]]

    def numbered(self, start: int) -> list[bytes]:
        """The same column with its fields numbered from `start` on."""
        return [_shifted(message, start) for message in self.messages]


def _columns(schema: LanceSchema) -> tuple[str, list[_Column]]:
    """The facts of a schema as JSON, and its columns in order."""
    _, (metadata, *messages) = schema.__reduce__()
    groups: list[list[bytes]] = []
    for message in map(bytes, messages):
        if _number(message, _PARENT) == _NONE:
            groups.append([message])
        else:
            groups[-1].append(message)
    return metadata, [_Column(tuple(group)) for group in groups]


def _shifted(message: bytes, start: int) -> bytes:
    parent = _number(message, _PARENT)
    moved: list[_Part] = [part for part in _decode(message) if part[0] not in (_ID, _PARENT)]
    moved.append((_ID, _VARINT, _number(message, _ID) + start))
    moved.append((_PARENT, _VARINT, parent if parent == _NONE else parent + start))
    return _encode(sorted(moved, key=lambda part: part[0]))


# --- protobuf, as much of it as is needed ----------------------------------------------------------------------------


def _number(message: bytes, tag: int) -> int:
    """A number of a message; what is not written is zero."""
    found = [value for known, kind, value in _decode(message) if known == tag and kind == _VARINT]
    return int(found[0]) if found else 0


def _text(message: bytes) -> str:
    (name,) = [value for tag, _, value in _decode(message) if tag == _NAME]
    return bytes(name).decode() if isinstance(name, bytes) else ""


def _decode(message: bytes) -> list[_Part]:
    parts: list[_Part] = []
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        tag, kind = key >> 3, key & 7
        value, at = _read_varint(message, at)
        if kind == _BYTES:
            parts.append((tag, kind, message[at : at + value]))
            at += value
        elif kind == _VARINT:
            parts.append((tag, kind, value))
        else:
            raise FormatError(f"a column description has a part of kind {kind}, which this release does not know")
    return parts


def _encode(parts: Sequence[_Part]) -> bytes:
    out = bytearray()
    for tag, kind, value in parts:
        out += _varint(tag << 3 | kind)
        if isinstance(value, bytes):
            out += _varint(len(value)) + value
        else:
            out += _varint(value)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
