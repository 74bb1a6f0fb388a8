"""How Lance describes and numbers the columns of a table: protobuf messages, one per column and nested field.

Only name, number, parent and nullability are touched: numbering columns by their position would make files show one
column's values under another's name. A schema gives its messages where it is pickled, and is made of them where it is
unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence

from lance.schema import LanceSchema
from msgspec import Struct

from omnigraph.errors import FormatError

_NAME, _ID, _PARENT, _NULLABLE = 2, 3, 4, 6
_VARINT, _BYTES = 0, 2
_NONE = (1 << 64) - 1
"""The parent of a top-level column, minus one as Lance writes it."""

_Part = tuple[int, int, int | bytes]


class Column(Struct, frozen=True):
    """One top-level column: its message, then those of the fields below it."""

    messages: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """What it is called."""
        return _text(self.messages[0])

    def named(self, name: str, *, nullable: bool) -> list[bytes]:
        """The same column under another name, which may or may not be null."""
        first = [
            (tag, kind, name.encode() if tag == _NAME else value)
            for tag, kind, value in _decode(self.messages[0])
            if tag != _NULLABLE
        ]
        first += [(_NULLABLE, _VARINT, 1)] if nullable else []
        return [_encode(sorted(first, key=lambda part: part[0])), *self.messages[1:]]

    def numbered(self, start: int) -> list[bytes]:
        """The same column with its fields numbered from `start` on."""
        return [_shifted(message, start) for message in self.messages]


def columns_of(schema: LanceSchema) -> tuple[str, list[Column]]:
    """The facts of a schema as JSON, and its columns in order."""
    _, (metadata, *messages) = schema.__reduce__()
    groups: list[list[bytes]] = []
    for message in map(bytes, messages):
        if _number(message, _PARENT) == _NONE:
            groups.append([message])
        else:
            groups[-1].append(message)
    return metadata, [Column(tuple(group)) for group in groups]


def schema_of(metadata: str, messages: Sequence[bytes]) -> LanceSchema:
    """A schema of these columns in their order, with its facts as JSON."""
    return LanceSchema._from_protos(metadata, *messages)


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
