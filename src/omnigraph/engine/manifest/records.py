"""The rows of `__manifest`, as records.

The only module that knows how a record is spelled on disk (docs/format.md). Rows of kinds this release does not know
are carried along unchanged, so that a newer release's additions survive an older writer.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct

from omnigraph.errors import FormatError
from omnigraph.ids import MAIN, CommitId, TableKey, check_message

INTERNAL_SCHEMA_VERSION = 4
STAMP = "omnigraph:internal_schema_version"
STAMP_KEY = STAMP.encode()
LINEAGE_FROM = 4
"""The first format whose manifest tells its own commits; before it only the commit table did."""
CONFIG = {"table_version_management": "true"}
WRITTEN_BY = "written_by"
"""The fact of a branch's table version that names the operation which made it."""
MESSAGE = "omnigraph.message"
"""The property of a commit that holds what its author said about it."""
WRITES = "omnigraph.writes"
"""The property of a commit that lists the writes it was made of, where they were several."""
GROUP = "omnigraph.group"
"""The property that tells a commit of several writes from every other one, whatever became of who made it."""
REQUEST = "request"
"""The property of a commit that names the request it answers."""
KEY = "omnigraph.key"
"""The property of a commit that holds the key under which its author may repeat the request."""
RECEIPT = "omnigraph.receipt"
"""The property of a commit that holds what its author was to be told of it, where nothing else tells that."""
_OWN_PROPERTIES = frozenset({MESSAGE, WRITES, GROUP, RECEIPT})
PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}

MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.utf8(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("object_type", pa.utf8(), nullable=False),
        pa.field("location", pa.utf8()),
        pa.field("metadata", pa.utf8()),
        pa.field("base_objects", pa.list_(pa.field("item", pa.utf8()))),
        pa.field("table_key", pa.utf8(), nullable=False),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.utf8()),
        pa.field("row_count", pa.uint64()),
    ],
    metadata={STAMP_KEY: str(INTERNAL_SCHEMA_VERSION)},
)

_RECORD = pa.struct(list(MANIFEST_SCHEMA))
_compact = json.JSONEncoder(separators=(",", ":")).encode
Row = dict[str, Any]


