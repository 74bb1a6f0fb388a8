"""One merge as seen from one state of its target: what the target would get, and everything that is in conflict.

Nothing is written here. The source is what it was when the merge was asked for; the target is whatever it is now.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Mapping
from functools import cache, partial

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from omnigraph.catalog.model import Catalog
from omnigraph.engine.changes.delta import Delta, delta
from omnigraph.engine.changes.diff import State, same_version
from omnigraph.engine.ingest.stage import SchemaText
from omnigraph.engine.manifest.lineage import commit_graph
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.merge.conflicts import MergeConflict, Order, counted
from omnigraph.engine.operations.merge.decided import TableMerge
from omnigraph.engine.operations.merge.edges import settle_edges
from omnigraph.engine.operations.merge.engines import EngineQuestion
from omnigraph.engine.operations.merge.outcome import MergePlan, Outcome, TypeMerge
from omnigraph.engine.operations.merge.plan import Strategy, decide, resolve
from omnigraph.engine.operations.merge.progress import Watch
from omnigraph.engine.operations.merge.resolutions import Resolving
from omnigraph.engine.operations.merge.rules import RuleSettler, broken_rules
from omnigraph.engine.operations.merge.sides import Sides
from omnigraph.engine.operations.merge.stage import Move, move_by_files, move_by_rows
from omnigraph.engine.operations.merge.virtual import Ancestors, base_is_gone
from omnigraph.engine.operations.merge.workers import Crew, decide_elsewhere
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.write.committed import SnapshotView
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import CommitNotFoundError, ConflictError, InputError, VersionReclaimedError
from omnigraph.ids import CommitId, TableKey

MIRRORED_SHARE = 2
"""A table with indexes of which one row in so many would be replaced is compared instead, because its indexes go."""


class Looked(Struct):
    """What a merge would do to one state of its target."""

    plan: MergePlan
    tables: dict[TableKey, TableMerge] = field(default_factory=dict)
    moves: dict[TableKey, Move] = field(default_factory=dict)
    broken: list[MergeConflict] = field(default_factory=list)
    crew: Crew | None = None
    """Who has decided, where it was not this process."""

    @property
    def total(self) -> int:
        """How many conflicts there are."""
        return sum(len(t.open_rows) for t in self.tables.values() if t.open_rows is not None) + len(self.broken)

    def by_kind(self) -> dict[str, int]:
        """How many conflicts there are of each kind."""
        found = counted(self.broken)
        for table in self.tables.values():
            for kind, number in table.open_rows.kinds().items() if table.open_rows is not None else ():
                found[kind] = found.get(kind, 0) + number
        return dict(sorted(found.items()))

    def conflicts(self, after: Order | None = None) -> Iterator[MergeConflict]:
        """Every conflict by table, id and kind, some at a time; `after` leaves out those up to that place."""
        keys = sorted({*self.tables, *(conflict.table_key for conflict in self.broken)})
        for key in keys:
            if after is not None and key < after[0]:
                continue
            mine = sorted((each for each in self.broken if each.table_key == key), key=lambda each: each.order)
            table = self.tables.get(key)
            skipped = after[1] if after is not None and after[0] == key else None
            rows: Iterator[MergeConflict] = iter(())
            if table is not None and table.open_rows is not None:
                rows = table.open_rows.conflicts(skipped)
            for conflict in heapq.merge(rows, mine, key=lambda each: each.order):
                if after is None or conflict.order > after:
                    yield conflict


def fast_forward(plan: MergePlan, theirs: Snapshot, ours: Snapshot, catalog: Catalog) -> Looked | None:
    """What a target without work of its own gets: the files of the source; None where rows have to be compared.

    No row is read. Which rows are new and which replace one is told by their row ids, as far as they tell.
    """
    found = Looked(plan)
    for key in ours.entries:
        if same_version(ours, theirs, key, key):
            continue
        target, source = ours.open(key), theirs.open(key)
        touched = delta(target, source)
        if touched.empty:
            continue
        if _loses_indexes(target, touched):
            return None
        move = move_by_files(catalog.tables[key], source, touched)
        found.moves[key] = move
        move.counts = _counts(target, source, touched)
    return found


def _loses_indexes(target: TableHandle, touched: Delta) -> bool:
    rows = sum(fragment.live_rows for fragment in target.fragments())
    return touched.removed.count * MIRRORED_SHARE > rows and bool(target.indexes())


def _counts(target: TableHandle, source: TableHandle, touched: Delta) -> tuple[int, int, int, bool]:
    """Inserted, updated, deleted, and whether that is certain, without reading a row."""
    removed, added = touched.removed.count, touched.added.count
    if not removed or not added:
        return added, 0, removed, True
    kept = np.intersect1d(
        target.row_ids(touched.removed.addresses), source.row_ids(touched.added.addresses), assume_unique=True
    )
    updated = len(kept)
    return added - updated, updated, removed - updated, False


class Question(Struct, frozen=True):
    """What is asked about one merge, besides its states."""

    strategy: Strategy | None
    strategies: Mapping[TableKey, Strategy | None]
    resolving: Resolving
    exact: bool
    engine: EngineQuestion
    watch: Watch = field(default_factory=Watch)

    def of(self, key: TableKey) -> Strategy | None:
        """The strategy of a table."""
        return self.strategies.get(key, self.strategy)


def three_way(
    context: GraphContext, plan: MergePlan, theirs: Snapshot, view: SnapshotView, question: Question
) -> Looked:
    """What a target with work of its own gets, entity by entity, and what is in conflict."""
    ours = view.snapshot
    sides = _sides(context, plan, theirs, view)
    met = (sides.table(key, exact=question.exact) for key in ours.entries)
    meetings = [meeting for meeting in met if meeting is not None]
    choice, workers = question.engine.choose(max((meeting.rows for meeting in meetings), default=0), question.watch)
    crew = None
    if workers is not None:
        crew = Crew(workers, context.root, SchemaText.of(context.schema_source, context.catalog))
    tables: dict[TableKey, TableMerge] = {}
    for number, meeting in enumerate(meetings):
        question.watch.comparing(number, len(meetings))
        key = meeting.key
        with sides.telling_of_bases(key):
            if crew is None:
                found = decide(meeting.here(), question.of(key))
            else:
                found = decide_elsewhere(crew, meeting, question.of(key))
            resolve(found, question.resolving)
            settle_edges(found)
        tables[key] = found
    looked = Looked(dataclasses.replace(plan, engine=choice.engine, engine_reason=choice.reason), tables, crew=crew)
    if plan.outcome is not Outcome.FAST_FORWARD:
        looked.broken = _settle_rules(sides, looked, view, question)
    if question.resolving.has_idle_rules:
        # What was decided for an entity may have mended a rule as well, for which a decision was listed beside it.
        undecided = replace(question, resolving=Resolving(None, context.catalog))
        for conflict in three_way(context, plan, theirs, view, undecided).broken:
            question.resolving.resolve(conflict)
    question.resolving.check_used()
    for key, table in tables.items():
        if table.changes:
            looked.moves[key] = _move(table)
    return looked


def _settle_rules(sides: Sides, looked: Looked, view: SnapshotView, question: Question) -> list[MergeConflict]:
    """The rules that stay broken after what was decided about them is done, once."""
    catalog, tables = sides.ours.catalog, looked.tables
    broken = broken_rules(catalog, list(tables.values()), view)
    if not broken:
        return []
    strategies = {key: question.of(key) for key in catalog.tables}
    settler = RuleSettler(catalog, view, sides.theirs.snapshot, strategies)
    made = settler.settle(broken, tables, question.resolving)
    if not made:
        return broken
    settler.apply(made, tables)
    for how, number in made.counts.items():
        next(iter(tables.values())).count(how, number)
    return broken_rules(catalog, list(tables.values()), view)


def _move(table: TableMerge) -> Move:
    """How a table is written: by its files alone where the target has not changed it."""
    whole = table.at_base and not table.written and not table.mixed and not table.convergent_edges
    if whole:
        touched = delta(table.ours, table.theirs)
        if not _loses_indexes(table.ours, touched):
            return move_by_files(table.entity, table.theirs, touched)
    return move_by_rows(table)


def _sides(context: GraphContext, plan: MergePlan, theirs: Snapshot, view: SnapshotView) -> Sides:
    ours = view.snapshot
    parted = {commit: _parted(context, commit) for commit in plan.base_commits}
    states = [State(each, context.catalog_of(each, past=True)) for each in (theirs, ours, *parted.values())]
    theirs_hash, ours_hash, *hashes = (state.catalog.schema_hash for state in states)
    if theirs_hash != ours_hash:
        raise ConflictError(f"'{plan.source}' and '{plan.target}' have different schemas: {theirs_hash}, {ours_hash}")
    for commit, found in zip(parted, hashes, strict=True):
        if found != ours_hash:
            raise InputError(
                f"commit {commit} cannot be the base, because the schema has been changed since: name a newer commit"
                " that both branches come from"
            )
    for key, entry in ours.entries.items():
        if {(each.entry(key).path, each.entry(key).incarnation) for each in (theirs, *parted.values())} != {
            (entry.path, entry.incarnation)
        }:
            raise ConflictError(
                f"the type of '{key}' was dropped and another has its name since the states that would be compared:"
                " name a newer commit, or change the entities by a mutation"
            )
    ancestors = Ancestors.of(partial(commit_graph, context.manifest), plan.base_commits)
    return Sides(states[0], states[1], ancestors, cache(partial(_parted, context)), view.locate)


def _parted(context: GraphContext, commit: CommitId) -> Snapshot:
    try:
        return context.manifest.history.snapshot_at(commit)
    except (VersionReclaimedError, CommitNotFoundError) as gone:
        raise base_is_gone(commit, gone) from gone


def type_merges(looked: Looked) -> tuple[TypeMerge, ...]:
    """What each type gets, nodes first, by name."""
    found = []
    for key in sorted({*looked.tables, *looked.moves}, key=lambda each: (each.startswith("edge:"), each)):
        kind, _, name = key.partition(":")
        table, move = looked.tables.get(key), looked.moves.get(key)
        if move is None:
            continue
        if table is not None:
            counts = (table.inserted, table.updated, table.deleted, table.counts_exact)
        else:
            counts = move.counts
        found.append(
            TypeMerge(
                kind,
                name,
                *counts[:3],
                how=move.how,
                counts_exact=counts[3],
                uncovered_rows=move.uncovered_rows,
                rows_written=move.rows_written,
                bytes_estimated=move.bytes_estimated,
                reason=move.reason,
            )
        )
    return tuple(found)
