"""A write as a value: everything `commit` needs to know of it.

Nothing here does anything. The intent that is stored, the expectations that are demanded and the changes that are
published all follow from one request, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from omnigraph.catalog.migration import key_orders
from omnigraph.catalog.model import Catalog
from omnigraph.engine.commit.cancellation import Cancellation
from omnigraph.engine.commit.kinds import Kind
from omnigraph.engine.coordination.intent import (
    Adoption,
    Effect,
    Intent,
    Registration,
    TableTombstone,
    new_intent,
)
from omnigraph.engine.coordination.lock import HeldLock
from omnigraph.engine.manifest.delta import Change, RegisterTable, SetSchema, TombstoneTable, UpdateTable
from omnigraph.engine.manifest.records import SchemaRecord, TableEntry
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import StagedWrite
from omnigraph.errors import InternalError
from omnigraph.ids import CommitId, TableKey, stored_branch
from omnigraph.interrupts import nothing

Stage: TypeAlias = Callable[[TableHandle], StagedWrite | None]
"""Stages one change of a table on the version it is given; None when there is nothing to do."""


class Coming(Struct, frozen=True):
    """A change whose files another thread may still be writing, and how it is had."""

    wait: Callable[[], StagedWrite]

    def __call__(self, head: TableHandle) -> StagedWrite:
        """A stage like others, except that it has begun."""
        return self.wait()


Step: TypeAlias = StagedWrite | Stage
"""One commit to a table: staged already, or to be staged on the version the step before has made."""


class TableCommit(Struct, frozen=True):
    """One effect: a table as the write saw it, the commits on it in order, and what it is called afterwards.

    `becomes` None makes the table disappear. `base` is the opened version that the first step is staged on. With
    `forks` the branch first gets a line of the table of its own, so nothing is staged yet and `base` is None.
    """

    entry: TableEntry
    steps: tuple[Step, ...]
    becomes: TableKey | None
    base: TableHandle | None = None
    forks: bool = False
    staged_elsewhere: bool = False
    """True when other processes have staged its files, whom nothing protects but their being looked for."""

    def __post_init__(self) -> None:
        if not self.steps or (self.base is None) != self.forks:
            raise InternalError(f"the change of '{self.table_key}' was not staged")

    @property
    def table_key(self) -> TableKey:
        """What the table is called until this write is visible."""
        return self.entry.table_key

    @property
    def staged(self) -> tuple[StagedWrite, ...]:
        """What was staged before the write is armed."""
        return tuple(step for step in self.steps if isinstance(step, StagedWrite))

    @property
    def foreseen(self) -> Reached | None:
        """Where the table will be after its commits; None when that is not known before they are staged."""
        if self.base is None or len(self.staged) != len(self.steps):
            return None
        return Reached(self.base.version + len(self.steps), self.base.branch, _row_delta(self.staged))

    def arrived(self) -> TableCommit:
        """The same, once the files that other threads write for it are there."""
        return replace(self, steps=tuple(step.wait() if isinstance(step, Coming) else step for step in self.steps))


class TablePointer(Struct, frozen=True):
    """A table whose entry changes without a commit: from here on the branch shows a version that exists."""

    entry: TableEntry
    version: int
    branch: str | None
    row_count: int
    metadata: Mapping[str, Any] = field(default_factory=dict)


class NewTable(Struct, frozen=True):
    """An empty table that the write creates, at a place where none ever was."""

    table_key: TableKey
    schema: pa.Schema


class SchemaExchange(Struct, frozen=True):
    """The schema that takes the place of the accepted one, and the lock that keeps everybody else away meanwhile."""

    accepted_text: str
    desired_text: str
    target: Catalog
    lock: HeldLock

    @property
    def record(self) -> SchemaRecord:
        """What the manifest is to say of the schema."""
        return SchemaRecord(self.target.schema_hash, key_orders(self.target))


class Reached(Struct, frozen=True):
    """Where a table is after its commits: the version, the branch that has it, and how many rows were won."""

    version: int
    branch: str | None
    row_delta: int


class Applied(Struct, frozen=True):
    """What one table has become: the version it has reached, and what was committed."""

    head: TableHandle
    staged: tuple[StagedWrite, ...]

    @property
    def reached(self) -> Reached:
        """Where the table is now."""
        return Reached(self.head.version, self.head.branch, _row_delta(self.staged))


def _row_delta(staged: tuple[StagedWrite, ...]) -> int:
    return sum(each.row_delta for each in staged)


Listener: TypeAlias = Callable[[Mapping[TableKey, Applied]], Callable[[Snapshot], None]]
"""Told what is about to be published, while storage is waited for; what it returns is told what was."""


def _unheard(_: Mapping[TableKey, Applied]) -> Callable[[Snapshot], None]:
    return lambda published: None


class Requirements(Struct, frozen=True):
    """What must hold for the write to become visible.

    `read_set` are versions of tables that it only read. A change of a `strict` table refuses it, that of any other
    makes it stale. `head` is the commit the branch has to be at. `staged_since` is when its first file was written.
    `deadline`, by the monotonic clock, is until when others may be waited for. `check` raises a `ConflictError` when
    what else the write rests on is gone; it is asked once the intent is armed, before the first effect.
    """

    read_set: Mapping[TableKey, int] = field(default_factory=dict)
    strict: frozenset[TableKey] = frozenset()
    head: CommitId | None = None
    staged_since: int | None = None
    deadline: float = 0.0
    check: Callable[[], None] = nothing


class CommitRequest(Struct, frozen=True, dict=True):
    """A write: its kind, the state it was prepared on, what happens to which table, and what must hold."""

    kind: Kind
    branch: str
    base: Snapshot
    tables: tuple[TableCommit, ...] = ()
    pointers: tuple[TablePointer, ...] = ()
    creates: tuple[NewTable, ...] = ()
    schema: SchemaExchange | None = None
    requires: Requirements = field(default_factory=Requirements)
    actor: str | None = None
    merged_parent: CommitId | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    cancellation: Cancellation = field(default_factory=Cancellation)
    listener: Listener = _unheard

    @property
    def has_effects(self) -> bool:
        """False when one publish is all there is to it, so that no crash can leave anything to finish."""
        return bool(self.tables or self.creates or self.schema is not None)

    def arrived(self) -> CommitRequest:
        """The same, once all files that other threads write for it are there."""
        if not any(isinstance(step, Coming) for table in self.tables for step in table.steps):
            return self
        return replace(self, tables=tuple(table.arrived() for table in self.tables))

    @cached_property
    def ordered(self) -> list[TableCommit]:
        """The tables in the one order everybody commits in."""
        return sorted(self.tables, key=lambda table: table.table_key)

    @cached_property
    def seen(self) -> dict[TableKey, int]:
        """The version of every table that is written, pointed elsewhere or read, as the write saw it."""
        changed = [*(table.entry for table in self.tables), *(pointer.entry for pointer in self.pointers)]
        versions = {**self.requires.read_set, **{entry.table_key: entry.version for entry in changed}}
        return {key: versions[key] for key in sorted(versions)}

    @property
    def expected(self) -> dict[TableKey, int]:
        """What the publish demands: `seen`, and that nobody has taken a key that becomes visible."""
        new = {each.table_key: self.base.state.current_version(each.table_key) for each in self.registrations}
        return {**self.seen, **new}

    @cached_property
    def registrations(self) -> tuple[Registration, ...]:
        """Every key that becomes visible: new tables, and old ones under new names."""
        renamed = [
            Registration(table.becomes, table.entry.path, None, self._incarnation(table.becomes))
            for table in self.tables
            if table.becomes is not None and table.becomes != table.table_key
        ]
        created = [
            Registration(new.table_key, layout.table_path(new.table_key, number), None, number)
            for new in self.creates
            for number in [self._incarnation(new.table_key)]
        ]
        return (*created, *renamed)

    def _incarnation(self, key: TableKey) -> int:
        known = self.base.state.locations.get(key)
        return 1 if known is None else known.incarnation + 1


def intent_of(request: CommitRequest) -> Intent:
    """The note of all that a request is about to do."""
    if request.kind.writer is None:
        raise InternalError(f"a {request.kind.name} only publishes, and has no effects")
    branch = stored_branch(request.branch)
    effects = tuple(
        Effect.on(
            table.table_key,
            table.entry.path,
            table.entry.version,
            branch=branch,
            steps=len(table.steps),
            fork=table.forks,
        )
        for table in request.ordered
    )
    return new_intent(
        request.kind.writer,
        branch,
        effects,
        actor_id=request.actor,
        read_set=request.requires.read_set,
        merge_source_commit_id=request.merged_parent,
        expected_head=request.requires.head,
        registrations=request.registrations,
        tombstones=tuple(
            TableTombstone(table.table_key, table.entry.version + len(table.steps))
            for table in request.ordered
            if table.becomes != table.table_key
        ),
        adoptions=tuple(
            Adoption(each.entry.table_key, each.entry.path, each.version, each.branch, each.entry.version)
            for each in request.pointers
        ),
        target_schema_hash=None if request.schema is None else request.schema.target.schema_hash,
        commit_properties=dict(request.properties),
    )


def foreseen_changes(request: CommitRequest, intent: Intent) -> list[Change] | None:
    """What the publish will say if every commit lands where it is staged; None when that cannot be known yet."""
    if request.schema is not None or request.creates:
        return None
    places = {table.table_key: table.foreseen for table in request.tables}
    reached = {key: place for key, place in places.items() if place is not None}
    return changes_of(request, intent, reached) if len(reached) == len(places) else None


def changes_of(request: CommitRequest, intent: Intent | None, reached: Mapping[TableKey, Reached]) -> list[Change]:
    """What the publish says, once every table is where it was to go."""
    changes: list[Change] = [RegisterTable(r.table_key, r.table_path, r.incarnation) for r in request.registrations]
    changes.extend(UpdateTable(new.table_key, 1, None, 0) for new in request.creates)
    for table in request.ordered:
        place = reached[table.table_key]
        if table.becomes is not None:
            facts = {} if intent is None else intent.table_facts(place.branch)
            rows = table.entry.row_count + place.row_delta
            changes.append(UpdateTable(table.becomes, place.version, place.branch, rows, facts))
        if table.becomes != table.table_key:
            changes.append(TombstoneTable(table.table_key, place.version))
    for pointer in sorted(request.pointers, key=lambda each: each.entry.table_key):
        changes.append(
            UpdateTable(pointer.entry.table_key, pointer.version, pointer.branch, pointer.row_count, pointer.metadata)
        )
    return changes if request.schema is None else [*changes, SetSchema(request.schema.record)]
