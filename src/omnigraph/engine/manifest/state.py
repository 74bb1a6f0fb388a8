"""The manifest decoded: everything one version of `__manifest` says.

`ManifestState` is immutable. Reading turns rows into one, publishing turns a state and a list of changes into the
next one; both are pure, and the rows written are exactly the rows of the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from functools import cached_property
from operator import attrgetter

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from omnigraph.engine.manifest import records
from omnigraph.engine.manifest.delta import Change, RegisterTable, SetSchema, TombstoneTable, UpdateTable
from omnigraph.engine.manifest.records import (
    CommitRecord,
    Head,
    Row,
    SchemaRecord,
    TableEntry,
    TableLocation,
    Tombstone,
)
from omnigraph.errors import FormatError, InternalError
from omnigraph.ids import MAIN, CommitId, TableKey

STREAM_PROPERTY = "omnigraph.stream"
"""The commit property that names the stream a commit belongs to."""


class CommitRows(Struct, frozen=True):
    """The rows of some commits, oldest first: those that were written before as Arrow, and the commits behind them."""

    written: pa.StructArray
    more: tuple[CommitRecord, ...]
    newest: tuple[int, int, str]
    """What the last of all is sorted by."""

    @classmethod
    def of(cls, commits: Iterable[CommitRecord]) -> CommitRows:
        """The rows of commits in any order, of which none was written."""
        ordered = tuple(sorted(commits, key=attrgetter("order")))
        return cls(records.encoded([]), ordered, ordered[-1].order if ordered else (0, 0, ""))

    def followed_by(self, commit: CommitRecord) -> CommitRows | None:
        """With one more commit, which the others need not be spelled again for; None when it is not the newest."""
        return CommitRows(self.written, (*self.more, commit), commit.order) if commit.order > self.newest else None


class ManifestState(Struct, frozen=True, weakref=True, dict=True):
    """One manifest version of one branch.

    `commits` is a window of the newest commits by id; older ones live in the commit table. `schema` is None while the
    graph has the schema it was created with. `unknown` holds rows of kinds this release does not know.
    """

    branch: str
    version: int
    locations: Mapping[TableKey, TableLocation]
    latest: Mapping[TableKey, TableEntry]
    tombstones: Mapping[TableKey, Tombstone]
    commits: Mapping[CommitId, CommitRecord]
    heads: Mapping[str, Head]
    unknown: tuple[Row, ...] = ()
    schema: SchemaRecord | None = None

    @property
    def entries(self) -> dict[TableKey, TableEntry]:
        """The visible tables in key order: the greatest version of each key, unless a tombstone hides it."""
        return {key: entry for key, entry in sorted(self.latest.items()) if not self._hidden(entry)}

    def _hidden(self, entry: TableEntry) -> bool:
        tombstone = self.tombstones.get(entry.table_key)
        return (
            tombstone is not None and tombstone.incarnation == entry.incarnation and tombstone.version >= entry.version
        )

    def current_version(self, key: TableKey) -> int:
        """What an expectation about a table is compared with: its visible version, its tombstone's, or 0."""
        entry = self.latest.get(key)
        if entry is not None and not self._hidden(entry):
            return entry.version
        tombstone = self.tombstones.get(key)
        return 0 if tombstone is None else tombstone.version

    @property
    def head(self) -> CommitId | None:
        """The newest commit of the branch; a branch without commits of its own has the one it was created at."""
        own = self.heads.get(self.branch)
        if own is not None:
            return own.commit_id
        newest = max(self.commits.values(), key=lambda commit: commit.order, default=None)
        return None if newest is None else newest.graph_commit_id

    @property
    def row_count(self) -> int:
        """How many rows this version has."""
        parts: tuple[Sized, ...] = (
            self.locations,
            self.latest,
            self.tombstones,
            self.commits,
            self.heads,
            self.unknown,
        )
        return sum(map(len, parts)) + (self.schema is not None)

    @cached_property
    def commit_rows(self) -> CommitRows:
        """The commits as they are stored, handed from state to state: a publish writes all, and one of them is new."""
        return CommitRows.of(self.commits.values())

    def to_table(self) -> pa.Table:
        """Every row of this version, in a deterministic order."""
        before = [
            *(records.location_row(location) for _, location in sorted(self.locations.items())),
            *(records.entry_row(entry) for _, entry in sorted(self.latest.items())),
            *(records.tombstone_row(tombstone) for _, tombstone in sorted(self.tombstones.items())),
        ]
        after = [
            *(records.head_row(head) for _, head in sorted(self.heads.items())),
            *([] if self.schema is None else [records.schema_row(self.schema)]),
            *self.unknown,
        ]
        commits = self.commit_rows
        begin, end = len(before), len(before) + len(commits.written)
        fresh = records.encoded([*before, *map(records.commit_row, commits.more), *after])
        rows = pa.concat_arrays([fresh[:begin], commits.written, fresh[begin:]])
        written = rows[begin : end + len(commits.more)]
        self.__dict__["commit_rows"] = CommitRows(written, (), commits.newest)
        return records.to_table(rows)


