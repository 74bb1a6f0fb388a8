"""Starting: what is opened, what is refused with a remedy, and serving until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from types import FrameType

import pyarrow as pa
import uvicorn
from msgspec import Struct

from omnigraph.choices import Durability
from omnigraph.engine.embedding import EmbeddingConfig
from omnigraph.engine.write.limits import WriteLimits
from omnigraph.errors import InputError
from omnigraph.graph import connect
from omnigraph.policy import Policy
from omnigraph.server.access import Access, State
from omnigraph.server.app import Server, create_app
from omnigraph.server.front import is_graph_id
from omnigraph.server.protocol import Protocol
from omnigraph.server.served import Served
from omnigraph.server.settings import Settings
from omnigraph.server.stored import StoredQueries, read_queries
from omnigraph.server.tokens import read_tokens

_log = logging.getLogger("omnigraph.server")
DEFAULT_BIND = "127.0.0.1:8080"
CUT_SECONDS = 0.5
"""How long those whose reads were cut have to take that answer before their connections go, and how often one looks."""


class Boot(Struct, frozen=True):
    """What a server is started with."""

    store: str
    graph_id: str = "default"
    bind: str = DEFAULT_BIND
    unauthenticated: bool = False
    queries: str | None = None
    policy: str | None = None
    server_policy: str | None = None
    durability: Durability = "fast"
    external_blobs: tuple[str, ...] = ()
    embedding: EmbeddingConfig | None = None


def build(boot: Boot, variables: Mapping[str, str], settings: Settings) -> Server:
    """Open what is to be served.

    Raises:
        GraphError: something is missing or contradictory; the message says what to do.
    """
    near = [base for base in boot.external_blobs if not base.lower().startswith("s3://")]
    if near:
        raise InputError(
            f"--blobs-from {near[0]}: callers of a server name what it reads, so a server takes blobs from s3:// places"
            " only; load these with a store"
        )
    if not is_graph_id(boot.graph_id):
        raise InputError(
            f"'{boot.graph_id}' is not a graph id: use 1 to 64 letters, digits and '-', and no reserved word"
        )
    access = _access(boot, variables)
    graph = connect(
        boot.store,
        durability=boot.durability,
        embedding=boot.embedding,
        external_blobs=boot.external_blobs,
        policy=access.graph_rules,
        group_writes=settings.group_writes,
        limits=WriteLimits(settings.table_rows_max, settings.table_bytes_max),
    )
    try:
        queries = StoredQueries() if boot.queries is None else read_queries(boot.queries, graph.context.catalog)
    except BaseException:
        graph.close()
        raise
    if access.state is State.DEFAULT_DENY:
        _log.warning(
            "tokens are configured and no policy is: every write, export and stored query is refused;"
            " start with --policy <file> to allow them"
        )
    elif access.state is State.OPEN:
        _log.warning("this server is open: everybody who reaches %s may change the graph", boot.bind)
    return create_app({boot.graph_id: Served(boot.graph_id, graph, queries)}, access, settings)


def check_boot(boot: Boot, variables: Mapping[str, str]) -> None:
    """Open everything that would be served and close it again.

    Raises:
        GraphError: it could not be served.
    """
    settings = Settings.from_environment(variables)
    parse_bind(boot.bind)

    async def opened() -> None:
        server = await asyncio.to_thread(build, boot, variables, settings)
        async with server.framework.router.lifespan_context(server.framework):
            pass

    asyncio.run(opened())


def _access(boot: Boot, variables: Mapping[str, str]) -> Access:
    access = Access(
        read_tokens(variables),
        None if boot.policy is None else Policy.read(boot.policy, graph=boot.graph_id, kind="graph"),
        None if boot.server_policy is None else Policy.read(boot.server_policy, kind="server"),
    )
    access.check_boot(unauthenticated=boot.unauthenticated)
    return access


def parse_bind(bind: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        InputError: it is not `host:port`.

    >>> parse_bind("0.0.0.0:80"), parse_bind("[::1]:0")
    (('0.0.0.0', 80), ('::1', 0))
    """
    host, colon, port = bind.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise InputError(f"'{bind}' is not an address to listen at: write host:port, e.g. {DEFAULT_BIND}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def serve(boot: Boot, variables: Mapping[str, str], *, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `announce` hears the address once requests are taken.

    Raises:
        GraphError: it cannot be started.
    """
    settings = Settings.from_environment(variables)
    host, port = parse_bind(boot.bind)
    if "ARROW_DEFAULT_MEMORY_POOL" not in variables:
        # The usual pool keeps what a thread has freed for that thread, and a server has some hundred.
        pa.set_memory_pool(pa.system_memory_pool())
    listener = _listen(host, port)
    try:
        # The application holds queues of its event loop, so it is made inside it. The loop is uvloop where that is
        # installed: a request passes from the loop to a thread and back, which costs half as much there.
        with asyncio.Runner(loop_factory=uvicorn.Config("", loop="auto").get_loop_factory()) as runner:
            runner.run(_serve(boot, variables, settings, listener, announce))
    finally:
        listener.close()


async def _serve(
    boot: Boot,
    variables: Mapping[str, str],
    settings: Settings,
    listener: socket.socket,
    announce: Callable[[str], None],
) -> None:
    server = await asyncio.to_thread(build, boot, variables, settings)
    config = uvicorn.Config(
        server.asgi,
        http=Protocol,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=None,
        h11_max_incomplete_event_size=64 << 10,
    )
    host, port = listener.getsockname()[:2]
    await _Stoppable(config, server, settings).serve_at(
        listener, lambda: announce(f"{f'[{host}]' if ':' in host else host}:{port}")
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Named as TCP, so that the event loop sends small answers at once instead of waiting for more to send.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2_048)
    except OSError as exc:
        raise InputError(f"cannot listen at {host}:{port}: {exc.strerror or exc}; choose another --bind") from exc
    return listener


class _Stoppable(uvicorn.Server):
    """A web server that, told to stop, ends streams, lets requests finish, cuts slow reads, and never a write."""

    def __init__(self, config: uvicorn.Config, server: Server, settings: Settings) -> None:
        super().__init__(config)
        self._server, self._settings = server, settings
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve_at(self, listener: socket.socket, ready: Callable[[], None]) -> None:
        """Serve the connections of a listening socket."""
        self._loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self.serve(sockets=[listener]))
        while not self.started and not serving.done():
            await asyncio.sleep(0.005)
        if self.started:
            ready()
        await serving

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second signal of the keyboard does not wait for reads."""
        if self._loop is not None and not self.should_exit:
            self._loop.call_soon_threadsafe(self._begin_to_stop)
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    def _begin_to_stop(self) -> None:
        _log.info("stopping: no new connections, requests in flight end")
        self._server.state.work.stopping.set()
        asyncio.get_running_loop().call_later(self._settings.shutdown_grace_seconds, self._cut_reads)

    def _cut_reads(self) -> None:
        _log.warning("requests in flight did not end in time: reads are cut, writes go on")
        self._server.state.work.cut_reads()
        asyncio.get_running_loop().call_later(CUT_SECONDS, self._cut_connections)

    def _cut_connections(self) -> None:
        """End the requests whose clients keep them from ending; a write has its time, and then it is looked again."""
        for connection in tuple(self.server_state.connections):
            if isinstance(connection, Protocol):
                connection.cut()
        asyncio.get_running_loop().call_later(CUT_SECONDS, self._cut_connections)
