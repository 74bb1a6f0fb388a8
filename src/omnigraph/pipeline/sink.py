"""`df.write.format("omnigraph")`: rows of one type, staged by executors and committed by one process.

Spark runs the commit in a process of its own that has no session, so what must hold across rows is checked there, slice
by slice (`slices`). That process holds a slice of a few columns, and the address and row id of every replaced row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from omnigraph.engine.recovery.intent import WriterKind
from omnigraph.engine.recovery.presence import Presence
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.external import ExternalBlobs
from omnigraph.engine.staging.rows import WriteKind
from omnigraph.engine.staging.transaction import Stage, Transaction, WriteRequest
from omnigraph.engine.staging.writer import write
from omnigraph.engine.storage.fragments import keep_row_ids
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.staged import StagedWrite, stage_fragments
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import InputError, KeyConflictError
from omnigraph.ids import MAIN, TableKey, check_actor, parse_branch
from omnigraph.pipeline.blame import Locator, refuse_findings, refuse_problems
from omnigraph.pipeline.check import Staged
from omnigraph.pipeline.datasource import location, open_context, type_option
from omnigraph.pipeline.frames import OFFSET_BITS, TableAt
from omnigraph.pipeline.leftovers import StagedFiles
from omnigraph.pipeline.merge import write_chosen
from omnigraph.pipeline.moving import copied
from omnigraph.pipeline.slices import Replacing, SliceChecks
from omnigraph.pipeline.sources import Frame, Inputs, entity_of
from omnigraph.pipeline.stage import Reports, SchemaText, StagedFragment, StagePlan, Target, gather, run_frame_task


@dataclass
class StagedPart(WriterCommitMessage):  # type: ignore[misc]
    """What one task staged."""

    reports: Reports


class GraphWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write of one type; `branch`, `actor` and `mode` come from the options."""

    def __init__(self, options: Mapping[str, str], overwrite: bool) -> None:
        self._root = location(options)
        self._mode = "overwrite" if overwrite else options.get("mode") or "append"
        if self._mode not in ("append", "merge", "overwrite"):
            raise InputError(f"a write mode is append, merge or overwrite, not '{self._mode}'")
        self._branch = parse_branch(options.get("branch") or MAIN)
        self._actor = check_actor(options.get("actor") or None)
        context = open_context(self._root, read_only=True)
        entity = entity_of(type_option(options), context.catalog)
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
        with Presence.at(TableStore.at(self._root).objects).staging():
            return StagedPart(run_frame_task(self._plan, task, 0, self._key, {}, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Validate and publish everything the tasks staged, as one commit.

        Raises:
            ConstraintError: the rows break rules of the schema; nothing is visible.
        """
        outcome = gather(report for part in messages if isinstance(part, StagedPart) for report in part.reports)
        context = open_context(self._root, read_only=False)
        fragments = tuple(outcome.fragments.get(self._key, ()))
        work = _Commit(context, self._key, self._target, fragments, self._mode)
        with work.discarding():
            refuse_problems(outcome, work.locator, work.inputs, None)
        if fragments or self._mode == "overwrite":
            write(context, WriteRequest(self._branch, WriterKind.LOAD, self._actor), work.prepare)
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

    @contextmanager
    def discarding(self) -> Iterator[None]:
        """A refusal before anything is armed also removes what was staged."""
        try:
            yield
        except (InputError, KeyConflictError):
            self.files.begin_attempt()
            self.files.discard()
            raise

    def prepare(self, transaction: Transaction) -> None:
        """One attempt on one snapshot."""
        self.files.begin_attempt()
        root = self._context.root
        entries = transaction.snapshot.entries
        committed = {key: (TableAt.of(root, entry), entry.row_count) for key, entry in entries.items()}
        entity = transaction.catalog.tables[self._key]
        staged = Staged(entity, self._target, self._fragments, *committed[self._key])
        checks = SliceChecks(transaction.catalog, staged, committed, self._mode)
        with self.discarding():
            for check in checks.kinds():
                refuse_findings(check(), {self._key: self._fragments}, self.locator, None)
        transaction.depend_on(checks.read)
        kinds = {"append": WriteKind.INSERT, "merge": WriteKind.MERGE, "overwrite": WriteKind.REPLACE}
        stage = self._stage_merge(checks.replacing) if self._mode == "merge" else self._stage_plain
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