def decode(rows: Iterable[Row], *, branch: str, version: int) -> ManifestState:
    """What the rows of one manifest version say.

    Raises:
        FormatError: a row contradicts the format.
    """
    by_kind: dict[str, list[Row]] = {}
    seen: set[str] = set()
    for row in rows:
        if row["object_id"] in seen:
            raise FormatError(f"the manifest has two rows '{row['object_id']}', and only one can be right")
        seen.add(row["object_id"])
        by_kind.setdefault(row["object_type"], []).append(row)
    locations: dict[TableKey, TableLocation] = {}
    for location in map(records.read_location, by_kind.pop("table", [])):
        known = locations.get(location.table_key)
        if known is None or known.incarnation < location.incarnation:
            locations[location.table_key] = location
    latest: dict[TableKey, TableEntry] = {}
    for row in by_kind.pop("table_version", []):
        registered = locations.get(row["table_key"])
        if registered is None:
            raise FormatError(f"manifest row '{row['object_id']}' publishes a table that is not registered")
        entry = records.read_entry(row, registered.path)
        current = latest.get(entry.table_key)
        if current is None or (current.incarnation, current.version) < (entry.incarnation, entry.version):
            latest[entry.table_key] = entry
    tombstones: dict[TableKey, Tombstone] = {}
    for tombstone in map(records.read_tombstone, by_kind.pop("table_tombstone", [])):
        hidden = tombstones.get(tombstone.table_key)
        if hidden is None or (hidden.incarnation, hidden.version) < (tombstone.incarnation, tombstone.version):
            tombstones[tombstone.table_key] = tombstone
    commits = {c.graph_commit_id: c for c in map(records.read_commit, by_kind.pop("graph_commit", []))}
    heads = {head.branch: head for head in map(records.read_head, by_kind.pop("graph_head", []))}
    schema = next(map(records.read_schema_record, by_kind.pop("graph_schema", [])), None)
    unknown = tuple(row for kind in sorted(by_kind) for row in by_kind[kind])
    return ManifestState(branch, version, locations, latest, tombstones, commits, heads, unknown, schema)


