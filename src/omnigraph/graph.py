"""One graph, opened: short methods, each handing on to one operation.

`create` and `connect` give a `Graph`. Verbs that belong together are grouped: `graph.branches`, `graph.history`,
`graph.schema`, `graph.maintenance`. A `Graph` may be shared between threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from omnigraph.catalog.model import Catalog
from omnigraph.engine.embedding import EmbeddingConfig, make_embedder
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.open import open_graph
from omnigraph.engine.operations.texts import read_query, read_schema
from omnigraph.engine.reading import ReadOptions, execute, explain_analyze, explain_order
from omnigraph.engine.reading.context import EmbedsText
from omnigraph.engine.recovery import heal
from omnigraph.engine.recovery.contract import load_contract
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.external import ExternalBlobs
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.durability import Durability, durability_of
from omnigraph.engine.storage.layout import normalise_root
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ExecutionError, InputError
from omnigraph.ids import MAIN, parse_branch
from omnigraph.plan import compile_query, known_plan
from omnigraph.plan.explain import Explanation, explain
from omnigraph.plan.operators import ReadPlan, WritePlan
from omnigraph.plan.parameters import bind
from omnigraph.results import QueryResult

if TYPE_CHECKING:
    from omnigraph.engine.operations.blobs import BlobInfo
    from omnigraph.engine.operations.outcomes import LoadResult, MutationResult
    from omnigraph.verbs import BranchVerbs, HistoryVerbs, MaintenanceVerbs, SchemaVerbs

# An operation that few programs need is imported by the verb that hands on to it: a process that opens a graph to ask
# one question loads the engine that answers it, and none of the writers.

_PIPELINE = "omnigraph.pipeline"
"""Where bulk loads live. Spark is an optional extra above this layer, so it is looked up by name when it is needed."""

Location = str | os.PathLike[str]


def create(
    uri: Location,
    schema: str | os.PathLike[str],
    *,
    force: bool = False,
    durability: str = "fast",
    embedding: EmbeddingConfig | None = None,
    external_blobs: Sequence[str] = (),
) -> Graph:
    """Create an empty graph and open it. `schema` is the text of a schema, or the path of a `.pg` file.

    The other arguments are those of `connect`.

    Raises:
        AlreadyExistsError: the location holds a graph.
        ParseError, SchemaError: the schema is not valid; nothing was created.
    """
    from omnigraph.engine.operations.create import create_graph

    store = TableStore.at(normalise_root(uri), durability=_durability(durability))
    create_graph(store, read_schema(schema), force=force)
    return Graph(_trusting(open_graph(store), external_blobs), embedder=make_embedder(embedding))


def connect(
    uri: Location,
    *,
    read_only: bool = False,
    durability: str = "fast",
    embedding: EmbeddingConfig | None = None,
    external_blobs: Sequence[str] = (),
) -> Graph:
    """Open the graph at a path, a `file://` URI or an `s3://` URI.

    `durability` says what an acknowledged write survives: `fast` a killed process, `full` a power cut as well.
    `embedding` names the provider for texts given to `nearest`; by default a small model inside the process.
    `external_blobs` are the bases that URIs given as blobs must lie under; without it blobs are given by their bytes.

    Raises:
        GraphNotFoundError: there is none.
        FormatError: it was written by a newer release.
    """
    store = TableStore.at(normalise_root(uri), durability=_durability(durability), read_only=read_only)
    context = open_graph(store, read_only=read_only)
    return Graph(_trusting(context, external_blobs), embedder=make_embedder(embedding))


def _trusting(context: GraphContext, bases: Sequence[str]) -> GraphContext:
    return replace(context, external_blobs=ExternalBlobs(tuple(bases)))


def _durability(name: str) -> Durability:
    try:
        return Durability(name)
    except ValueError:
        raise InputError(f"durability is 'fast' or 'full', not '{name}'") from None


class Graph:
    """A typed property graph. Use `create` or `connect` to get one."""

    def __init__(self, context: GraphContext, *, embedder: EmbedsText | None = None) -> None:
        self._context = context
        self._embedder = embedder
        self._contract = context.store.objects.fingerprint(layout.SCHEMA_FILES)

    def __repr__(self) -> str:
        return f"Graph({self._context.root!r})"

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def branches(self) -> BranchVerbs:
        """The branches of the graph."""
        from omnigraph.verbs import BranchVerbs

        return BranchVerbs(self)

    @cached_property
    def history(self) -> HistoryVerbs:
        """The commits of the graph."""
        from omnigraph.verbs import HistoryVerbs

        return HistoryVerbs(self)

    @cached_property
    def schema(self) -> SchemaVerbs:
        """The accepted schema of the graph."""
        from omnigraph.verbs import SchemaVerbs

        return SchemaVerbs(self)

    @cached_property
    def maintenance(self) -> MaintenanceVerbs:
        """Keeping the graph fast, small and sound."""
        from omnigraph.verbs import MaintenanceVerbs

        return MaintenanceVerbs(self)

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
        """What operations work with, after checking that the accepted schema is still the one in memory."""
        fingerprint = self._context.store.objects.fingerprint(layout.SCHEMA_FILES)
        if fingerprint != self._contract:
            source, catalog = load_contract(self._context.store, self._context.manifest)
            old = self._context
            self._context = replace(old, catalog=catalog, schema_source=source)
            self._contract = fingerprint
        return self._context

    def _view(self, branch: str, at: str | int | None) -> tuple[Catalog, Snapshot]:
        """What a read sees, and the schema of that time."""
        context = self.context
        snapshot = resolve_snapshot(context, branch, at)
        return context.catalog_of(snapshot, past=at is not None), snapshot

    def snapshot(self, branch: str = MAIN, at: str | int | None = None) -> Snapshot:
        """The state of a branch now, or as it was at a commit id, a snapshot id or a manifest version."""
        return resolve_snapshot(self.context, branch, at)

    def load(
        self,
        source: Any,
        mode: str = "append",
        branch: str = MAIN,
        engine: str = "auto",
        actor: str | None = None,
        *,
        columns: Mapping[str, Mapping[str, str]] | None = None,
        progress: Callable[[Any], None] | None = None,
        errors_to: str | None = None,
        spark: Any = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        durability: str = "full",
        lenient: bool = False,
    ) -> LoadResult:
        """Load data of any size as one commit, or nothing at all.

        `source` is a path, folder or URI of JSON lines, several of them, records, one Arrow table or file per type, or
        a Spark DataFrame. `mode` is `append` (ids must be new), `merge` (existing entities are replaced) or
        `overwrite` (the types in the source hold exactly the source). `engine` is `local`, `spark`, or `auto`, which
        decides by size. `columns` maps properties to columns by type; `progress` hears how far the load is;
        `errors_to` is a file for every violation; `spark`, `master` and `conf` say where Spark runs. A load survives a
        power cut once it is acknowledged; `durability="fast"` leaves syncing to the operating system. `lenient` takes
        one file of JSON as earlier releases wrote it: spread objects, unknown fields, ids that spell a key otherwise.

        Raises:
            ConstraintError: the data breaks a rule of the schema; nothing changed.
            KeyConflictError: `append` met an id that exists; nothing changed.
            ConflictError: another write came in between; nothing changed.
        """
        context = self.context
        if lenient:
            from omnigraph.engine.staging.lenient import read_leniently

            source, engine = read_leniently(source, context.catalog, here=engine != "spark"), "local"
        chosen, reason = _choose_engine(engine, source, spark, needs_spark=bool(errors_to or master or conf))
        with durability_of(_durability(durability)):
            if chosen == "local":
                from omnigraph.engine.operations.load import load

                pipeline = import_module(_PIPELINE)
                watch = pipeline.local_listener(progress)
                source = pipeline.local_source(source, context.catalog, columns=columns, watch=watch)
                result = load(context, source, mode=mode, branch=branch, actor=actor, progress=watch)
            else:
                result = import_module(_PIPELINE).run_job(
                    context,
                    source,
                    mode=mode,
                    branch=branch,
                    actor=actor,
                    columns=columns,
                    spark=spark,
                    master=master,
                    conf=conf,
                    progress=progress,
                    errors_to=errors_to,
                )
        return replace(result, reason=reason)

    def query(
        self,
        source: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        at: str | int | None = None,
        *,
        options: ReadOptions | None = None,
    ) -> QueryResult:
        """Run a read query on one snapshot. `source` is its text, or the path of a `.gq` file.

        `at` reads the past: a commit id, a snapshot id or a manifest version. `options` bounds rows, bytes and time.

        Raises:
            ParseError, TypeCheckError, ParameterError: the query or its parameters are wrong.
            CommitNotFoundError, BranchNotFoundError: there is no such state to read.
            LimitError: the query needs more than `options` allow.
        """
        catalog, snapshot = self._view(branch, at)
        plan = _read_plan(catalog, source, name)
        values = bind(plan.parameters, params)
        rows = execute(plan, snapshot, values, options=options, embedder=self._embedder)
        return QueryResult(plan.name, rows)

    def explain(
        self,
        source: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        at: str | int | None = None,
        *,
        analyze: bool = False,
    ) -> Explanation:
        """How a query is run, as a tree: what it means, and in which order it is matched on this state, and why.

        With `analyze` it is run, and each step tells its reason, its rows and its milliseconds.
        """
        catalog, snapshot = self._view(branch, at)
        if not analyze:
            found = compile_query(catalog, read_query(source), name)
            return explain_order(found, snapshot) if isinstance(found, ReadPlan) else explain(found)
        plan = _read_plan(catalog, source, name)
        values = bind(plan.parameters, params)
        return explain_analyze(plan, snapshot, values, embedder=self._embedder)

    @overload
    def export(
        self,
        path: None = None,
        branch: str = MAIN,
        at: str | int | None = None,
        *,
        types: Sequence[str] = (),
        tables: Sequence[str] = (),
    ) -> Iterator[str]: ...

    @overload
    def export(
        self,
        path: str | os.PathLike[str],
        branch: str = MAIN,
        at: str | int | None = None,
        *,
        types: Sequence[str] = (),
        tables: Sequence[str] = (),
        format: str = "jsonl",
        engine: str = "auto",
        spark: Any = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        progress: Callable[[Any], None] | None = None,
    ) -> int: ...

    def export(
        self,
        path: str | os.PathLike[str] | None = None,
        branch: str = MAIN,
        at: str | int | None = None,
        *,
        types: Sequence[str] = (),
        tables: Sequence[str] = (),
        format: str = "jsonl",
        engine: str = "auto",
        spark: Any = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        progress: Callable[[Any], None] | None = None,
    ) -> Iterator[str] | int:
        """One snapshot as JSON lines, or as Parquet, that `load` reads back.

        Without a path the lines come as an iterator; with one they are written to that file, which appears whole or
        not at all, and their number is returned. A folder (an existing one, or a path that ends in `/`) receives files
        per type, written by this process or by Spark; so do Parquet and everything that Spark writes.

        Raises:
            AlreadyExistsError: the folder holds files already.
        """
        catalog, snapshot = self._view(branch, at)
        plain = format == "jsonl" and engine != "spark" and not (spark or master or conf)
        if path is None or (plain and not _is_folder(path)):
            if not plain:
                raise InputError("an export that is not JSON lines of this process needs a folder to write to")
            from omnigraph.engine.operations.export import export_lines, write_lines

            lines = export_lines(catalog, snapshot, types=types, tables=tables)
            return lines if path is None else write_lines(path, lines)
        result = import_module(_PIPELINE).export_graph(
            replace(self.context, catalog=catalog),
            os.fspath(path),
            format=format,
            types=types,
            tables=tables,
            snapshot=snapshot,
            engine=engine,
            spark=spark,
            master=master,
            conf=conf,
            progress=progress,
        )
        return int(sum(result.rows.values()))

    def spark(self, session: Any = None, *, branch: str = MAIN, at: str | int | None = None) -> Any:
        """One snapshot as Spark DataFrames: `.nodes("Person")`, `.edges("Knows")`, `.analytics()`.

        The result is an `omnigraph.pipeline.GraphFrames`; without a session the active one is taken, or one is started.
        """
        catalog, _ = self._view(branch, at)
        context = replace(self.context, catalog=catalog)
        return import_module(_PIPELINE).GraphFrames(context, session, branch=branch, at=at)

    def read_blob(
        self,
        type_name: str,
        id: str,
        property: str,
        branch: str = MAIN,
        at: str | int | None = None,
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
        from omnigraph.engine.operations.blobs import BlobSelector, read_blob

        selector = BlobSelector(type_name, id, property, entity)
        return read_blob(*self._view(branch, at), selector, offset=offset, length=length)

    def stat_blob(
        self,
        type_name: str,
        id: str,
        property: str,
        branch: str = MAIN,
        at: str | int | None = None,
        *,
        entity: str | None = None,
    ) -> BlobInfo:
        """How large a blob is, or where it lies; raises as `read_blob` does, except that references are described."""
        from omnigraph.engine.operations.blobs import BlobSelector, stat_blob

        selector = BlobSelector(type_name, id, property, entity)
        return stat_blob(*self._view(branch, at), selector)

    def refresh(self) -> None:
        """Look at storage afresh: finish what dead writers left, then forget what is cached."""
        context = self.context
        if not context.read_only:
            heal(context.recovery)
        context.manifest.forget()

    def mutate(
        self,
        source: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        *,
        if_commit: str | None = None,
    ) -> MutationResult:
        """Run a write query as one commit. `source` is its text, or the path of a `.gq` file.

        `name` chooses among several queries; `if_commit` makes the write conditional on the branch's head.

        Raises:
            ParseError, TypeCheckError, ParameterError: the query or its parameters are wrong; nothing changed.
            ConstraintError: it would break a rule of the schema; nothing changed.
            ConflictError: another write came in between; nothing changed.
        """
        from omnigraph.engine.operations.mutate import mutate

        context = self.context
        plan = compile_query(context.catalog, read_query(source), name)
        if not isinstance(plan, WritePlan):
            raise ExecutionError(f"query '{plan.name}' reads and changes nothing: run it with query")
        values = bind(plan.parameters, params)
        return mutate(context, plan, values, branch=branch, actor=actor, if_commit=if_commit)

    def close(self) -> None:
        """Forget what is cached. A graph needs no closing to be safe: every acknowledged write is already there."""
        self._context.manifest.forget()
        self._context.store.forget()


def _read_plan(catalog: Catalog, source: str | os.PathLike[str], name: str | None) -> ReadPlan:
    plan = known_plan(catalog, source, name) or compile_query(catalog, read_query(source), name)
    if not isinstance(plan, ReadPlan):
        raise ExecutionError(f"query '{plan.name}' changes the graph: run it with mutate")
    return plan


def _is_folder(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).endswith("/") or os.path.isdir(path)


def _choose_engine(engine: str, source: Any, spark: Any, *, needs_spark: bool) -> tuple[str, str]:
    """The engine of a load and why."""
    if engine not in ("auto", "local", "spark"):
        raise InputError(f"an engine is 'auto', 'local' or 'spark', not '{engine}'")
    if engine == "local" and needs_spark:
        raise InputError("error files and Spark settings need engine 'spark' or 'auto'")
    if engine != "auto":
        return engine, "it was asked for"
    if needs_spark:
        return "spark", "the load asks for something that Spark does"
    choice = import_module(_PIPELINE).choose_engine(source, spark_running=spark is not None)
    return choice.engine, choice.reason


def resolve_snapshot(context: GraphContext, branch: str, at: str | int | None) -> Snapshot:
    """The snapshot a read is meant to see."""
    if branch == MAIN and at is None:
        return context.manifest.snapshot()
    name = parse_branch(branch)
    if at is None:
        return context.manifest.snapshot(name)
    return context.manifest.history.snapshot_at(at, name)
