"""One bulk load on Spark: many tasks, one commit.

The order of work is that of every write. Executors shape, check and store rows where nobody sees them; Spark answers
what must hold across rows; then the driver, and only the driver, holds a transaction and publishes once. Whatever
fails before that leaves unreferenced files and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct, field

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.ingest.blame import Locator, refuse_findings, refuse_problems
from omnigraph.engine.ingest.files import FileFormat
from omnigraph.engine.ingest.leftovers import StagedFiles
from omnigraph.engine.ingest.moving import copied
from omnigraph.engine.ingest.progress import Listener, Phases
from omnigraph.engine.ingest.quick import QuickQuestions
from omnigraph.engine.ingest.sources import ColumnMap, Frame, Inputs, SparkFiles, column_choice, pack, resolve
from omnigraph.engine.ingest.stage import PROBLEMS_PER_TASK, SchemaText, StageOutcome, StagePlan, Target, gather
from omnigraph.engine.ingest.staged import Staged, StagedLoad
from omnigraph.engine.ingest.tables_at import TableAt, TablesAt
from omnigraph.engine.manifest.records import with_message
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.outcomes import LoadMode, LoadResult
from omnigraph.engine.rules.questions import ACROSS_ROWS, SHOWN_MAX, broken
from omnigraph.engine.rules.statement import Rule
from omnigraph.engine.storage.fragments import stage_prepared
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.outlet import check_outlet
from omnigraph.engine.storage.staged import StagedWrite, stage_fragments
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.rows import WriteKind
from omnigraph.engine.write.transaction import Transaction, WriteRequest
from omnigraph.engine.write.writer import write
from omnigraph.errors import ExecutionError, GraphError, InputError, InternalError
from omnigraph.ids import MAIN, CommitId, TableKey, parse_branch, stored_branch
from omnigraph.pipeline.check import SparkQuestions
from omnigraph.pipeline.frames import to_spark
from omnigraph.pipeline.merge import Prepared, delete_marked, drop_superseded, prepare_merge
from omnigraph.pipeline.session import obtain_session, parallelism
from omnigraph.pipeline.tasks import stage_feeds, stage_frame
from omnigraph.pipeline.watching import is_remote, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES = tuple(LoadMode)
TASK_BYTES = 128 << 20
TASKS_PER_CORE = 2
ERRORS_MAX = 1_000_000


class JobOptions(Struct, frozen=True):
    """How a load runs, apart from what it loads."""

    mode: str
    branch: str
    actor: str | None
    errors_to: str | None
    properties: Mapping[str, str]
    unless: Callable[[], bool] | None = None
    if_commit: CommitId | None = None


class Job(Struct, dict=True):
    """One load in progress."""

    context: GraphContext
    session: SparkSession
    inputs: Inputs
    options: JobOptions
    phases: Phases
    outcome: StageOutcome = field(default_factory=StageOutcome)
    plan: StagePlan | None = None

    @cached_property
    def files(self) -> StagedFiles:
        """What was written for it so far."""
        return StagedFiles(self.context.store)

    @property
    def updates(self) -> bool:
        """True when the input holds only what changes of entities that are there."""
        return self.options.mode == "update"

    @property
    def required_plan(self) -> StagePlan:
        """How the load was staged."""
        if self.plan is None:
            raise InternalError("a load was committed before it was staged")
        return self.plan

    @property
    def tables(self) -> list[TableKey]:
        """The tables the load changes: those with rows and, where it replaces tables, those it was given inputs for."""
        named = [feed.table_key for feed in self.inputs.feeds] + [frame.table_key for frame in self.inputs.frames]
        replaced = {key for key in named if key is not None} if self.options.mode == "overwrite" else set()
        return sorted({*self.outcome.fragments, *replaced})


def run_job(
    context: GraphContext,
    source: Any,
    *,
    mode: str,
    branch: str = MAIN,
    actor: str | None = None,
    columns: Mapping[str, ColumnMap] | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Listener | None = None,
    errors_to: str | None = None,
    properties: Mapping[str, str] | None = None,
    message: str | None = None,
    unless: Callable[[], bool] | None = None,
    if_commit: CommitId | None = None,
) -> LoadResult:
    """Load a source of any size in one commit.

    `source` and `columns` are what `sources.resolve` takes. `progress` hears what happens while it happens;
    `errors_to` is a file that receives every violation; `properties` and `message` are recorded with
    the commit. `unless` is asked on every attempt, after whatever came in between is visible, and a true answer ends
    the load without a commit. `if_commit` is the head that the branch must have.

    Raises:
        InputError: a source cannot be read, or does not fit the schema's types.
        BranchNotFoundError: there is no such branch.
        ConstraintError: the input breaks rules of the schema; nothing is visible.
        ConflictError: other writers kept getting in the way; nothing is visible.
    """
    if mode not in MODES:
        raise InputError(f"a load mode is one of {', '.join(MODES)}, not '{mode}'")
    name = parse_branch(branch)
    author = context.admit("change", actor, branch=name)
    options = JobOptions(mode, name, author, errors_to, with_message(message, properties), unless, if_commit)
    phases = Phases(progress)
    with phases.phase("plan"):
        _check_early(context, options)
        inputs = resolve(source, context.catalog, columns=columns)
    with phases.phase("start"):
        session = obtain_session(spark or _own_session(inputs), master=master, conf=conf, notify=phases.say)
    # What executors write is protected from `cleanup` by the note of this process, from the first file on.
    heartbeat = Heartbeat.at(context.store.objects)
    return heartbeat.staging(lambda: _run(Job(context, session, inputs, options, phases)))


def _check_early(context: GraphContext, options: JobOptions) -> None:
    """What would be refused at the end is refused before Spark starts."""
    if context.read_only:
        raise ExecutionError("this graph was opened read-only and cannot be written")
    context.manifest.snapshot(options.branch)
    if options.errors_to is not None:
        check_outlet(options.errors_to)


def _own_session(inputs: Inputs) -> SparkSession | None:
    """The session a DataFrame of the input belongs to."""
    for frame in inputs.frames:
        session: SparkSession | None = getattr(frame.data, "sparkSession", None)
        if session is not None:
            return session
    return None


def _run(job: Job) -> LoadResult:
    began = time.perf_counter()
    snapshot = job.context.manifest.snapshot(job.options.branch)
    with job.phases.phase("stage", tasks_of(job.session)), spark_errors():
        _stage(job, snapshot)
    locator = Locator(job.inputs, job.required_plan.catalog)
    with job.files.unless_refused():
        refuse_problems(job.outcome, locator, job.inputs, job.options.errors_to)
    commit_id: CommitId | None = None
    if job.tables:
        request = WriteRequest(
            job.options.branch,
            WriterKind.LOAD,
            job.options.actor,
            job.options.if_commit,
            properties=job.options.properties,
        )
        # The rows of an update were completed by what was there when they were read, and hold while that stays.
        base = snapshot if job.updates else None
        written = write(job.context, request, lambda transaction: _prepare(job, transaction, locator), base=base)
        commit_id = written.committed.commit_id if written.committed else None
        job.files.discard()
        job.phases.close("commit")
    return _result(job, commit_id, time.perf_counter() - began)


def _result(job: Job, commit_id: CommitId | None, seconds: float) -> LoadResult:
    rows = job.outcome.rows()
    counts = [(job.context.catalog.tables[key], rows.get(key, 0)) for key in job.tables]
    return LoadResult(
        branch=job.options.branch,
        mode=job.options.mode,
        nodes={entity.name: count for entity, count in counts if isinstance(entity, NodeType)},
        edges={entity.name: count for entity, count in counts if isinstance(entity, EdgeType)},
        commit_id=commit_id,
        actor_id=job.options.actor,
        engine="spark",
        seconds=seconds,
        phases=dict(job.phases.seconds),
        bytes_written=job.outcome.bytes(),
    )


def _stage(job: Job, snapshot: Snapshot) -> None:
    """Have executors write every row; afterwards `job.outcome` describes all of it."""
    catalog = job.context.catalog
    targets = {key: Target(snapshot.open(key).uri, snapshot.open(key).schema) for key in catalog.tables}
    job.plan = StagePlan(
        SchemaText.of(job.context.schema_source, catalog),
        targets,
        problems_max=ERRORS_MAX if job.options.errors_to else PROBLEMS_PER_TASK,
        thorough=job.options.errors_to is not None,
        external_blobs=job.context.external_blobs,
        keeps_references=job.options.mode == "overwrite",
        updates=_tables_at(job.context.root, snapshot) if job.updates else None,
    )
    counter = _row_counter(job.session)
    job.phases.count_rows_with(counter.value)
    numbered = list(enumerate(job.inputs.feeds))
    slots = parallelism(job.session) * TASKS_PER_CORE
    task_bytes = max(1, min(TASK_BYTES, -(-job.inputs.bytes // slots)))
    tasks = pack(numbered, task_bytes)
    reports = stage_feeds(job.session, job.plan, tasks, counter.add)
    task = len(tasks)
    for number, frame in enumerate(job.inputs.frames, len(numbered)):
        data = _as_frame(job.session, frame)
        if frame.table_key is not None:
            # Asked here as well, because a frame without rows has columns and no task that meets them.
            column_choice(job.plan.catalog.tables[frame.table_key], data.columns, frame.columns)
        found = stage_frame(job.plan, number, frame, data, counter.add, first_task=task)
        task = 1 + max((report["task"] for report in found), default=task)
        reports += found
    job.outcome = gather(reports)
    for key, fragments in job.outcome.fragments.items():
        job.files.wrote(targets[key], [fragment.text for fragment in fragments])
    job.files.require_visible()
    staged_rows = sum(job.outcome.rows().values())
    job.phases.count_rows_with(lambda: staged_rows)


def _prepare(job: Job, transaction: Transaction, locator: Locator) -> None:
    """One attempt on one snapshot: check the staged rows against it, and hand each table's change over."""
    snapshot, mode = transaction.snapshot, job.options.mode
    job.files.begin_attempt()
    if job.options.unless is not None and job.options.unless():
        return
    committed = {key: (TableAt.of(job.context.root, entry), entry.row_count) for key, entry in snapshot.entries.items()}
    with spark_errors():
        with job.phases.phase("check", tasks_of(job.session)):
            load = StagedLoad({key: _staged(job, key, committed) for key in job.tables}, committed, mode)
            joins = SparkQuestions(job.session, load, shown_max=ERRORS_MAX if job.options.errors_to else SHOWN_MAX)
            quick = QuickQuestions(load, joins)
            for kind in ACROSS_ROWS:
                fragments = {key: each.fragments for key, each in load.staged.items()}
                with job.files.unless_refused():
                    refuse_findings(broken(kind, job.context.catalog, quick), fragments, locator, job.options.errors_to)
                if kind is Rule.UNIQUE and mode == "merge":
                    load.staged = _last_ones(job, load.staged, quick)
        transaction.depend_on(joins.read | quick.read)
        for key, each in sorted(load.staged.items()):
            _hand_over(job, transaction, key, each)
    job.phases.open("commit")