def apply_changes(state: ManifestState, changes: Sequence[Change], commit: CommitRecord) -> ManifestState:
    """The state after a publish: registrations first, then the other changes in order, then the commit and the head.

    Raises:
        InternalError: a change breaks a row rule; nothing is published then.
    """
    if commit.graph_commit_id in state.commits:
        raise InternalError(f"commit {commit.graph_commit_id} is published already")
    locations, latest, tombstones = dict(state.locations), dict(state.latest), dict(state.tombstones)
    for change in changes:
        if isinstance(change, RegisterTable):
            _register(locations, change)
    touched: set[TableKey] = set()
    schema = state.schema
    for change in changes:
        if isinstance(change, SetSchema):
            schema = change.record
        elif isinstance(change, UpdateTable):
            if change.table_key in touched:
                raise InternalError(f"'{change.table_key}' is published twice in one request")
            touched.add(change.table_key)
            _update(state, locations, latest, change)
        elif isinstance(change, TombstoneTable):
            _tombstone(locations, tombstones, change)
    head = Head(state.branch, commit.graph_commit_id, commit.parent_commit_id)
    after = replace(
        state,
        version=commit.manifest_version,
        locations=locations,
        latest=latest,
        tombstones=tombstones,
        commits={**state.commits, commit.graph_commit_id: commit},
        heads={**state.heads, state.branch: head},
        schema=schema,
    )
    commit_rows = state.commit_rows.followed_by(commit)
    if commit_rows is not None:
        after.__dict__["commit_rows"] = commit_rows
    return after


def _register(locations: dict[TableKey, TableLocation], change: RegisterTable) -> None:
    known = locations.get(change.table_key)
    if known is not None and known.incarnation == change.incarnation and known.path != change.path:
        raise InternalError(f"'{change.table_key}' is already registered at '{known.path}'")
    locations[change.table_key] = TableLocation(change.table_key, change.path, change.incarnation)


def _update(
    state: ManifestState,
    locations: Mapping[TableKey, TableLocation],
    latest: dict[TableKey, TableEntry],
    change: UpdateTable,
) -> None:
    location = locations.get(change.table_key)
    if location is None:
        raise InternalError(f"'{change.table_key}' is not registered")
    entry = TableEntry(
        change.table_key,
        location.path,
        change.version,
        change.branch,
        change.row_count,
        location.incarnation,
        dict(change.metadata),
    )
    current = latest.get(change.table_key)
    if current is not None and current.incarnation == entry.incarnation and entry.version <= current.version:
        handed_off = entry.version == current.version and entry.row_count == current.row_count
        if not handed_off:
            raise InternalError(
                f"'{change.table_key}' would go from version {current.version} back to {entry.version}"
                f" on branch {state.branch}"
            )
    latest[change.table_key] = entry


def _tombstone(
    locations: Mapping[TableKey, TableLocation], tombstones: dict[TableKey, Tombstone], change: TombstoneTable
) -> None:
    location = locations.get(change.table_key)
    if location is None:
        raise InternalError(f"'{change.table_key}' is not registered")
    tombstone = Tombstone(change.table_key, change.version, location.incarnation)
    if tombstones.get(change.table_key) == tombstone:
        raise InternalError(f"'{change.table_key}' already has this tombstone")
    tombstones[change.table_key] = tombstone


def without_commits(state: ManifestState, archived: Iterable[CommitId]) -> ManifestState:
    """The state without commits that the commit table provably holds.

    The heads stay, and so does the newest commit of every stream: its properties say how far the stream has come.
    """
    keep = {head.commit_id for head in state.heads.values()}
    streams: dict[str, CommitRecord] = {}
    for commit in sorted(state.commits.values(), key=lambda c: c.order):
        if STREAM_PROPERTY in commit.properties:
            streams[commit.properties[STREAM_PROPERTY]] = commit
    keep.update(commit.graph_commit_id for commit in streams.values())
    gone = set(archived) - keep
    return replace(state, commits={cid: commit for cid, commit in state.commits.items() if cid not in gone})


def genesis(entries: Sequence[TableEntry], commit: CommitRecord) -> ManifestState:
    """The first state of a new graph."""
    return ManifestState(
        MAIN,
        commit.manifest_version,
        {e.table_key: TableLocation(e.table_key, e.path, e.incarnation) for e in entries},
        {entry.table_key: entry for entry in entries},
        {},
        {commit.graph_commit_id: commit},
        {MAIN: Head(MAIN, commit.graph_commit_id, None)},
    )
