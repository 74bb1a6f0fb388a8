"""`df.write.format("omnigraph")`: rows of one type, staged by executors and committed by one process.

Spark runs the commit in a process of its own that has no session, so what must hold across rows is checked there, slice
by slice (`slices`). That process holds a slice of a few columns, and the address and row id of every replaced row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from omnigraph.engine.commit.request import Stage
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.ingest.blame import Locator, refuse_findings, refuse_problems
from omnigraph.engine.ingest.entities import entity_of
from omnigraph.engine.ingest.leftovers import StagedFiles
from omnigraph.engine.ingest.moving import copied
from omnigraph.engine.ingest.slices import Replacing, SlicedQuestions
from omnigraph.engine.ingest.sources import Frame, Inputs, column_choice
from omnigraph.engine.ingest.stage import Reports, SchemaText, StagedFragment, StagePlan, Target, gather, run_frame_task
from omnigraph.engine.ingest.staged import OFFSET_BITS, Staged, StagedLoad, StagedQuestions
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.manifest.records import with_message
from omnigraph.engine.rules.questions import ACROSS_ROWS, broken
from omnigraph.engine.storage.fragments import keep_row_ids
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.staged import StagedWrite, stage_fragments
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.values.external import ExternalBlobs
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.rows import WriteKind
from omnigraph.engine.write.transaction import Transaction, WriteRequest
from omnigraph.engine.write.writer import write
from omnigraph.errors import InputError
from omnigraph.ids import MAIN, TableKey, check_actor, parse_branch
from omnigraph.pipeline.merge import write_chosen
from omnigraph.pipeline.options import location, open_context, type_option


@dataclass
class StagedPart(WriterCommitMessage):  # type: ignore[misc]
    """What one task staged."""

    reports: Reports


class GraphWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write of one type; `branch`, `actor`, `message` and `mode` come from the options."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str], overwrite: bool) -> None:
        self._root = location(options)
        self._mode = "overwrite" if overwrite else options.get("mode") or "append"
        if self._mode not in ("append", "merge", "overwrite"):
            raise InputError(f"a write mode is append, merge or overwrite, not '{self._mode}'")
        self._branch = parse_branch(options.get("branch") or MAIN)
        self._actor = check_actor(options.get("actor") or None)
        self._facts = with_message(options.get("message") or None)
        context = open_context(self._root, read_only=True)
        entity = entity_of(type_option(options), context.catalog)
        column_choice(entity, columns, {})  # before any task, because without rows none would ask
        handle = context.manifest.snapshot(self._branch).open(entity.table_key)
        self._key = entity.table_key
        self._target = Target(handle.uri, handle.schema)
        self._plan = StagePlan(
            SchemaText.of(context.schema_source, context.catalog),
            {self._key: self._target},
            external_blobs=ExternalBlobs(tuple((options.get("external_blobs") or "").split())),
            keeps_references=self._mode == "overwrite",
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        # No process sees the whole of such a write, so each that stages says so; the commit looks for the files.
        heartbeat = Heartbeat.at(TableStore.at(self._root).objects)
        return heartbeat.staging(lambda: StagedPart(run_frame_task(self._plan, task, 0, self._key, {}, iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Validate and publish everything the tasks staged, as one commit.

        Raises:
            ConstraintError: the rows break rules of the schema; nothing is visible.
        """
        outcome = gather(report for part in messages if isinstance(part, StagedPart) for report in part.reports)
        context = open_context(self._root, read_only=False)
        fragments = tuple(outcome.fragments.get(self._key, ()))
        work = _Commit(context, self._key, self._target, fragments, self._mode)
        with work.files.unless_refused():
            refuse_problems(outcome, work.locator, work.inputs, None)
        if fragments or self._mode == "overwrite":
            request = WriteRequest(self._branch, WriterKind.LOAD, self._actor, properties=self._facts)
            write(context, request, work.prepare)
            work.files.discard()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing to undo: what was staged belongs to nobody, unless the commit took it, and then it stays."""


class _Commit:
    """What one write stages, on its way to being visible."""

    def __init__(
        self,
        context: GraphContext,
        key: TableKey,
        target: Target,
        fragments: tuple[StagedFragment, ...],
        mode: str,
    ) -> None:
        self._context, self._key, self._target = context, key, target
        self._fragments, self._mode = fragments, mode
        self.inputs = Inputs(frames=(Frame(pa.table({}), key),))
        self.locator = Locator(self.inputs, context.catalog)
        self.files = StagedFiles(context.store)
        self.files.wrote(target, [fragment.text for fragment in fragments])

    def prepare(self, transaction: Transaction) -> None:
        """One attempt on one snapshot."""
        self.files.begin_attempt()
        root = self._context.root
        entries = transaction.snapshot.entries
        committed = {key: (TableAt.of(root, entry), entry.row_count) for key, entry in entries.items()}
        entity = transaction.catalog.tables[self._key]
        staged = Staged(entity, self._target, self._fragments, *committed[self._key])
        load = StagedLoad({self._key: staged}, committed, self._mode)
        slices = SlicedQuestions(load)
        asked = StagedQuestions(load, slices)
        with self.files.unless_refused():
            for kind in ACROSS_ROWS:
                refuse_findings(
                    broken(kind, transaction.catalog, asked), {self._key: self._fragments}, self.locator, None
                )
        transaction.depend_on(slices.read)
        kinds = {"append": WriteKind.INSERT, "merge": WriteKind.MERGE, "overwrite": WriteKind.REPLACE}
        stage = self._stage_merge(slices.replacing) if self._mode == "merge" else self._stage_plain
        transaction.stage_with(self._key, kinds[self._mode], stage)

    def _stage_plain(self, base: TableHandle) -> StagedWrite | None:
        return stage_fragments(base, self._placed([f.text for f in self._fragments], base), overwrite=self._replaces)

    @property
    def _replaces(self) -> bool:
        return self._mode == "overwrite"

    def _stage_merge(self, replacing: Replacing) -> Stage:
        def stage(base: TableHandle) -> StagedWrite | None:
            addresses = replacing.addresses.astype(np.uint64)
            texts = _told_apart(self._target, self._fragments, replacing, base.row_ids(addresses))
            self.files.wrote(self._target, texts)
            return stage_fragments(base, self._placed(texts, base), deleted_addresses=addresses)

        return stage

    def _placed(self, texts: Sequence[str], base: TableHandle) -> list[str]:
        """The fragments below the table they go to, which for the first write on a branch is not where they are."""
        if base.uri == self._target.uri:
            self.files.refer_to(self._target, texts)
        return copied(self._context.store, self._target, texts, base)


def _told_apart(
    target: Target, fragments: Sequence[StagedFragment], replacing: Replacing, row_ids: Addresses
) -> list[str]:
    """Fragments of replacing rows, with the row ids they take over, and of new rows; mixed ones are rewritten."""
    found: list[str] = []
    for number, fragment in enumerate(fragments):
        start, end = number << OFFSET_BITS, (number + 1) << OFFSET_BITS
        first, last = np.searchsorted(replacing.positions, [start, end])
        changed = np.zeros(fragment.rows, dtype=np.bool_)
        changed[replacing.positions[first:last] - start] = True
        stays = np.ones(fragment.rows, dtype=np.bool_)
        stays[replacing.dropped[slice(*np.searchsorted(replacing.dropped, [start, end]))] - start] = False
        fresh = stays & ~changed
        ids = row_ids[first:last]
        if changed.all():
            found.append(keep_row_ids(fragment.text, ids))
        elif fresh.all():
            found.append(fragment.text)
        else:
            found += [keep_row_ids(text, ids) for text in write_chosen(target, fragment.text, changed) if len(ids)]
            found += write_chosen(target, fragment.text, fresh) if fresh.any() else []
    return found