def _tables_at(root: str, snapshot: Snapshot) -> TablesAt:
    return TablesAt({key: TableAt.of(root, entry) for key, entry in snapshot.entries.items()})


def _staged(job: Job, key: TableKey, committed: Mapping[TableKey, tuple[TableAt, int]]) -> Staged:
    table, rows = committed[key]
    fragments = tuple(job.outcome.fragments.get(key, ()))
    return Staged(job.context.catalog.tables[key], job.required_plan.targets[key], fragments, table, rows)


def _last_ones(job: Job, staged: Mapping[TableKey, Staged], quick: QuickQuestions) -> dict[TableKey, Staged]:
    """In a merge the last of several records of one explicit id counts; of a key there are never several."""
    found = dict(staged)
    for key, each in staged.items():
        if not each.keyed and not quick.has_distinct_ids(each):
            found[key] = drop_superseded(job.session, each)
            job.files.wrote(each.target, [fragment.text for fragment in found[key].fragments])
    return found


def _hand_over(job: Job, transaction: Transaction, key: TableKey, staged: Staged) -> None:
    """Tell the transaction how the table's change is staged."""
    mode, store, target = job.options.mode, job.context.store, staged.target
    # A branch without a line of its own of this table gets one when the write is armed, and the files are copied then.
    forks = transaction.snapshot.entry(key).branch != stored_branch(job.options.branch)
    texts: Sequence[str] = [fragment.text for fragment in staged.fragments]
    if mode in ("merge", "update"):
        with job.phases.phase("merge", tasks_of(job.session)):
            prepared = prepare_merge(job.session, staged, only_mark=forks)
        texts = prepared.added
        job.files.wrote(target, texts)
        kind = WriteKind.UPDATE if job.updates else WriteKind.MERGE
        transaction.stage_with(key, kind, lambda base: _stage_merge(store, target, prepared, base))
    else:
        kind = WriteKind.REPLACE if mode == "overwrite" else WriteKind.INSERT
        transaction.stage_with(key, kind, lambda base: _stage_plain(store, target, texts, base, mode))
    if not forks:
        job.files.refer_to(target, texts)


