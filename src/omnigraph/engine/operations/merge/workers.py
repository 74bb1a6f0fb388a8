"""One table of a merge decided and written by workers elsewhere, where it is more than this process should hold.

What becomes of an entity depends on nothing but that entity. So the workers read the ids of the rows in question and
gather them into groups of ids, and each group is decided by the very code that decides a table in this process. What
comes back are decisions: for each entity that changes where its row lies. Rows that are written anew are read and
written by workers too, and so are deletion files (`writing`); this process takes files over, checks the rules and holds
the one commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.changes.delta import Candidates, Offsets, Part, live_rows
from omnigraph.engine.changes.equality import Bools
from omnigraph.engine.changes.located import Located
from omnigraph.engine.changes.rows import RowChanges, candidate_ids, paired_ids, without_equal
from omnigraph.engine.ingest.stage import SchemaText
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.operations.merge.compose import Mixed, column_groups
from omnigraph.engine.operations.merge.decided import OpenRows, Removed, Rows, TableMerge, Taken
from omnigraph.engine.operations.merge.plan import Strategy, TableSides, decide
from omnigraph.engine.operations.merge.sides import TableMeeting
from omnigraph.engine.operations.merge.virtual import Ancestors, VirtualBase
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.packing import packs
from omnigraph.engine.values.entities import Entity
from omnigraph.ids import CommitId, TableKey

GROUP_ROWS = 250_000
"""About how many rows one worker decides about at once."""
READ_ROWS = 1_000_000
"""About how many ids one worker reads."""

READ = pa.schema([("id", pa.string()), ("source", pa.int32()), ("at", pa.int64())])
"""A row in question: its id, for which question, and where it lies."""
_PLACES = [(f"{side}_{part}", pa.int64()) for side in ("base", "theirs", "ours") for part in ("which", "at")]
DECIDED = pa.schema([("what", pa.int32()), ("id", pa.string()), *_PLACES, ("from_theirs", pa.binary())])
"""What becomes of an entity, and where the three states have it: the number of a version and an address."""

Act = Callable[[pa.Table], pa.Table]


class Workers(Protocol):
    """Whoever runs functions on parts of the data elsewhere; what is handed to them can be pickled."""

    def by_id(self, read: Callable[[int], Iterator[pa.RecordBatch]], tasks: int, groups: int, act: Act) -> pa.Table:
        """Have rows (`READ`) read by so many tasks, gathered by id into about so many groups, and each acted on.

        Returns what all of them gave (`DECIDED`), in any order.
        """

    def by_group(self, rows: pa.Table, act: Act, schema: pa.Schema) -> pa.Table:
        """Have rows of this process acted on, those with the same `group` together; what all gave, in any order."""


class Crew(Struct, frozen=True):
    """Workers, and what they need to know of the graph: where it is, and its schema."""

    workers: Workers
    root: str
    schema: SchemaText


class _What(IntEnum):
    TAKEN = 0
    REMOVED = 1
    KEPT = 2
    OPEN = 3
    MIXED = 4
    TOLD = 5
    """Not an entity: what a group tells of itself."""


class _Read(Struct, frozen=True):
    """Some rows of one fragment whose ids are needed, all live ones where no offsets are given."""

    source: int
    table: TableAt
    fragment: int
    offsets: Offsets | None
    rows: int


class _Reading(Struct, frozen=True):
    """All of them, by task."""

    tasks: tuple[list[_Read], ...]

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        for each in self.tasks[number]:
            yield _read_ids(each)


class TableTask(Struct, frozen=True):
    """One table of a merge, as workers get it: versions by number, and which of them are compared.

    The rows of pair `n` come from source `2n` (the older version) and `2n + 1`; the last source holds rows of ours that
    are not where the base has them.
    """

    schema: SchemaText
    key: TableKey
    strategy: Strategy | None
    versions: tuple[TableAt, ...]
    theirs: int
    ours: int
    base: int | None
    pairs: tuple[tuple[int, int], ...]
    at_base: bool
    compared: bool
    ancestors: Ancestors
    ancestor_versions: dict[CommitId, int]

    @property
    def found_at(self) -> int:
        """The source of rows of ours that are looked up."""
        return 2 * len(self.pairs)

    def decide(self, rows: pa.Table) -> pa.Table:
        """Decide what becomes of the entities of one group."""
        handles = [table.open() for table in self.versions]
        sources = np.asarray(rows.column("source").to_numpy(), dtype=np.int64)
        ids = wide.one_array(rows.column("id")).cast(pa.large_string())
        places = rows.column("at").to_numpy().astype(np.uint64)

        def of(source: int) -> tuple[pa.Array, Addresses]:
            mine = np.flatnonzero(sources == source)
            return wide.take(ids, mine), places[mine]

        def touched(older: TableHandle, newer: TableHandle) -> RowChanges:
            number = next(n for n, (a, b) in enumerate(self.pairs) if handles[a] is older and handles[b] is newer)
            return paired_ids(*of(2 * number), *of(2 * number + 1))

        def find(wanted: pa.Array) -> tuple[Addresses, Bools]:
            known, at = of(self.found_at)
            partner = pc.index_in(wanted.cast(pa.large_string()), value_set=known)
            there = np.asarray(partner.is_valid(), dtype=np.bool_)
            found = np.zeros(len(wanted), dtype=np.uint64)
            found[there] = at[partner.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)]
            return found, there

        def ancestor(commit: CommitId) -> tuple[TableHandle, RowChanges]:
            handle = handles[self.ancestor_versions[commit]]
            return handle, without_equal(handles[self.ours], handle, touched(handles[self.ours], handle))

        sides = TableSides(
            self.schema.catalog.tables[self.key],
            handles[self.theirs],
            handles[self.ours],
            None if self.base is None else handles[self.base],
            touched,
            find,
            self.at_base,
            self.compared,
            None if self.base is not None else VirtualBase(self.ancestors, ancestor).locate,
        )
        return _encoded(decide(sides, self.strategy), handles)


def decide_elsewhere(crew: Crew, meeting: TableMeeting, strategy: Strategy | None) -> TableMerge:
    """What the target gets of one table, as `decide` says it, found by workers."""
    task, handles = _task(crew, meeting, strategy)
    reads = list(_reads(meeting, task))
    reading = _Reading(tuple(packs(reads, lambda each: each.rows, READ_ROWS)))
    groups = max(1, -(-sum(each.rows for each in reads) // GROUP_ROWS))
    return _decoded(crew.workers.by_id(reading.read, len(reading.tasks), groups, task.decide), meeting, handles)


def _task(crew: Crew, meeting: TableMeeting, strategy: Strategy | None) -> tuple[TableTask, list[TableHandle]]:
    handles: list[TableHandle] = []

    def number(handle: TableHandle) -> int:
        known = [(each.branch, each.version) for each in handles]
        if (handle.branch, handle.version) not in known:
            handles.append(handle)
            return len(handles) - 1
        return known.index((handle.branch, handle.version))

    theirs, ours = number(meeting.theirs), number(meeting.ours)
    base = None if meeting.base is None else number(meeting.base)
    pairs = tuple((number(pair.older), number(pair.newer)) for pair in meeting.pairs)
    ancestors = {commit: number(handle) for commit, handle in meeting.ancestors.items()}
    versions = tuple(TableAt.of(crew.root, meeting.entry(handle)) for handle in handles)
    task = TableTask(
        crew.schema,
        meeting.key,
        strategy,
        versions,
        theirs,
        ours,
        base,
        pairs,
        meeting.at_base,
        meeting.compared,
        meeting.sides.ancestors,
        ancestors,
    )
    return task, handles


def _reads(meeting: TableMeeting, task: TableTask) -> Iterator[_Read]:
    """The rows whose ids are needed."""
    for number, (pair, (older, newer)) in enumerate(zip(meeting.pairs, task.pairs, strict=True)):
        for source, version, candidates in (
            (2 * number, older, pair.delta.removed),
            (2 * number + 1, newer, pair.delta.added),
        ):
            for part in candidates.parts:
                offsets = None if part.is_whole else part.offsets
                yield _Read(source, task.versions[version], part.fragment.id, offsets, part.count)
    if meeting.base is None or meeting.at_base:
        return
    then = {fragment.files for fragment in meeting.base.fragments()}
    now = {fragment.files for fragment in meeting.ours.fragments()}
    if then <= now:
        return
    # Rows that ours has moved are not where the base has them, and are looked up by id.
    for fragment in meeting.ours.fragments():
        if fragment.files not in then and fragment.live_rows:
            yield _Read(task.found_at, task.versions[task.ours], fragment.id, None, fragment.live_rows)


def _read_ids(wanted: _Read) -> pa.RecordBatch:
    handle = wanted.table.open()
    [fragment] = [each for each in handle.fragments() if each.id == wanted.fragment]
    part = live_rows(handle, fragment) if wanted.offsets is None else Part.of(fragment, wanted.offsets)
    candidates = Candidates((part,))
    ids = candidate_ids(handle, candidates).cast(pa.string())
    sources = pa.array(np.full(len(ids), wanted.source, dtype=np.int32))
    return pa.RecordBatch.from_arrays([ids, sources, pa.array(candidates.addresses.astype(np.int64))], schema=READ)


# --- decisions on their way ------------------------------------------------------------------------------------------


def _encoded(found: TableMerge, handles: Sequence[TableHandle]) -> pa.Table:
    """What was decided about one group of entities."""
    parts = [_rows(_What.TAKEN, part.ids, handles, theirs=part.rows, ours=part.over) for part in found.taken]
    parts += [_rows(_What.REMOVED, part.ids, handles, ours=part.over) for part in found.removed]
    parts += [
        _rows(_What.MIXED, part.ids, handles, theirs=part.theirs, ours=part.ours, from_theirs=packed(part))
        for part in found.mixed
    ]
    if found.open_rows is not None:
        rows = found.open_rows.rows
        parts.append(_rows(_What.OPEN, rows.ids, handles, rows.base, rows.theirs, rows.ours))
    if found.kept is not None and isinstance(found.entity, EdgeType):
        # Of what only ours has changed nothing but new edges is asked for.
        kept = found.kept.where(found.kept.base.absent & found.kept.ours.present)
        parts.append(_rows(_What.KEPT, kept.ids, handles, kept.base, kept.theirs, kept.ours))
    told = json.dumps({"resolved": found.resolved, "exact": found.counts_exact})
    nothing = Located.of(found.ours, np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.bool_))
    parts.append(_rows(_What.TOLD, pa.array([told]), handles, ours=nothing))
    return pa.concat_tables(parts)


def _rows(
    what: _What,
    ids: pa.Array,
    handles: Sequence[TableHandle],
    base: Located | None = None,
    theirs: Located | None = None,
    ours: Located | None = None,
    from_theirs: pa.Array | None = None,
) -> pa.Table:
    columns: list[Any] = [pa.array(np.full(len(ids), what, dtype=np.int32)), ids.cast(pa.string())]
    for side in (base, theirs, ours):
        columns += _numbered(side, handles, len(ids))
    columns.append(pa.nulls(len(ids), pa.binary()) if from_theirs is None else from_theirs)
    return pa.Table.from_arrays(columns, schema=DECIDED)


def _numbered(side: Located | None, handles: Sequence[TableHandle], count: int) -> list[pa.Array]:
    """Places by the numbers that all workers give the versions; the two codes below zero stay what they are."""
    if side is None:
        return [pa.nulls(count, pa.int64()), pa.nulls(count, pa.int64())]
    numbers = [next(n for n, each in enumerate(handles) if each is handle) for handle in side.handles]
    which = np.asarray([*numbers, -2, -1], dtype=np.int64)[side.which]
    return [pa.array(which), pa.array(side.at.astype(np.int64))]


def packed(mixed: Mixed) -> pa.Array:
    """Of each entity a bit for every column: whether it is that of theirs."""
    marks = np.stack([mixed.from_theirs[name] for name in sorted(mixed.from_theirs)], axis=1)
    bits = np.packbits(marks, axis=1)
    width = pa.binary(bits.shape[1])
    return pa.FixedSizeBinaryArray.from_buffers(width, len(bits), [None, pa.py_buffer(bits.tobytes())]).cast(
        pa.binary()
    )


def unpacked(entity: Entity, packed: pa.ChunkedArray) -> dict[str, Bools]:
    """The same by column."""
    names = sorted(name for group in column_groups(entity) for name in group)
    width = -(-len(names) // 8)
    values = wide.one_array(packed).cast(pa.binary(width))
    start = values.offset * width
    bits = np.frombuffer(values.buffers()[1], dtype=np.uint8)[start : start + len(values) * width]
    marks = np.unpackbits(bits.reshape(len(values), width), axis=1)
    return {name: marks[:, number].astype(np.bool_) for number, name in enumerate(names)}


def _decoded(rows: pa.Table, meeting: TableMeeting, handles: Sequence[TableHandle]) -> TableMerge:
    """What was decided about all entities, by ascending id as if it had been decided here."""
    found = TableMerge(meeting.key, meeting.entity, meeting.theirs, meeting.ours, at_base=meeting.at_base)
    versions = tuple(handles)

    def of(what: _What) -> pa.Table:
        return rows.filter(pc.equal(rows.column("what"), int(what))).sort_by("id")

    def side(some: pa.Table, name: str) -> Located:
        which = some.column(f"{name}_which").to_numpy().astype(np.int16)
        return Located(versions, which, some.column(f"{name}_at").to_numpy().astype(np.uint64))

    def ids(some: pa.Table) -> pa.Array:
        return wide.one_array(some.column("id")).cast(pa.large_string())

    def three(some: pa.Table) -> Rows:
        return Rows(ids(some), side(some, "base"), side(some, "theirs"), side(some, "ours"))

    taken, removed, mixed, kept, left = (
        of(what) for what in (_What.TAKEN, _What.REMOVED, _What.MIXED, _What.KEPT, _What.OPEN)
    )
    if taken.num_rows:
        found.taken.append(Taken(ids(taken), side(taken, "theirs"), side(taken, "ours")))
    if removed.num_rows:
        found.removed.append(Removed(ids(removed), side(removed, "ours")))
    if mixed.num_rows:
        marks = unpacked(meeting.entity, mixed.column("from_theirs"))
        found.mixed.append(Mixed(ids(mixed), side(mixed, "ours"), side(mixed, "theirs"), marks))
    found.kept = three(kept)
    if left.num_rows:
        found.open_rows = OpenRows(meeting.key, meeting.entity, three(left))
    for told in map(json.loads, of(_What.TOLD).column("id").to_pylist()):
        found.counts_exact &= bool(told["exact"])
        for how, number in told["resolved"].items():
            found.count(how, number)
    return found
