"""Writes that wait for the same branch are published together, as one commit that lists them.

Publishing takes three commits of storage whatever is published, so writes that come at the same moment share them.
Whoever finds nobody at work leads: it takes everybody who waits, itself included, runs their programs in turn, each on
the state that the earlier ones left (`layer`), and hands what they all did to `write` as one change of each table.
Those who come while it runs programs go along: callers who were just answered come again within that time, and would
otherwise always wait for the next group, each half as large. Each is judged by itself and refused by itself, and hears
its own outcome once the commit is there. Nobody waits for company: a write that is alone is written as ever.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.engine.commit.path import Committed
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.manifest.records import GROUP, KEY, MESSAGE, CommitWrite, with_writes
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import settle
from omnigraph.engine.storage.durability import is_full
from omnigraph.engine.write.attached import detached, patience
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.layer import LaidView, Layer
from omnigraph.engine.write.queue import More, Place
from omnigraph.engine.write.transaction import Transaction, WriteRequest, WrittenFragments
from omnigraph.engine.write.writer import Written, write
from omnigraph.errors import (
    ConflictError,
    GraphError,
    InternalError,
    RecoveryRequiredError,
    StorageError,
    VersionReclaimedError,
)
from omnigraph.ids import TableKey, new_ulid

LAYER_ROWS_MAX = 8_192
"""Behind so many rows a group is closed; who is left goes with the next one."""
_HISTORY_MAX = 1_000
"""How far back a commit is looked for whose leader was interrupted."""

T = TypeVar("T")


class Joining(Struct, Generic[T], frozen=True):
    """A write that may be published together with others: what `write` is told of it, and how a commit lists it."""

    context: GraphContext
    request: WriteRequest
    prepare: Callable[[Transaction], T]
    told: Callable[[T], CommitWrite]
    tables: Sequence[TableKey] = ()
    fragments: WrittenFragments | None = None

    def alone(self, base: Snapshot | None = None) -> Written[T]:
        """Write it by itself.

        Raises:
            As `write`.
        """
        return write(self.context, self.request, self.prepare, base=base, tables=self.tables, fragments=self.fragments)

    def listed(self, value: T, properties: Mapping[str, str]) -> CommitWrite:
        """The write as a commit lists it, with the properties it would have by itself."""
        known = dict(properties)
        message, key = known.pop(MESSAGE, None), known.pop(KEY, None)
        return dataclasses.replace(
            self.told(value), actor_id=self.request.actor, message=message, key=key, properties=known
        )


def write_together(joining: Joining[T], *, base: Snapshot | None = None, apart: bool = False) -> Written[T]:
    """Run one write to its end, together with others of its branch where the graph groups writes.

    A write that is bound to a commit or to a snapshot is written by itself. One that keeps `apart` waits as the others
    do, so that they do not overtake each other, and is published alone.

    Raises:
        UnavailableError: it could not begin in time; nothing changed.
        As `write`.
    """
    queues = joining.context.queues
    if queues is None or base is not None or joining.request.if_commit is not None:
        return joining.alone(base)
    member = Member(joining, apart=apart)
    queue = queues.of(joining.request.branch, full=is_full(joining.context.store.durability))
    queue.carry_out(member, lambda members, more: Group(members, more).carry_out())
    return member.outcome()


class Member(Place, Generic[T]):
    """One write in the queue, and what becomes of it."""

    def __init__(self, joining: Joining[T], *, apart: bool = False) -> None:
        super().__init__(object() if apart else joining.context.catalog, patience())
        self.joining = joining
        self._thread = threading.get_ident()
        self.group: str | None = None
        """What the commit that it becomes a part of is called, so that it can be found."""
        self.independent = False
        """True when no write that was not published yet had a part in how this one was judged."""
        self.listed: CommitWrite | None = None
        self.properties: Mapping[str, str] = {}
        self._strict: dict[TableKey, int] = {}
        self._value: T | None = None
        self._error: BaseException | None = None
        self._written: Written[T] | None = None

    # --- its turn --------------------------------------------------------------------------------------------------

    def run(self, group: Transaction, layer: Layer) -> None:
        """Run the program on what the earlier ones left, and lay over that what it does; or keep why not."""
        joining, self.listed, self._error = self.joining, None, None
        self.independent = not layer.tables
        view = LaidView(group.snapshot, layer) if layer.tables else None
        mine = Transaction(joining.context.catalog, group.snapshot, joining.request, view=view)
        try:
            joining.request.cancellation.check()
            self._value = joining.prepare(mine)
            mine.validate()
            mine.hold_strict(self._strict)
        except VersionReclaimedError:
            raise  # What all of them read is gone.
        except Exception as refused:  # noqa: BLE001 - whatever stops one write is told to its caller, and to no other
            self._error = refused
        else:
            for write_of_table in mine.writes.values():
                if write_of_table.rows is None:
                    raise InternalError(f"a write of '{write_of_table.table_key}' cannot be published with others")
                layer.absorb(joining.context.catalog.tables[write_of_table.table_key], write_of_table.rows)
            if mine.writes:
                self.properties = mine.request.properties
                self.listed = joining.listed(self._value, self.properties)
        finally:
            group.depend_on(mine.expected)

    # --- how it ended ----------------------------------------------------------------------------------------------

    def settle(self, committed: Committed | None) -> None:
        """Keep what became of it, now that those before it are published."""
        if self._error is None:
            self._written = Written(self._value, committed if self.listed is not None else None)  # type: ignore[arg-type]
        self.finish()

    def fail(self, error: BaseException) -> None:
        """Keep that it could not be written; a refusal that rests on nothing but published state stands."""
        if not (self.independent and self.listed is None):
            self._error, self._written = error, None
        self.settle(None)

    def write_alone(self) -> None:
        """Write it by itself after all."""
        self._error, self.listed, self.group = None, None, new_ulid()
        try:
            self._written = replace(self.joining, prepare=self._prepare_alone).alone()
        except Exception as refused:  # noqa: BLE001 - told to its caller
            self._error = refused
        self.finish()

    def _prepare_alone(self, transaction: Transaction) -> T:
        """Its program; where another thread runs it, the commit says whose it is, as that of a group does."""
        self._value = self.joining.prepare(transaction)
        if threading.get_ident() != self._thread:
            named = {**transaction.request.properties, GROUP: str(self.group)}
            with detached():
                transaction.request = replace(transaction.request, properties=named)
            self.listed = self.joining.listed(self._value, named)
        return self._value

    def outcome(self) -> Written[T]:
        """What became of it; asked by its own caller.

        Raises:
            As `write`.
        """
        if self.abandoned:
            return self._found()
        if self._error is not None:
            raise self._error
        if self._written is None:
            raise InternalError("a write was neither written nor refused")
        return self._written

    def _found(self) -> Written[T]:
        """What became of it although its leader could not tell: it is in the history, or is written now."""
        if self.group is None:
            return self.joining.alone()  # Nobody had begun with it.
        context, branch = self.joining.context, self.joining.request.branch
        settle(context.recovery, lambda intent: intent.commit_properties.get(GROUP) == self.group)
        history = context.manifest.history
        for commit in history.list(branch, limit=_HISTORY_MAX):
            if self.listed is not None and commit.properties.get(GROUP) == self.group:
                state = Committed(history.snapshot_of(commit), commit.graph_commit_id, {})
                return Written(self._value, state)  # type: ignore[arg-type]
        return self.joining.alone()


class Group:
    """Writes that are published together."""

    def __init__(self, members: Sequence[Member[Any]], more: More[Member[Any]] = tuple) -> None:
        self.id = new_ulid()
        self.members: list[Member[Any]] = []
        self.left: Sequence[Member[Any]] = ()
        self._more = more
        self._join(members)

    def _join(self, members: Sequence[Member[Any]]) -> bool:
        """Let them belong to the group; whether there are any."""
        for member in members:
            member.group = self.id
        self.members.extend(members)
        return bool(members)

    def _arrived(self) -> bool:
        """Whether more have come; who is on the way gets the interpreter, if only for a moment."""
        time.sleep(0)
        return self._join(self._more())

    def carry_out(self) -> Sequence[Member[Any]]:
        """Write them, each as if it came after the one before it; returns those who are left for the next group."""
        if len(self.members) == 1 and not self._arrived():
            self.members[0].write_alone()
        else:
            self._write_all()
        return self.left

    def _write_all(self) -> None:
        first = self.members[0].joining
        tables = sorted({key for member in self.members for key in member.joining.tables})
        with detached():
            request = WriteRequest(first.request.branch, WriterKind.MUTATION)
        try:
            written = write(first.context, request, self._prepare, tables=tables)
        except (ConflictError, RecoveryRequiredError, StorageError) as failure:
            for member in self._ran:
                member.fail(failure)
        except GraphError:
            # Nothing was written, and one of them may be to blame: by itself each hears what is its own.
            self._each(Member.write_alone)
        else:
            if written.committed is None and any(member.listed is not None for member in self._ran):
                # What they did comes to nothing, and a commit of nothing is none; one by one each has its own.
                self._each(Member.write_alone)
            else:
                self._each(lambda member: member.settle(written.committed))

    @property
    def _ran(self) -> Sequence[Member[Any]]:
        return self.members[: len(self.members) - len(self.left)]

    def _each(self, end: Callable[[Member[Any]], None]) -> None:
        for member in self._ran:
            end(member)

    def _prepare(self, transaction: Transaction) -> None:
        layer = Layer()
        self.left, ran = (), 0
        for member in self.members:
            member.listed = None  # An earlier attempt may have come to some that this one leaves.
        while ran < len(self.members) or self._arrived():
            if layer.rows > LAYER_ROWS_MAX:
                self.left = self.members[ran:]
                break
            self.members[ran].run(transaction, layer)
            ran += 1
        for table in layer.tables.values():
            if not table.is_empty:
                transaction.adopt(table.entity, table.resolved())
        self._describe(transaction)

    def _describe(self, transaction: Transaction) -> None:
        """Let the commit say who wrote what; where only one did, it is that one's commit like any other."""
        wrote = [member for member in self._ran if member.listed is not None]
        actors = {member.joining.request.actor for member in wrote}
        actor = actors.pop() if len(actors) == 1 else None
        if len(wrote) == 1:
            properties = {**wrote[0].properties, GROUP: self.id}
        else:
            properties = with_writes([member.listed for member in wrote if member.listed is not None], self.id)
        with detached():
            transaction.request = replace(transaction.request, actor=actor, properties=properties)