def _stage_plain(
    store: TableStore, source: Target, texts: Sequence[str], base: TableHandle, mode: str
) -> StagedWrite | None:
    return stage_fragments(base, copied(store, source, texts, base), overwrite=mode == "overwrite")


def _stage_merge(store: TableStore, source: Target, prepared: Prepared, base: TableHandle) -> StagedWrite | None:
    changed, emptied = delete_marked(base, prepared.marks)
    return stage_prepared(
        base,
        added=copied(store, source, prepared.added, base),
        changed=[*prepared.changed, *changed],
        emptied=[*prepared.emptied, *emptied],
        rows_removed=prepared.rows_removed,
    )


def _as_frame(session: SparkSession, frame: Frame) -> DataFrame:
    """The DataFrame of a frame; an Arrow table becomes one, in types Spark can hold, and so do files Spark reads."""
    if isinstance(frame.data, SparkFiles):
        return _read_files(session, frame.data)
    if isinstance(frame.data, pa.Table):
        return session.createDataFrame(to_spark(frame.data))
    data: DataFrame = frame.data
    return data


def _read_files(session: SparkSession, files: SparkFiles) -> DataFrame:
    """The rows of files that Spark reads; JSON lines and CSV as texts."""
    if files.format is FileFormat.JSONL:
        return session.read.text(files.uri)
    if files.format is FileFormat.CSV:
        return session.read.csv(files.uri, header=True, multiLine=True, escape='"')
    return session.read.parquet(files.uri)