class TableEntry(Struct, frozen=True, dict=True):
    """One published table: where it lies, the version that is visible, and the branch that owns it (None is main)."""

    table_key: TableKey
    path: str
    version: int
    branch: str | None
    row_count: int
    incarnation: int = 1
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What else its writer says of the version; entries that differ only in this are equal."""

    def _compared(self) -> tuple[TableKey, str, int, str | None, int, int]:
        return (self.table_key, self.path, self.version, self.branch, self.row_count, self.incarnation)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableEntry) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    @property
    def e_tag(self) -> str | None:
        """What tells this version from another of the same number, as a branch made anew under an old name has one."""
        tag = self.metadata.get("e_tag") or self.metadata.get(WRITTEN_BY)
        return None if tag is None else str(tag)


class TableLocation(Struct, frozen=True, dict=True):
    """The registration of a table."""

    table_key: TableKey
    path: str
    incarnation: int = 1


class Tombstone(Struct, frozen=True, dict=True):
    """Hides the versions of one incarnation of a table up to `version`."""

    table_key: TableKey
    version: int
    incarnation: int = 1


class SchemaRecord(Struct, frozen=True):
    """The schema a manifest version was written under, by hash, and the key orders its text no longer tells."""

    schema_hash: str
    key_orders: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class CommitWrite:
    """One of the writes that a commit is made of: whose it is, what it is called, and how much it changed.

    `tables` are the entities it loaded, by table, where it was a load.
    """

    actor_id: str | None = None
    name: str | None = None
    message: str | None = None
    key: str | None = None
    nodes: int = 0
    edges: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What is told of it; what it has not is left out."""
        return {name: value for name, value in self.__dict__.items() if value}

    def shown(self) -> dict[str, Any]:
        """The write as every surface shows it."""
        return {
            "actor_id": self.actor_id,
            "name": self.name,
            "message": self.message,
            "key": self.key,
            "affected_nodes": self.nodes,
            "affected_edges": self.edges,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CommitWrite:
        """The write that `to_json` told."""
        return cls(**{name: value for name, value in body.items() if name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class CommitRecord:
    """One commit. `created_at` is Unix time in microseconds; `properties` are free facts of its writer."""

    graph_commit_id: CommitId
    manifest_branch: str | None
    manifest_version: int
    parent_commit_id: CommitId | None
    merged_parent_commit_id: CommitId | None
    actor_id: str | None
    created_at: int
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def parents(self) -> tuple[CommitId, ...]:
        """The commits this one builds on, the merged one last."""
        return tuple(p for p in (self.parent_commit_id, self.merged_parent_commit_id) if p is not None)

    @property
    def time(self) -> datetime:
        """When it was made."""
        return datetime.fromtimestamp(self.created_at / 1_000_000, UTC)

    @property
    def message(self) -> str | None:
        """What its author said about it."""
        return self.properties.get(MESSAGE)

    @property
    def facts(self) -> dict[str, str]:
        """What else is recorded with it."""
        return {name: value for name, value in self.properties.items() if name not in _OWN_PROPERTIES}

    @property
    def writes(self) -> tuple[CommitWrite, ...]:
        """The writes that were published together as this commit; none where it is one write by itself."""
        told = self.properties.get(WRITES)
        return () if told is None else tuple(CommitWrite.from_json(each) for each in json.loads(told))

    def is_by(self, actor: str) -> bool:
        """Whether an actor made it, or one of its writes."""
        return self.actor_id == actor or any(write.actor_id == actor for write in self.writes)

    @functools.cached_property
    def order(self) -> tuple[int, int, str]:
        """What commits of one branch are sorted by."""
        return (self.manifest_version, self.created_at, self.graph_commit_id)


def with_message(message: str | None, properties: Mapping[str, str] | None = None) -> dict[str, str]:
    """The properties of a commit together with what its author says about it.

    Raises:
        InputError: the message is blank, too long, or cannot be stored.
    """
    checked = check_message(message)
    return {**(properties or {}), **({} if checked is None else {MESSAGE: checked})}


def with_writes(writes: Sequence[CommitWrite], group: str) -> dict[str, str]:
    """The properties of a commit that several writes share."""
    told = json.dumps([write.to_json() for write in writes], separators=(",", ":"))
    return {WRITES: told, GROUP: group}


class Head(Struct, frozen=True):
    """The newest commit of a branch."""

    branch: str
    commit_id: CommitId
    parent_commit_id: CommitId | None


def _subject(key: str, incarnation: int) -> str:
    return key if incarnation == 1 else f"{key}#{incarnation}"


def _row(object_id: str, object_type: str, table_key: str = "", **columns: Any) -> Row:
    row: Row = dict.fromkeys(MANIFEST_SCHEMA.names)
    row.update(object_id=object_id, object_type=object_type, table_key=table_key, **columns)
    return row


R = TypeVar("R", TableLocation, TableEntry, Tombstone, CommitRecord)


def _once(spell: Callable[[R], Row]) -> Callable[[R], Row]:
    """Spell a record out once and keep the row with it: a publish writes every row, and few of them are new.

    A record never changes, so nothing can make its row wrong; nobody may change the row.
    """

    @functools.wraps(spell)
    def row(record: R) -> Row:
        kept: Row | None = record.__dict__.get("_row")
        if kept is None:
            kept = record.__dict__["_row"] = spell(record)
        return kept

    return row


def _incarnation_json(incarnation: int) -> str | None:
    return None if incarnation == 1 else json.dumps({"incarnation": incarnation})


@_once
def location_row(location: TableLocation) -> Row:
    """The `table` row of a registration."""
    return _row(
        _subject(location.table_key, location.incarnation),
        "table",
        location.table_key,
        location=location.path,
        metadata=_incarnation_json(location.incarnation),
    )


@_once
def entry_row(entry: TableEntry) -> Row:
    """The `table_version` row of a published version."""
    facts: dict[str, Any] = {"manifest_path": "", "manifest_size": None, "e_tag": None, "naming_scheme": "V2"}
    facts.update(entry.metadata)
    if entry.incarnation != 1:
        facts["incarnation"] = entry.incarnation
    return _row(
        f"{_subject(entry.table_key, entry.incarnation)}${entry.version:020d}",
        "table_version",
        entry.table_key,
        metadata=_compact(facts),
        table_version=entry.version,
        table_branch=entry.branch,
        row_count=entry.row_count,
    )


@_once
def tombstone_row(tombstone: Tombstone) -> Row:
    """The `table_tombstone` row of a dropped table."""
    return _row(
        f"{_subject(tombstone.table_key, tombstone.incarnation)}$tombstone${tombstone.version:020d}",
        "table_tombstone",
        tombstone.table_key,
        metadata=_incarnation_json(tombstone.incarnation),
        table_version=tombstone.version,
    )


@_once
def commit_row(commit: CommitRecord) -> Row:
    """The `graph_commit` row of a commit."""
    facts: dict[str, Any] = {
        "parent_commit_id": commit.parent_commit_id,
        "merged_parent_commit_id": commit.merged_parent_commit_id,
        "actor_id": commit.actor_id,
        "properties": dict(commit.properties) or None,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    facts["created_at"] = commit.created_at
    return _row(
        commit.graph_commit_id,
        "graph_commit",
        metadata=_compact(facts),
        table_version=commit.manifest_version,
        table_branch=commit.manifest_branch,
    )


def schema_row(record: SchemaRecord) -> Row:
    """The `graph_schema` row, present once a schema has been replaced."""
    facts: dict[str, Any] = {"schema_hash": record.schema_hash}
    if record.key_orders:
        facts["key_orders"] = {name: list(order) for name, order in sorted(record.key_orders.items())}
    return _row("graph_schema", "graph_schema", metadata=_compact(facts))


def read_schema_record(row: Row) -> SchemaRecord:
    """The schema a `graph_schema` row names."""
    with _reading(row):
        facts = _facts(row)
        orders = {str(name): tuple(order) for name, order in (facts.get("key_orders") or {}).items()}
        return SchemaRecord(str(facts["schema_hash"]), orders)


def head_row(head: Head) -> Row:
    """The `graph_head` row of a branch."""
    facts = {"head_commit_id": head.commit_id}
    if head.parent_commit_id is not None:
        facts["parent_commit_id"] = head.parent_commit_id
    return _row(f"graph_head:{head.branch}", "graph_head", metadata=_compact(facts))


@contextmanager
def _reading(row: Row) -> Iterator[None]:
    """Whatever a row lacks or spells wrongly is corruption, named by its row."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise FormatError(f"manifest row '{row['object_id']}' is corrupt: {type(exc).__name__}: {exc}") from exc


def _facts(row: Row) -> dict[str, Any]:
    facts = json.loads(row["metadata"]) if row["metadata"] else {}
    if not isinstance(facts, dict):
        raise TypeError("its metadata is not an object")
    return facts


def read_location(row: Row) -> TableLocation:
    """The registration a `table` row stands for."""
    if not row["location"]:
        raise FormatError(f"manifest row '{row['object_id']}' registers a table without a location")
    with _reading(row):
        return TableLocation(TableKey(row["table_key"]), row["location"], int(_facts(row).get("incarnation", 1)))


def read_entry(row: Row, path: str) -> TableEntry:
    """The version a `table_version` row publishes."""
    if row["metadata"] is None or row["row_count"] is None or row["table_version"] is None:
        raise FormatError(f"manifest row '{row['object_id']}' lacks its version, row count or metadata")
    with _reading(row):
        facts = _facts(row)
        return TableEntry(
            TableKey(row["table_key"]),
            path,
            int(row["table_version"]),
            row["table_branch"],
            int(row["row_count"]),
            int(facts.pop("incarnation", 1)),
            facts,
        )


def read_tombstone(row: Row) -> Tombstone:
    """The drop a `table_tombstone` row stands for."""
    if row["table_version"] is None:
        raise FormatError(f"manifest row '{row['object_id']}' is a tombstone without a version")
    with _reading(row):
        return Tombstone(TableKey(row["table_key"]), int(row["table_version"]), int(_facts(row).get("incarnation", 1)))


def read_commit(row: Row) -> CommitRecord:
    """The commit a `graph_commit` row stands for."""
    with _reading(row):
        facts = _facts(row)
        return CommitRecord(
            CommitId(row["object_id"]),
            row["table_branch"],
            int(row["table_version"]),
            facts.get("parent_commit_id"),
            facts.get("merged_parent_commit_id"),
            facts.get("actor_id"),
            int(facts["created_at"]),
            dict(facts.get("properties") or {}),
        )


def read_head(row: Row) -> Head:
    """The head a `graph_head` row names."""
    with _reading(row):
        facts = _facts(row)
        branch = str(row["object_id"]).removeprefix("graph_head:") or MAIN
        return Head(branch, CommitId(facts["head_commit_id"]), facts.get("parent_commit_id"))


def encoded(rows: Sequence[Row]) -> pa.StructArray:
    """Rows as one column of records, which can be put behind others."""
    return pa.array(rows, _RECORD)


def to_table(rows: pa.StructArray) -> pa.Table:
    """Encoded rows in the schema of the table."""
    return pa.Table.from_arrays(rows.flatten(), schema=MANIFEST_SCHEMA)


def read_stamp(schema: pa.Schema) -> int:
    """The internal schema version of a manifest; absent means 1.

    Raises:
        FormatError: the stamp is unreadable, or newer than this release.
    """
    raw = (schema.metadata or {}).get(STAMP_KEY)
    if raw is None:
        return 1
    try:
        stamp = int(raw)
    except ValueError as exc:
        raise FormatError(f"the manifest's format stamp is unreadable: {raw!r}") from exc
    if stamp > INTERNAL_SCHEMA_VERSION:
        raise FormatError(
            f"this graph has format {stamp}, newer than the {INTERNAL_SCHEMA_VERSION} this release knows:"
            " upgrade omnigraph first"
        )
    return stamp
