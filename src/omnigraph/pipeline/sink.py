"""`df.write.format("omnigraph")`: rows of one type, staged by executors and committed by one process.

Spark runs the commit in a process that has no session, so what must hold across rows is asked of the engine's own
validator, with the ids, ends and unique columns of the input in memory; whole rows never are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.recovery.intent import WriterKind
from omnigraph.engine.staging.entities import row_schema
from omnigraph.engine.staging.rows import PendingTable, Under, WriteKind
from omnigraph.engine.staging.transaction import Transaction, WriteRequest
from omnigraph.engine.staging.validate import check_duplicate_ids, check_unique_input, validate
from omnigraph.engine.staging.writer import write
from omnigraph.engine.storage.fragments import keep_row_ids, read_fragment
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.staged import StagedWrite, stage_fragments
from omnigraph.errors import InputError
from omnigraph.ids import MAIN, check_actor, parse_branch
from omnigraph.pipeline.blame import Locator, refuse_problems
from omnigraph.pipeline.datasource import location, open_context, type_option
from omnigraph.pipeline.merge import write_chosen
from omnigraph.pipeline.sources import Frame, Inputs, entity_of
from omnigraph.pipeline.stage import Reports, StagedFragment, StagePlan, Target, gather, run_frame_task

Mask = npt.NDArray[np.bool_]


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
        self._plan = StagePlan(context.schema_source, {self._key: self._target})

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        return StagedPart(run_frame_task(self._plan, task, 0, self._key, {}, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Validate and publish everything the tasks staged, as one commit.

        Raises:
            ConstraintError: the rows break rules of the schema; nothing is visible.
        """
        outcome = gather(report for part in messages if isinstance(part, StagedPart) for report in part.reports)
        inputs = Inputs(frames=(Frame(pa.table({}), self._key),))
        refuse_problems(outcome, Locator(inputs, self._plan.catalog), inputs, None)
        fragments = outcome.fragments.get(self._key, [])
        if not fragments and self._mode != "overwrite":
            return
        request = WriteRequest(self._branch, WriterKind.LOAD, self._actor)
        write(open_context(self._root, read_only=False), request, lambda each: self._prepare(each, fragments))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing to undo: what was staged belongs to nobody."""

    def _prepare(self, transaction: Transaction, fragments: Sequence[StagedFragment]) -> None:
        entity = transaction.catalog.tables[self._key]
        columns = _columns_to_compare(entity)
        rows = _read(self._target, fragments, columns)
        check_duplicate_ids(entity, rows, keep_last=False)
        check_unique_input(entity, rows)
        kinds = {"append": WriteKind.INSERT, "merge": WriteKind.MERGE, "overwrite": WriteKind.REPLACE}
        slim = replace(
            entity,
            properties={name: prop for name, prop in entity.properties.items() if name in columns},
            ranges=(),
            checks=(),
        )
        pending = PendingTable(slim, kinds[self._mode])
        pending.replaces_table = self._mode == "overwrite"
        pending.must_be_new = self._mode == "append"
        pending.add(rows, Under.NOTHING if pending.replaces_table else Under.UNKNOWN)
        resolved, change = pending.resolve(transaction.view, row_schema(slim))
        validate(transaction.catalog, {self._key: change}, transaction.view)
        texts = [fragment.text for fragment in fragments]

        def stage(base: TableHandle) -> StagedWrite | None:
            if self._mode != "merge":
                return stage_fragments(base, texts, overwrite=pending.replaces_table)
            addresses = resolved.updated_addresses()
            parts = _told_apart(self._target, fragments, resolved.supersedes, base.row_ids(addresses))
            return stage_fragments(base, parts, deleted_addresses=addresses)

        transaction.stage_with(self._key, pending.kind, stage)


def _columns_to_compare(entity: NodeType | EdgeType) -> list[str]:
    ends = ["src", "dst"] if isinstance(entity, EdgeType) else []
    return list(dict.fromkeys(["id", *ends, *(name for group in entity.unique for name in group)]))


def _read(target: Target, fragments: Sequence[StagedFragment], columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([target.schema.field(name).remove_metadata() for name in columns])
    batches = [batch for fragment in fragments for batch in read_fragment(target.uri, fragment.text, columns)]
    return pa.Table.from_batches([batch.select(columns).cast(schema) for batch in batches], schema)


def _told_apart(target: Target, fragments: Sequence[StagedFragment], supersedes: Mask, row_ids: Addresses) -> list[str]:
    """Fragments of replacing rows, with the row ids they take over, and of new rows; mixed ones are rewritten."""
    found: list[str] = []
    start = taken = 0
    for fragment in fragments:
        chosen = supersedes[start : start + fragment.rows]
        start += fragment.rows
        count = int(chosen.sum())
        ids = row_ids[taken : taken + count]
        taken += count
        if count in (0, fragment.rows):
            found.append(keep_row_ids(fragment.text, ids) if count else fragment.text)
        else:
            [changed] = write_chosen(target, fragment.text, chosen)
            found += [keep_row_ids(changed, ids), *write_chosen(target, fragment.text, ~chosen)]
    return found
