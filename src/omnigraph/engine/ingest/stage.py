"""Tasks write rows as fragments and send their descriptions home.

One task shapes its pieces one after the other and writes the rows of each type once enough of them are gathered, so
its memory is bounded whatever the input. What comes back is small: a text per fragment, with the note which rows of
which piece it holds, or the problems of the input. A task that is tried again writes new files; the old ones belong to
nobody and are never rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.defaults import at_moment
from omnigraph.catalog.migration import key_orders, with_key_orders
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.partial import partial
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.ingest.records import RecordProblem
from omnigraph.engine.ingest.shape import Shaped, shape_columns, shape_feed, shape_lines
from omnigraph.engine.ingest.sources import LINES_COLUMN, ColumnMap, Feed
from omnigraph.engine.ingest.tables_at import TablesAt
from omnigraph.engine.rules.patches import complete
from omnigraph.engine.storage.fragments import fragment_rows
from omnigraph.engine.storage.staged import write_fragment_files
from omnigraph.engine.values.defaults import this_moment
from omnigraph.engine.values.entities import LINE, RECORD
from omnigraph.engine.values.external import ExternalBlobs
from omnigraph.errors import GraphError
from omnigraph.ids import TableKey

BUFFER_BYTES = 128 << 20
FRAGMENT_ROWS = 1_048_576
PROBLEMS_PER_TASK = 1_000

_REPORT = pa.schema(
    [("kind", pa.string()), ("task", pa.int64()), ("payload", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]
)

Batches = Iterator[pa.RecordBatch]
Reports = list[dict[str, Any]]


class Target(Struct, frozen=True):
    """Where rows of a type are written, and the stored schema they must have."""

    uri: str
    schema: pa.Schema


class SchemaText(Struct, frozen=True):
    """A schema as it travels to executors: its text, and the orders of keys that the text alone does not tell.

    `now` is the moment of the load, where a default stands for it; `partial` is set for an update.
    """

    source: str
    key_orders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    now: datetime | None = None
    partial: bool = False

    @classmethod
    def of(cls, source: str, catalog: Catalog) -> SchemaText:
        """The text of a catalog."""
        properties = (prop for entity in catalog.tables.values() for prop in entity.properties.values())
        needs_now = any(prop.default is not None and prop.default.is_now for prop in properties)
        return cls(source, tuple(sorted(key_orders(catalog).items())), this_moment() if needs_now else None)

    @property
    def catalog(self) -> Catalog:
        """The catalog, compiled once per process."""
        return _compiled(self)


@lru_cache(maxsize=8)
def _compiled(schema: SchemaText) -> Catalog:
    catalog = with_key_orders(compile_schema(schema.source, stored=True), dict(schema.key_orders))
    catalog = partial(catalog) if schema.partial else catalog
    return catalog if schema.now is None else at_moment(catalog, schema.now)


class StagePlan(Struct, frozen=True):
    """What a task needs besides its input; it travels to executors, so it holds text and schemas only."""

    schema: SchemaText
    targets: Mapping[TableKey, Target]
    buffer_bytes: int = field(default_factory=lambda: BUFFER_BYTES)
    problems_max: int = PROBLEMS_PER_TASK
    thorough: bool = False
    external_blobs: ExternalBlobs = field(default_factory=ExternalBlobs)
    keeps_references: bool = False
    updates: TablesAt | None = None
    """What is there, where the rows are records of an update that change it."""

    @property
    def catalog(self) -> Catalog:
        """The catalog the rows are shaped by."""
        return replace(self.schema, partial=self.updates is not None).catalog


class Run(Struct, frozen=True):
    """Neighbouring rows of a fragment that came from one input: its number, and which of its rows of the type."""

    source: int
    first: int
    rows: int


class StagedFragment(Struct, frozen=True):
    """A fragment nobody references yet, and where its rows came from."""

    text: str
    rows: int
    bytes: int
    runs: tuple[Run, ...]
    supplied_ids: bool


class InputProblem(Struct, frozen=True):
    """Something wrong with one record of one input; the numbers count from the start of its piece."""

    source: int
    record: int
    line: int
    message: str


class StageOutcome(Struct):
    """What all tasks together produced, in the order of the input."""

    fragments: dict[TableKey, list[StagedFragment]] = field(default_factory=dict)
    problems: list[InputProblem] = field(default_factory=list)
    problem_count: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)

    def rows(self) -> dict[TableKey, int]:
        """Rows per table."""
        return {key: sum(fragment.rows for fragment in found) for key, found in sorted(self.fragments.items())}

    def bytes(self) -> int:
        """Bytes written."""
        return sum(fragment.bytes for found in self.fragments.values() for fragment in found)


def run_frame_task(
    plan: StagePlan, task: int, source: int, key: TableKey | None, columns: ColumnMap, batches: Batches
) -> Reports:
    """Stage the rows of one partition right here; the reports of one task."""
    report = run_task(plan, task, shape_batches(plan, source, key, columns, batches), lambda _: None)
    found: Reports = report.to_pylist()
    return found


def gather(reports: Iterable[Any]) -> StageOutcome:
    """The reports of all tasks as one outcome, ordered by task."""
    outcome = StageOutcome()
    for report in sorted(reports, key=lambda each: each["task"]):
        payload = json.loads(report["payload"])
        if report["kind"] == "fragment":
            key = TableKey(payload["table"])
            fragment = StagedFragment(
                payload["fragment"],
                report["rows"],
                report["bytes"],
                tuple(Run(*run) for run in payload["runs"]),
                payload["supplied_ids"],
            )
            outcome.fragments.setdefault(key, []).append(fragment)
        elif report["kind"] == "problems":
            outcome.problem_count += report["rows"]
            outcome.problems += [InputProblem(*problem) for problem in payload]
        else:
            outcome.failures.append((payload["source"], payload["message"]))
    return outcome


def shape_batches(
    plan: StagePlan,
    source: int,
    key: TableKey | None,
    columns: ColumnMap,
    batches: Batches,
    *,
    from_text: bool = False,
) -> Iterator[tuple[int, Shaped]]:
    """Rows that arrive as Arrow batches; their numbers count within the partition."""
    row = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        table = pa.Table.from_batches([batch])
        if key is None:
            lines = [text for text in table[LINES_COLUMN].to_pylist() if text is not None]
            yield source, shape_lines("\n".join(lines).encode(), plan.catalog, lines_before=row, records_before=row)
        else:
            entity = plan.catalog.tables[key]
            yield source, shape_columns(entity, table, columns, first_row=row, from_text=from_text)
        row += batch.num_rows


def shape_all(plan: StagePlan, feeds: Iterable[tuple[int, Feed]]) -> Iterator[tuple[int, Shaped]]:
    """Everything in some numbered pieces of files."""
    for source, feed in feeds:
        try:
            for shaped in shape_feed(feed, plan.catalog, thorough=plan.thorough):
                yield source, shaped
        except GraphError as error:
            raise _SourceFailure(source, str(error)) from error


class _SourceFailure(Exception):  # never leaves this module: it becomes a report
    """An input that cannot be read at all."""

    def __init__(self, source: int, message: str) -> None:
        super().__init__(message)
        self.source, self.message = source, message


def run_task(
    plan: StagePlan, task: int, shaped: Iterator[tuple[int, Shaped]], count: Callable[[int], None]
) -> pa.RecordBatch:
    """Write what one task shapes; from its first problem on it only looks for more of them."""
    writers = _Writers(plan)
    problems: list[tuple[int, RecordProblem]] = []
    found = 0
    source = -1
    try:
        for source, each in shaped:
            _admit_blobs(plan, each)
            _complete(plan, each)
            found += len(each.problems)
            problems += [(source, problem) for problem in each.problems[: plan.problems_max - len(problems)]]
            if not found:
                rows = sum(table.num_rows for tables in each.tables.values() for table in tables)
                writers.add(source, each)
                count(rows)
        if not found:
            writers.finish()
    except _SourceFailure as failure:
        return _report([("failure", task, json.dumps({"source": failure.source, "message": failure.message}), 0, 0)])
    except GraphError as error:
        return _report([("failure", task, json.dumps({"source": source, "message": str(error)}), 0, 0)])
    if found:
        listed = [(source, p.record, p.line, p.message) for source, p in problems]
        return _report([("problems", task, json.dumps(listed), found, 0)])
    return _report([("fragment", task, text, rows, size) for text, rows, size in writers.reports])


def _admit_blobs(plan: StagePlan, shaped: Shaped) -> None:
    """Check references to bytes outside the graph and fetch the bytes, or add what is wrong to the problems."""
    if shaped.problems:
        return
    for key, tables in shaped.tables.items():
        entity = plan.catalog.tables[key]
        if not blob_columns(entity):
            continue
        for at, table in enumerate(tables):
            tables[at], problems = plan.external_blobs.examine(entity, table, keeps_references=plan.keeps_references)
            shaped.problems += [
                RecordProblem(table[RECORD][problem.row].as_py(), table[LINE][problem.row].as_py(), problem.message)
                for problem in problems
            ]


def _complete(plan: StagePlan, shaped: Shaped) -> None:
    """Make whole rows of the records of an update, or add what is wrong to the problems."""
    if plan.updates is None or shaped.problems:
        return
    for key, tables in shaped.tables.items():
        entity = plan.schema.catalog.tables[key]
        for at, table in enumerate(tables):
            completed = complete(entity, table, plan.updates)
            tables[at] = completed.rows
            shaped.problems += [
                RecordProblem(table[RECORD][each.row].as_py(), table[LINE][each.row].as_py(), each.message)
                for each in completed.wrong
            ]


def _report(rows: list[tuple[str, int, str, int, int]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in _REPORT]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _REPORT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_REPORT)


class _Buffer(Struct):
    """Rows of one type waiting to be written."""

    tables: list[pa.Table] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    supplied_ids: bool = False


class _Writers:
    """Gathers rows per type and writes the fullest type whenever the task's budget is reached."""

    def __init__(self, plan: StagePlan) -> None:
        self._plan = plan
        self._buffers: dict[TableKey, _Buffer] = {}
        self._seen: dict[tuple[TableKey, int], int] = {}
        self.reports: list[tuple[str, int, int]] = []

    def add(self, source: int, shaped: Shaped) -> None:
        for key, tables in shaped.tables.items():
            buffer = self._buffers.setdefault(key, _Buffer())
            for table in tables:
                stored = to_stored(table, self._plan.targets[key].schema)
                first = self._seen.get((key, source), 0)
                self._seen[key, source] = first + stored.num_rows
                buffer.tables.append(stored)
                buffer.runs.append(Run(source, first, stored.num_rows))
                buffer.rows += stored.num_rows
                buffer.bytes += stored.nbytes
                buffer.supplied_ids |= key in shaped.with_ids
            if buffer.rows >= FRAGMENT_ROWS:
                self._write(key)
        while sum(buffer.bytes for buffer in self._buffers.values()) > self._plan.buffer_bytes:
            self._write(max(self._buffers, key=lambda key: self._buffers[key].bytes))

    def finish(self) -> None:
        for key in sorted(self._buffers):
            self._write(key)

    def _write(self, key: TableKey) -> None:
        buffer = self._buffers.pop(key)
        if not buffer.rows:
            return
        target = self._plan.targets[key]
        rows = pa.concat_tables(buffer.tables)
        written = write_fragment_files(target.uri, rows, target.schema, rows_per_file=max(buffer.rows, 1))
        [text] = [text for text in written if fragment_rows(text)]
        runs = [(run.source, run.first, run.rows) for run in _merged(buffer.runs)]
        payload = {"table": key, "fragment": text, "runs": runs, "supplied_ids": buffer.supplied_ids}
        size = sum(file.get("file_size_bytes") or 0 for file in json.loads(text)["files"])
        self.reports.append((json.dumps(payload), buffer.rows, size))


def _merged(runs: Sequence[Run]) -> list[Run]:
    """Runs with neighbours of one input joined."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last is not None and last.source == run.source and last.first + last.rows == run.first:
            joined[-1] = Run(last.source, last.first, last.rows + run.rows)
        else:
            joined.append(run)
    return joined


def to_stored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows without their numbers, in exactly the stored schema."""
    plain = table.drop_columns([name for name in (RECORD, LINE) if name in table.column_names]).select(schema.names)
    return plain.cast(schema)
