"""What a verb needs from its surroundings: the configuration, the graph it addresses, consent, and a place to print.

The one module of the command line that reads the environment and opens graphs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from msgspec.structs import asdict, replace

from omnigraph.boundary import extras
from omnigraph.choices import Durability
from omnigraph.cli.config import OperatorConfig, load_config, operator_home
from omnigraph.cli.credentials import token_for
from omnigraph.cli.embedding import embedding_config
from omnigraph.cli.options import Address
from omnigraph.cli.output import Layout, ReadView, table_lines, to_json
from omnigraph.cli.target import resolve_target, server_addresses
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.engine.operations.outcomes import MutationResult
    from omnigraph.graph import Graph


UNREAD_CONFIG = "omnigraph.yaml"
"""A file that people expect to be read, because other tools read one of this kind."""


class Session:
    """One command: its configuration and its target, settled before anything is read or written."""

    def __init__(
        self,
        command: str,
        address: Address,
        *,
        uri: str | None = None,
        uri_option: str | None = None,
        capability: str = "any",
        hint: str = "",
    ) -> None:
        if uri is not None and uri_option is not None:
            raise InputError("a positional URI and --uri are mutually exclusive: pass one of them")
        uri = uri if uri is not None else uri_option
        self.command = command
        self.config = configuration()
        self.target = resolve_target(self.config, uri=uri, capability=capability, hint=hint, **asdict(address))
        self._remote: RemoteGraph | None = None

    @property
    def is_served(self) -> bool:
        """True when the graph is reached through a server."""
        return self.target.is_served

    @property
    def uri(self) -> str:
        """The graph as outputs name it; behind a server, once the graph there is known."""
        return self._served().uri if self.is_served else self.target.uri

    @property
    def layout(self) -> Layout:
        """How tables look."""
        defaults = self.config.defaults
        return Layout(defaults.table_max_column_width, wrap=defaults.table_cell_layout == "wrap")

    def actor(self, given: str | None) -> str | None:
        """Who a direct write is attributed to: the flag, else the configuration, else nobody.

        Raises:
            InputError: the write goes through a server, which knows the actor by the token.
        """
        if not self.is_served:
            return given if given is not None else self.config.actor
        if given is not None:
            raise InputError("--as is for direct writes: a server attributes a write to the actor of the token")
        return None

    def announce(self, *, quiet: bool) -> None:
        """Name the target of a write on standard error, before it begins."""
        if not quiet:
            typer.echo(replace(self.target, uri=self.uri).announce(self.command), err=True)

    def confirm_destructive(self, *, yes: bool, as_json: bool) -> None:
        """Let a destructive write go on where it is local or consented to.

        Raises:
            InputError: the target is not local and nobody consented.
        """
        if self.target.is_local or yes:
            return
        about = f"destructive '{self.command}' against {self.uri} (not local)"
        if sys.stdin.isatty() and not as_json:
            answer = typer.prompt(f"About to run a {about}. Type 'yes' to continue", default="", err=True)
            if answer.strip().lower() in ("yes", "y"):
                return
        raise InputError(f"refused to run a {about}: pass --yes to consent")

    @contextmanager
    def open(
        self, *, read_only: bool, durability: Durability = "fast", external_blobs: Sequence[str] = ()
    ) -> Iterator[Graph]:
        """The graph, closed again when the verb is done with it; a server's has the same verbs."""
        import omnigraph

        if self.is_served:
            if external_blobs:
                raise InputError("--blobs-from is for direct writes: a server has places of its own")
            graph: Any = self._served()
            with graph:
                yield graph
            return
        embedding = embedding_config(os.environ)
        with omnigraph.connect(
            self.target.uri,
            read_only=read_only,
            durability=durability,
            embedding=embedding,
            external_blobs=external_blobs,
        ) as opened:
            yield opened

    def _served(self) -> RemoteGraph:
        """The graph of the server; it is asked for once, which may be a question to the server."""
        if self._remote is None:
            with extras():
                from omnigraph.client import connect_remote

            self._remote = connect_remote(self.target.uri, token=self._token(), graph=self.target.graph)
        return self._remote

    def _token(self) -> str | None:
        home = operator_home(os.environ)
        return token_for(self.target.uri, server_addresses(self.config), os.environ, home)

    def graphs(self) -> list[dict[str, Any]]:
        """The graphs of the server."""
        with extras():
            from omnigraph.client.transport import Transport, list_graphs

        transport = Transport(self.target.uri, token=self._token())
        try:
            return list_graphs(transport)
        finally:
            transport.close()

    def run_stored_query(
        self, name: str, values: Mapping[str, Any], *, branch: str | None, snapshot: str | None
    ) -> ReadView:
        """The rows of a stored query of the server.

        Raises:
            InputError: a store is addressed, which has no stored queries.
        """
        with self._stored() as graph:
            result: Any = graph.invoke(name, values, branch=branch, at=snapshot)
            return read_view(result, branch=branch, snapshot=snapshot)

    def run_stored_mutation(
        self, name: str, values: Mapping[str, Any], *, branch: str | None, if_commit: str | None = None
    ) -> MutationResult:
        """What a stored mutation of the server did."""
        with self._stored() as graph:
            found: Any = graph.invoke(name, values, branch=branch, mutation=True, if_commit=if_commit)
            return found  # type: ignore[no-any-return]

    def _stored(self) -> RemoteGraph:
        if not self.is_served:
            raise InputError("no query given: pass --query <file> or -e <text>; stored queries belong to a server")
        return self._served()


def read_view(result: Any, *, branch: str | None, snapshot: str | None) -> ReadView:
    """A result as the formats need it."""
    return ReadView(
        query_name=result.query_name,
        branch=None if snapshot else (branch or "main"),
        snapshot=snapshot,
        columns=result.columns,
        rows=result.to_pylist(),
    )


def changed_lines(result: MutationResult, *, as_json: bool) -> Iterator[str]:
    """What a mutation did, for people or as JSON."""
    from omnigraph.wire import change_output

    if as_json:
        yield to_json(change_output(result))
        return
    counts = f"{result.affected_nodes} nodes, {result.affected_edges} edges"
    yield f"changed {result.branch} via {result.query_name}: {counts}"
    if result.actor_id is not None:
        yield f"actor_id: {result.actor_id}"
    if result.returned is not None:
        yield from table_lines(result.returned.column_names, result.rows, Layout())


def configuration() -> OperatorConfig:
    """The operator's configuration, after its warnings went to standard error."""
    home = operator_home(os.environ)
    config = load_config(home)
    for warning in config.warnings:
        typer.echo(warning, err=True)
    if os.path.exists(UNREAD_CONFIG):
        typer.echo(f"warning: '{UNREAD_CONFIG}' is not read; settings belong to '{home / 'config.yaml'}'", err=True)
    return config


def write_lines(lines: Iterable[str]) -> None:
    """Print result lines on standard output, in pieces large enough to be quick and small enough to stream."""
    piece: list[str] = []
    for line in lines:
        piece.append(line)
        if len(piece) == 4_096:
            typer.echo("\n".join(piece))
            piece = []
    if piece:
        typer.echo("\n".join(piece))
