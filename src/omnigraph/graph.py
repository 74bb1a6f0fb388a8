"""One graph, opened: short methods, each handing on to one operation.

`create` and `connect` give a `Graph`. Verbs that belong together are grouped: `graph.branches`, `graph.history`,
`graph.tags`, `graph.changes`, `graph.schema`, `graph.maintenance`. A `Graph` may be shared between threads.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, overload

from msgspec.structs import replace

from omnigraph.boundary import anything, data, heard, instance, leaving, optional, text, verb
from omnigraph.catalog.model import Catalog
from omnigraph.choices import Durability as Durable
from omnigraph.choices import Engine, ExportFormat, LoadMode, MergeStrategy, ToldValues
from omnigraph.engine.changes import Diff
from omnigraph.engine.embedding import Embedder, EmbeddingConfig, make_embedder
from omnigraph.engine.ingest.choice import settle_engine
from omnigraph.engine.ingest.frames import framed
from omnigraph.engine.ingest.lenient import read_leniently
from omnigraph.engine.ingest.local import local_source
from omnigraph.engine.ingest.progress import Phases, local_listener
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.blobs import BlobInfo, BlobSelector, read_blob, tagged_blob
from omnigraph.engine.operations.bulk import BulkEngine, BulkPlace, required, takes_bulk
from omnigraph.engine.operations.close import forget_unless_open
from omnigraph.engine.operations.create import create_graph
from omnigraph.engine.operations.differences import compare, told_values, wanted_changes
from omnigraph.engine.operations.export import check_target, export_lines, write_lines
from omnigraph.engine.operations.export_files import FileExport
from omnigraph.engine.operations.load import load, reading_catalog
from omnigraph.engine.operations.merge import MergeResult
from omnigraph.engine.operations.merge.resolutions import Resolutions
from omnigraph.engine.operations.merge.revert import RevertRequest, revert_commit
from omnigraph.engine.operations.mutate import mutate
from omnigraph.engine.operations.open import open_graph
from omnigraph.engine.operations.outcomes import LoadResult, MutationResult
from omnigraph.engine.operations.texts import read_query, read_schema
from omnigraph.engine.read import ReadOptions, execute, explain_analyze, explain_order
from omnigraph.engine.read.reader import Reader
from omnigraph.engine.recovery import heal
from omnigraph.engine.schema.accepted import load_contract
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.durability import Durability, durability_of
from omnigraph.engine.storage.forked import check_process
from omnigraph.engine.storage.layout import normalise_root
from omnigraph.engine.storage.opened import OpenRoot
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.values.external import ExternalBlobs
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.gate import WriteGate
from omnigraph.engine.write.limits import WriteLimits
from omnigraph.engine.write.queue import WriteQueues
from omnigraph.errors import ExecutionError, InputError
from omnigraph.ids import MAIN, Moment
from omnigraph.libraries import Libraries, read_plan
from omnigraph.plan import compile_query
from omnigraph.plan.explain import Explanation, explain
from omnigraph.plan.operators import ReadPlan
from omnigraph.plan.parameters import bind
from omnigraph.plan.statements import WritePlan
from omnigraph.results import QueryResult

Location = str | os.PathLike[str]


@verb(embedding=optional(instance(EmbeddingConfig)), bulk=anything)
def create(
    uri: Location,
    schema: str | os.PathLike[str],
    *,
    force: bool = False,
    durability: Durable = "fast",
    embedding: EmbeddingConfig | None = None,
    external_blobs: Sequence[str] = (),
    bulk: BulkEngine | None = None,
) -> Graph:
    """Create an empty graph and open it; see `omnigraph.create`.

    Raises:
        AlreadyExistsError: the location holds a graph, or is a folder with other things in it.
        ParseError, SchemaError: the schema is not valid; nothing was created.
    """
    store = TableStore.at(normalise_root(uri), durability=_durability(durability))
    try:
        create_graph(store, read_schema(schema), force=force)
        return Graph(_trusting(open_graph(store), external_blobs), embedder=make_embedder(embedding), bulk=bulk)
    except BaseException:
        forget_unless_open(store.root)
        raise


@verb(embedding=optional(instance(EmbeddingConfig)), limits=optional(instance(WriteLimits)), bulk=anything)
def connect(
    uri: Location,
    *,
    read_only: bool = False,
    durability: Durable = "fast",
    embedding: EmbeddingConfig | None = None,
    external_blobs: Sequence[str] = (),
    policy: WriteGate | None = None,
    group_writes: bool = False,
    limits: WriteLimits | None = None,
    bulk: BulkEngine | None = None,
) -> Graph:
    """Open the graph of a store; see `omnigraph.connect`, which knows of servers and hands over Spark as `bulk`.

    Raises:
        GraphNotFoundError: there is none.
        FormatError: it was written by a newer release.
    """
    store = TableStore.at(normalise_root(uri), durability=_durability(durability), read_only=read_only)
    try:
        context = open_graph(store, read_only=read_only)
        queues = WriteQueues() if group_writes else None
        limits = limits or WriteLimits()
        context = replace(_trusting(context, external_blobs), gate=policy, queues=queues, limits=limits)
        return Graph(context, embedder=make_embedder(embedding), bulk=bulk)
    except BaseException:
        forget_unless_open(store.root)
        raise


def _trusting(context: GraphContext, bases: Sequence[str]) -> GraphContext:
    trusted = ExternalBlobs(tuple(bases))
    trusted.check()
    return replace(context, external_blobs=trusted)


def _durability(name: str) -> Durability:
    try:
        return Durability(name)
    except ValueError:
        raise InputError(f"durability is 'fast' or 'full', not '{name}'") from None


class Graph(Libraries):
    """A typed property graph. Use `create` or `connect` to get one."""

    def __init__(
        self, context: GraphContext, *, embedder: Embedder | None = None, bulk: BulkEngine | None = None
    ) -> None:
        if not isinstance(context, GraphContext):
            raise InputError("a Graph is made by omnigraph.connect or omnigraph.create")
        self._reader = Reader()
        self._context = replace(context, listener=self._reader)
        self._closed = False
        self._embedder = embedder
        self._bulk = bulk
        self._contract = context.store.objects.fingerprint(layout.SCHEMA_FILES)
        self._open = OpenRoot(context.root)

    def __repr__(self) -> str:
        return f"Graph({self._context.root!r})"

    def __reduce__(self) -> NoReturn:
        raise ExecutionError("a graph cannot be pickled or copied: pass its address, and connect where it is needed")

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """True when the graph was closed, and every verb is refused."""
        return self._closed

    @property
    def uri(self) -> str:
        """The canonical location of the graph."""
        return self._context.root

    @property
    def read_only(self) -> bool:
        """True when this handle refuses writes."""
        return self._context.read_only

    @property
    def context(self) -> GraphContext:
        """What operations work with, after checking that the accepted schema is still the one in memory.

        Raises:
            ExecutionError: the graph was closed.
        """
        if self._closed:
            raise ExecutionError(f"the graph at '{self._context.root}' was closed: connect to it again")
        check_process()
        fingerprint = self._context.store.objects.fingerprint(layout.SCHEMA_FILES)
        if fingerprint != self._contract:
            source, catalog = load_contract(self._context.store, self._context.manifest)
            old = self._context
            self._context = replace(old, catalog=catalog, schema_source=source)
            self._contract = fingerprint
        return self._context

    def _view(self, branch: str, at: Moment | None) -> tuple[Catalog, Snapshot]:
        """What a read sees, and the schema of that time."""
        context = self.context
        snapshot = context.snapshot(branch, at)
        return context.catalog_of(snapshot, past=at is not None), snapshot

    @verb()
    def snapshot(self, branch: str = MAIN, at: Moment | None = None) -> Snapshot:
        """The state of a branch now, or as it was: `at` is what `query` takes."""
        return self.context.snapshot(branch, at)

    @verb(source=data)
    def load(
        self,
        source: Any,
        mode: LoadMode = "append",
        branch: str = MAIN,
        engine: Engine = "auto",
        actor: str | None = None,
        *,
        type: str | None = None,
        columns: Mapping[str, Mapping[str, str]] | None = None,
        progress: Callable[[Any], None] | None = None,
        errors_to: str | None = None,
        spark: Any = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        durability: Durable = "full",
        lenient: bool = False,
        message: str | None = None,
    ) -> LoadResult:
        """Load data of any size as one commit, or nothing at all.

        `source` is JSON lines (a path, folder or URI, or a list of them), a list of records, a folder that an export
        wrote, or a mapping from types to data: a data frame (anything that gives Arrow: pandas, polars, DuckDB), plain
        rows, a file or a Spark DataFrame. For data of one type, pass the type: `load("people.csv", type="Person")`.
        `mode` is `append` (ids must be new), `merge` (existing entities are replaced), `update` (existing entities get
        the given columns and keep the others) or `overwrite` (the types in the source hold exactly the source).
        `engine` is `local`, `spark`, or `auto`, which decides by size. `columns` maps properties to columns by type.
        `progress` is called with the progress of the load. `errors_to` is a file that receives every violation,
        for which the load runs on Spark. `spark`, `master` and `conf` say where Spark runs. A load survives a power
        cut once it returns; `durability="fast"` leaves syncing to the operating system. `lenient` accepts a file of
        JSON as earlier releases wrote it: objects over several lines, unknown fields, other spellings of ids.
        `message` is the message of the commit.

        Raises:
            ConstraintError: the data breaks a rule, or `update` met an id that does not exist; nothing changed.
            KeyConflictError: `append` met an id that exists; nothing changed.
            ConflictError: another write came in between; nothing changed.
        """
        context = self.context
        progress = None if progress is None else heard(progress)
        if lenient:
            source = read_leniently(source, context.catalog, here=engine != "spark", type_name=type)
            engine = "local"
        else:
            whole = bool(columns or errors_to or master or conf) or engine == "spark"
            source = framed(source, lambda: context.catalog, type_name=type, whole=whole)
        choice = settle_engine(
            engine,
            source,
            needs_spark=bool(errors_to or master or conf),
            spark_running=spark is not None or (self._bulk is not None and self._bulk.is_running),
            spark_installed=self._bulk is not None and self._bulk.is_installed,
        )
        with durability_of(_durability(durability)):
            if choice.engine == "local":
                watch = local_listener(progress)
                source = local_source(source, reading_catalog(context.catalog, mode), columns=columns, watch=watch)
                result = load(context, source, mode=mode, branch=branch, actor=actor, message=message, progress=watch)
            else:
                result = required(self._bulk).load(
                    context,
                    source,
                    mode=mode,
                    branch=branch,
                    actor=actor,
                    columns=columns,
                    place=BulkPlace(spark, master, conf),
                    progress=progress,
                    errors_to=errors_to,
                    message=message,
                )
        return dataclasses.replace(result, reason=choice.reason)

    @verb(name=optional(text), options=optional(instance(ReadOptions)))
    def query(
        self,
        source: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        options: ReadOptions | None = None,
    ) -> QueryResult:
        """Run a read query on one snapshot. `source` is its text, or the path of a `.gq` file.

        `at` reads an earlier state: a commit of the history, or its id, which may be shortened as long as it is
        unambiguous, a tag, a time (a `datetime`, or ISO 8601; without an offset it is UTC), a snapshot id or a version.
        `options` limits rows, bytes and time.

        Raises:
            ParseError, TypeCheckError, ParameterError: the query or its parameters are wrong.
            CommitNotFoundError, BranchNotFoundError: there is no such state to read.
            LimitError: the query needs more than `options` allow.
        """
        catalog, snapshot = self._view(branch, at)
        plan = read_plan(catalog, source, name)
        values = bind(plan.parameters, params)
        rows = execute(plan, self._reader.state(snapshot), values, options=options, embedder=self._embedder)
        return QueryResult(plan.name, rows, snapshot.head)

    @verb(name=optional(text))
    def explain(
        self,
        source: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        analyze: bool = False,
    ) -> Explanation:
        """How a query is run, as a tree: what it means, and in which order it is matched on this state, and why.

        With `analyze` the query is run, and each step shows its reason, its rows and its milliseconds. Without it,
        parameters may be left out.
        """
        catalog, snapshot = self._view(branch, at)
        if not analyze:
            found = compile_query(catalog, read_query(source), name)
            if params:
                bind(found.parameters, params)
            state = self._reader.state(snapshot)
            return explain_order(found, state) if isinstance(found, ReadPlan) else explain(found)
        plan = read_plan(catalog, source, name)
        values = bind(plan.parameters, params)
        return explain_analyze(plan, self._reader.state(snapshot), values, embedder=self._embedder)

    @overload
    def export(
        self,
        path: None = None,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        types: Sequence[str] = (),
        tables: Sequence[str] = (),
    ) -> Iterator[str]: ...

    @overload
    def export(
        self,
        path: str | os.PathLike[str],
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        types: Sequence[str] = (),
        tables: Sequence[str] = (),
        format: ExportFormat = "jsonl",
        engine: Engine = "auto",
        spark: Any = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        progress: Callable[[Any], None] | None = None,
    ) -> int: ...

    @verb()
    def export(
        self,
        path: str | os.PathLike[str] | None = None,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        types: Sequence[str] = (),
        tables: Sequence[str] = (),
        format: ExportFormat = "jsonl",
        engine: Engine = "auto",
        spark: Any = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        progress: Callable[[Any], None] | None = None,
    ) -> Iterator[str] | int:
        """One snapshot as JSON lines, or as Parquet, that `load` reads back.

        Without a path it returns an iterator of lines. With a path it writes them to that file, which appears complete
        or not at all, and returns how many there are. If the path is a folder (an existing one, or a path that ends in
        `/`), it writes files per type; Parquet, and everything that Spark writes, needs a folder.

        Raises:
            AlreadyExistsError: the folder holds files already.
            InputError: the path cannot be written, or is in the folder of the graph itself.
        """
        catalog, snapshot = self._view(branch, at)
        progress = None if progress is None else heard(progress)
        if path is not None:
            check_target(self.context.root, path)
        plain = format == "jsonl" and engine != "spark" and not (spark or master or conf)
        if path is None or (plain and not _is_folder(path)):
            if not plain:
                raise InputError("an export that is not JSON lines of this process needs a folder to write to")
            lines = export_lines(catalog, snapshot, types=types, tables=tables)
            return leaving(lines) if path is None else write_lines(path, lines)
        found = replace(self.context, catalog=catalog)
        export = FileExport.of(found, snapshot, os.fspath(path), format=format, types=types, tables=tables)
        place = BulkPlace(spark, master, conf)
        if takes_bulk(engine, export, place, self._bulk):
            result = required(self._bulk).export(export, place, progress)
        else:
            result = export.run(Phases(progress))
        return int(sum(result.rows.values()))

    @verb()
    def spark(self, session: Any = None, *, branch: str = MAIN, at: Moment | None = None) -> Any:
        """One snapshot as Spark DataFrames: `.nodes("Person")`, `.edges("Knows")`, `.analytics()`.

        The result is an `omnigraph.pipeline.GraphFrames`; without a session the active one is taken, or one is started.
        """
        catalog, snapshot = self._view(branch, at)
        context = replace(self.context, catalog=catalog)
        at = None if at is None else snapshot.id
        return required(self._bulk).frames(context, session, branch=branch, at=at)

    @verb()
    def read_blob(
        self,
        type_name: str,
        id: str,
        property: str,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        entity: str | None = None,
        offset: int = 0,
        length: int | None = None,
    ) -> bytes:
        """The bytes of a Blob property, or a range of them; `entity` tells a node type from an edge type of one name.

        Raises:
            NotFoundError: there is no entity of this id, or its blob is null.
            InputError: it is not a Blob property, or the blob is a reference, whose URI the message names.
        """
        selector = BlobSelector(type_name, id, property, entity)
        return read_blob(*self._view(branch, at), selector, offset=offset, length=length)

    @verb()
    def stat_blob(
        self,
        type_name: str,
        id: str,
        property: str,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        entity: str | None = None,
    ) -> BlobInfo:
        """How large a blob is, or where it lies; raises as `read_blob` does, except that references are described."""
        selector = BlobSelector(type_name, id, property, entity)
        return tagged_blob(*self._view(branch, at), selector)

    @verb()
    def refresh(self) -> None:
        """Finish or undo what dead writers left, then drop what is cached and read the storage again."""
        context = self.context
        if not context.read_only:
            heal(context.recovery)
        context.manifest.forget()
        self._reader.forget()

    @verb(name=optional(text))
    def mutate(
        self,
        source: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        *,
        if_commit: str | None = None,
        message: str | None = None,
    ) -> MutationResult:
        """Run a write query as one commit. `source` is its text, or the path of a `.gq` file.

        `name` chooses among several queries; `if_commit` makes the write conditional on the branch's head;
        `message` is what the commit says about itself.

        Raises:
            ParseError, TypeCheckError, ParameterError: the query or its parameters are wrong; nothing changed.
            ConstraintError: it would break a rule of the schema; nothing changed.
            ConflictError: another write came in between; nothing changed.
        """
        context = self.context
        plan = compile_query(context.catalog, read_query(source), name)
        if not isinstance(plan, WritePlan):
            raise ExecutionError(f"query '{plan.name}' reads and changes nothing: run it with query")
        values = bind(plan.parameters, params)
        if if_commit is not None:
            if_commit = context.manifest.history.whole_id(if_commit)
        return mutate(
            context,
            plan,
            values,
            branch=branch,
            actor=actor,
            if_commit=if_commit,
            message=message,
            reader=self._reader,
            embedder=self._embedder,
        )

    @verb()
    def revert(
        self,
        commit_id: str,
        branch: str = MAIN,
        *,
        strategy: MergeStrategy | None = None,
        strategies: Mapping[str, str] | None = None,
        resolve: Resolutions | None = None,
        expect_head: str | None = None,
        actor: str | None = None,
        message: str | None = None,
    ) -> MergeResult:
        """Undo one commit of a branch by a new one; of a merge, what it brought.

        What was changed again since is in conflict, as in a merge: `ours` is what the branch has now, `theirs` what it
        had before the commit. `strategy`, `strategies` and `resolve` are those of `branches.merge`.

        Raises:
            MergeConflictError: something stays in conflict; nothing changed.
            InputError: it is the first commit, or not in the history of the branch.
            ConflictError: the schema was another one then.
        """
        context = self.context
        head = None if expect_head is None else context.manifest.history.whole_id(expect_head)
        ways = (strategy, strategies or {}, resolve)
        return revert_commit(context, RevertRequest(commit_id, branch, *ways, head, actor, message))

    @verb()
    def diff(
        self,
        older: Moment,
        newer: Moment,
        *,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: ToldValues = "changed",
    ) -> Diff:
        """What it takes to get from one state to another: entities inserted, updated and deleted.

        A state is a branch, or whatever `at` of `query` takes. `types`, `kinds` (`node`, `edge`) and `ops` (`insert`,
        `update`, `delete`) select changes. `values` says what each change contains: `none`, `changed` (for updates the
        properties that differ, without vectors and blobs) or `full`. The time depends on the size of the difference,
        not on the size of the graph; values are read while you iterate.

        Raises:
            NotFoundError: there is no such state.
            VersionReclaimedError: cleanup has removed one of them.
        """
        wanted = wanted_changes(types, kinds, ops)
        return compare(self.context, older, newer, wanted, told_values(values))

    def close(self) -> None:
        """Release memory and threads, with the last handle of a root; every later call of this graph is refused.

        Closing twice is fine, and so is never closing: every write that has returned is stored already.
        """
        self._closed = True
        self._context.folds.stop()
        self._context.manifest.forget()
        self._reader.close()
        if self._open.close():
            forget_unless_open(self.uri)


def _is_folder(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).endswith("/") or os.path.isdir(path)
