"""One graph behind a server, with the verbs of `Graph`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, NoReturn

from msgspec.structs import replace

from omnigraph.boundary import data, heard, instance, leaving, optional, text, verb
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.choices import Durability, Engine, ExportFormat, LoadMode, MergeStrategy, ToldValues
from omnigraph.client import decode
from omnigraph.client.changes import RemoteChanges
from omnigraph.client.connection import Connection, only_direct, state_name, state_of
from omnigraph.client.libraries import RemoteLibraries
from omnigraph.client.lines import whole_lines
from omnigraph.client.sendable import sendable
from omnigraph.client.sources import as_lines
from omnigraph.client.transport import (
    ARROW,
    NDJSON,
    RETRY_SECONDS,
    TIMEOUT_SECONDS,
    Call,
    Transport,
    given,
    graph_path,
    segment,
)
from omnigraph.client.verbs import (
    RemoteBranches,
    RemoteHistory,
    RemoteMaintenance,
    RemoteSchema,
    RemoteTags,
    reverted,
)
from omnigraph.engine.ingest.frames import framed
from omnigraph.engine.ingest.progress import local_listener
from omnigraph.engine.operations.blobs import BlobInfo
from omnigraph.engine.operations.export import write_lines
from omnigraph.engine.operations.merge import MergeResult
from omnigraph.engine.operations.merge.resolutions import Resolutions
from omnigraph.engine.operations.outcomes import LoadMode as Modes
from omnigraph.engine.operations.outcomes import LoadResult, MutationResult
from omnigraph.engine.operations.texts import read_query
from omnigraph.engine.read import ReadOptions
from omnigraph.errors import ExecutionError, GraphError, InputError, UnavailableError
from omnigraph.ids import MAIN, Moment, check_message, parse_branch
from omnigraph.plan.explain import Explanation
from omnigraph.results import QueryResult


def connect_remote(
    url: str,
    *,
    token: str | None = None,
    graph: str | None = None,
    read_only: bool = False,
    timeout_seconds: float = TIMEOUT_SECONDS,
    retry_seconds: float = RETRY_SECONDS,
) -> RemoteGraph:
    """A graph of the server at `url`; the first request is made with the first verb that needs one.

    Raises:
        InputError: the address, the token or the id of the graph is not one, or the server serves several graphs.
    """
    transport = Transport(url, token=token, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)
    try:
        path = graph_path(transport, graph)
    except BaseException:
        transport.close()
        raise
    return RemoteGraph(Connection(transport, path, read_only=read_only))


class RemoteGraph(RemoteLibraries):
    """A graph behind a server. Use `omnigraph.connect("https://…")` to get one; threads may share it."""

    def __init__(self, at: Connection) -> None:
        if not isinstance(at, Connection):
            raise InputError("a RemoteGraph is made by omnigraph.connect")
        self._at = at

    def __repr__(self) -> str:
        return f"RemoteGraph({self.uri!r})"

    def __reduce__(self) -> NoReturn:
        raise ExecutionError("a graph cannot be pickled or copied: pass its address, and connect where it is needed")

    def __enter__(self) -> RemoteGraph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def branches(self) -> RemoteBranches:
        """The branches of the graph."""
        return RemoteBranches(self._at)

    @cached_property
    def history(self) -> RemoteHistory:
        """The commits of the graph."""
        return RemoteHistory(self._at)

    @cached_property
    def schema(self) -> RemoteSchema:
        """The accepted schema of the graph."""
        return RemoteSchema(self._at)

    @cached_property
    def maintenance(self) -> RemoteMaintenance:
        """What keeps a graph fast, small and sound; it is done where the graph is stored."""
        return RemoteMaintenance(self._at)

    @cached_property
    def changes(self) -> RemoteChanges:
        """What happens on the graph, commit by commit."""
        return RemoteChanges(self._at)

    @cached_property
    def tags(self) -> RemoteTags:
        """Names that stay with one commit."""
        return RemoteTags(self._at)

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self._at.uri

    @property
    def closed(self) -> bool:
        """True when the graph was closed, and every verb is refused."""
        return self._at.closed

    @property
    def read_only(self) -> bool:
        """True when this handle refuses writes."""
        return self._at.read_only

    def _catalog(self) -> Catalog:
        """The accepted schema, compiled."""
        return compile_schema(self.schema.source)

    @verb()
    def snapshot(self, branch: str = MAIN, at: Moment | None = None) -> decode.RemoteSnapshot:
        """The state of a branch now, or as it was at a commit id, a snapshot id or a manifest version."""
        return decode.snapshot(self._at.get("/snapshot", **state_of(branch, at)))

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
        durability: Durability = "full",
        lenient: bool = False,
        message: str | None = None,
        base: str | None = None,
    ) -> LoadResult:
        """Send data as one commit, or nothing at all; it streams, so memory does not grow with it.

        `source` is a path, folder or glob of JSON lines, records, an open file, or tables or files by type. `base` is
        the branch to create a missing one from. Everything else of `Graph.load` belongs to where the graph is stored.

        Raises:
            ConstraintError, KeyConflictError, ConflictError: as `Graph.load`; nothing changed.
            LimitError: it is larger than the server takes at once; nothing changed.
            OutcomeUnknownError: the connection broke and the source cannot be read again.
        """
        self._at.writing(actor)
        if engine not in ("auto", "local", "spark"):
            raise InputError(f"an engine is 'auto', 'local' or 'spark', not '{engine}'")
        if engine == "spark" or errors_to or spark or master or conf or lenient or durability != "full":
            only_direct("a load with Spark, an error file, another durability or the lenient reader")
        if mode not in tuple(Modes):
            raise InputError(f"a load mode is one of {', '.join(Modes)}, not '{mode}'")
        watch = None if progress is None else local_listener(heard(progress))
        began = time.perf_counter()
        source = framed(source, self._catalog, type_name=type, whole=bool(columns))
        content, once = as_lines(source, self._catalog, columns, mode)
        params = {"branch": parse_branch(branch), "mode": mode, "from": base, "message": check_message(message)}
        call = Call(
            "POST",
            "/load/ndjson",
            {name: value for name, value in params.items() if value is not None},
            content=content if watch is None else lambda: _watched(content(), watch),
            headers={"Content-Type": NDJSON},
            writes=True,
            once=once,
        )
        return decode.load(self._at.send(call).json(), seconds=time.perf_counter() - began)

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
        """Run a read query on one snapshot; rows travel as Arrow. The arguments are those of `Graph.query`.

        Raises:
            ParseError, TypeCheckError, ParameterError, NotFoundError, LimitError: as `Graph.query`.
        """
        if options is not None:
            raise InputError("the bounds of a query through a server are the server's: leave options out")
        text = read_query(source)
        body = {"query": text, "name": name, "params": sendable(params, text), **state_of(branch, at)}
        return self._rows(Call("POST", "/query", json=given(body), headers={"Accept": ARROW}))

    def _rows(self, call: Call) -> QueryResult:
        response = self._at.send(call)
        headers = response.headers
        rows = decode.fetched_rows(response.content)
        return QueryResult(headers.get("Omnigraph-Query-Name", ""), rows, headers.get("Omnigraph-Graph-Commit"))

    def invoke(
        self,
        query: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        at: Moment | None = None,
        mutation: bool = False,
        if_commit: str | None = None,
    ) -> QueryResult | MutationResult:
        """Run a stored query of the server; `mutation` says which kind it is expected to be."""
        if mutation:
            self._at.writing(None)
        state = {} if branch is None and at is None else state_of(branch or MAIN, at)
        body = given({"params": sendable(params), "expect_mutation": mutation, **state})
        path = f"/queries/{segment(query)}"
        if mutation and if_commit is not None:
            condition = {"Omnigraph_If_Graph_Commit": if_commit}
            return decode.mutation(self._at.post(f"{path}/if-graph-commit", body, writes=True, **condition))
        if mutation:
            return decode.mutation(self._at.post(path, body, writes=True))
        return self._rows(Call("POST", path, json=body, headers={"Accept": ARROW}))

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
        """How a query is run, as a tree."""
        if analyze:
            only_direct("explain with analyze")
        text = read_query(source)
        body = {"query": text, "name": name, "params": sendable(params, text), **state_of(branch, at)}
        return decode.explanation(self._at.post("/explain", body)["plan"])

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
    ) -> Any:
        """One snapshot as JSON lines that `load` reads back: an iterator, or with a path the number written to it."""
        if format != "jsonl" or engine == "spark" or spark or master or conf:
            only_direct("an export of Parquet, or through Spark")
        if path is not None and (os.fspath(path).endswith("/") or os.path.isdir(path)):
            only_direct("an export to a folder of files")
        lines = self._lines(branch, at, types, tables)
        if path is None:
            return leaving(lines)
        return write_lines(path, lines)

    def _lines(self, branch: str, at: Moment | None, types: Sequence[str], tables: Sequence[str]) -> Iterator[str]:
        import httpx

        body = {**state_of(branch, at), "type_names": list(types), "table_keys": list(tables)}
        call = Call("POST", "/export", json=body, headers={"Accept": NDJSON})
        # Entered here, so that a refusal is raised by the verb and not by the first line.
        opened = self._at.stream(call)
        response = opened.__enter__()

        def lines() -> Iterator[str]:
            try:
                yield from whole_lines(response.iter_bytes())
            except httpx.HTTPError as exc:
                raise UnavailableError(f"the export from '{self.uri}' broke off: {exc}; discard what came") from exc
            finally:
                opened.__exit__(None, None, None)

        return lines()

    @verb()
    def spark(self, session: Any = None, *, branch: str = MAIN, at: Moment | None = None) -> Any:
        """Spark reads where the graph is stored; refused."""
        only_direct("reading with Spark")

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
        """The bytes of a Blob property, or a range of them."""
        headers = {}
        if offset or length is not None:
            headers["Range"] = f"bytes={offset}-{'' if length is None else offset + length - 1}"
        call = self._blob("GET", type_name, id, property, branch, at, entity, headers)
        response = self._at.send(call)
        if response.is_redirect:
            raise InputError(
                f"the blob is a reference, and its bytes are where it says: {response.headers['Location']}"
            )
        content = bytes(response.content)
        if headers and response.status_code != 206:
            # A proxy may leave ranges out, and then the answer is the whole.
            return content[offset:] if length is None else content[offset : offset + length]
        return content

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
        """How large a blob is, or where it lies."""
        call = self._blob("HEAD", type_name, id, property, branch, at, entity, {})
        try:
            response = self._at.send(call)
        except GraphError:
            # The answer to HEAD has no body, and so no reason: asked for the bytes, the server tells it.
            response = self._at.send(replace(call, method="GET"))
        entity, told = str(call.params["entity"]), response.headers
        seen = told.get("Omnigraph-Snapshot-Id")
        if response.is_redirect:
            return BlobInfo(entity, None, told["Location"], 0, commit_id=seen)
        return BlobInfo(entity, int(told["Content-Length"]), None, 0, told.get("ETag"), seen)

    def _blob(
        self,
        method: str,
        type_name: str,
        id: str,
        property: str,
        branch: str,
        at: Moment | None,
        entity: str | None,
        headers: Mapping[str, str],
    ) -> Call:
        kind = entity or self._entity_of(type_name)
        selector = {"entity": kind, "type": type_name, "id": id, "property": property}
        return Call(method, "/blob", {**selector, **state_of(branch, at)}, headers=headers, blob=True)

    def _entity_of(self, type_name: str) -> str:
        """Whether a type is one of nodes or of edges; a name of both is a node's unless the caller says otherwise."""
        catalog = self._catalog()
        if type_name in catalog.nodes:
            return "node"
        if any(name == type_name for name in catalog.edges):
            return "edge"
        raise InputError(f"the schema has no type '{type_name}'")

    @verb()
    def refresh(self) -> None:
        """Nothing is kept here, so there is nothing to look at afresh."""
        _ = self._at.transport

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
        """Run a write query as one commit; the arguments are those of `Graph.mutate`, without an actor.

        Raises:
            ParseError, TypeCheckError, ParameterError, ConstraintError, ConflictError: as `Graph.mutate`.
            OutcomeUnknownError: the server did not answer any more; the message says what to do.
        """
        self._at.writing(actor)
        text = read_query(source)
        body = {
            "query": text,
            "name": name,
            "params": sendable(params, text),
            "branch": parse_branch(branch),
            "message": check_message(message),
        }
        if if_commit is None:
            return decode.mutation(self._at.post("/mutate", body, writes=True))
        condition = {"Omnigraph_If_Graph_Commit": if_commit}
        return decode.mutation(self._at.post("/mutate/if-graph-commit", body, writes=True, **condition))

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

        A function given as `resolve` is called here, with the conflicts that the server tells.

        Raises:
            MergeConflictError: something stays in conflict; nothing changed.
            InputError: it is the first commit, or not in the history of the branch.
            ConflictError: the schema was another one then.
        """
        self._at.writing(actor)
        body = {
            "commit": commit_id,
            "branch": parse_branch(branch),
            "strategy": strategy,
            "strategies": dict(strategies) if strategies else None,
            "expect_head": expect_head,
            "message": check_message(message),
        }
        return reverted(self._at, body, resolve)

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
    ) -> decode.RemoteDiff:
        """What it takes to get from one state to another; the arguments are those of `Graph.diff`."""
        wanted = {"kind": list(kinds), "type": list(types), "op": list(ops), "values": values}
        return decode.diff(self._at.get("/diff", **{"from": state_name(older), "to": state_name(newer)}, **wanted))

    def close(self) -> None:
        """Give the connections back; from then on every verb is refused."""
        self._at.close()


def _watched(pieces: Iterator[bytes], watch: Callable[[str, int], None]) -> Iterator[bytes]:
    count = 0
    watch("read", 0)
    for piece in pieces:
        yield piece
        count += piece.count(b"\n")
        watch("read", count)
    watch("write", count)