@contextmanager
def spark_errors() -> Iterator[None]:
    """What Spark raises becomes ours: one sentence, the whole story as its cause.

    Raises:
        ExecutionError: the job failed for a reason that is not in the data.
    """
    try:
        yield
    except GraphError:
        raise
    except Exception as exc:
        if not type(exc).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise ExecutionError(f"the Spark job failed: {_reason(exc)}", code="spark_job") from exc


def _reason(exc: BaseException) -> str:
    """The last line of a Python worker's story, which says what went wrong, or the first line of Spark's own."""
    lines = [line.strip() for line in str(exc).strip().splitlines() if line.strip()]
    if not lines:
        return type(exc).__name__
    last = lines[-1] if any(line.startswith("Traceback") for line in lines) else lines[0]
    if last.startswith("ModuleNotFoundError"):
        return f"{last} in a worker: set PYSPARK_PYTHON to a Python with Omnigraph before the session is started"
    return last


class _RowCounter:
    """Rows staged so far, as far as tasks have reported; without a context to count in, nothing is counted."""

    def __init__(self, accumulator: Any | None) -> None:
        self._accumulator = accumulator

    def value(self) -> int:
        """The rows of finished tasks."""
        return int(self._accumulator.value) if self._accumulator is not None else 0

    @property
    def add(self) -> Callable[[int], None]:
        """What tasks call; it travels to executors."""
        if self._accumulator is None:
            return _ignore
        add: Callable[[int], None] = self._accumulator.add
        return add


def _ignore(_: int) -> None:
    """Count nothing."""


def _row_counter(session: SparkSession) -> _RowCounter:
    return _RowCounter(None if is_remote(session) else session.sparkContext.accumulator(0))
