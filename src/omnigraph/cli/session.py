"""What a verb needs from its surroundings: the configuration, the graph it addresses, consent, and a place to print.

The one module of the command line that reads the environment and opens graphs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.config import OperatorConfig, load_config, operator_home
from omnigraph.cli.embedding import embedding_config
from omnigraph.cli.target import resolve_target
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.graph import Graph


UNREAD_CONFIG = "omnigraph.yaml"
"""A file that people expect to be read, because other tools read one of this kind."""


class Session:
    """One command: its configuration and its target, settled before anything is read or written."""

    def __init__(
        self,
        command: str,
        *,
        uri: str | None = None,
        uri_option: str | None = None,
        store: str | None = None,
        profile: str | None = None,
    ) -> None:
        if uri is not None and uri_option is not None:
            raise InputError("a positional URI and --uri are mutually exclusive: pass one of them")
        uri = uri if uri is not None else uri_option
        self.command = command
        self.config = configuration()
        self.target = resolve_target(self.config, uri=uri, store=store, profile=profile)

    def actor(self, given: str | None) -> str | None:
        """Who a write is attributed to: the flag, else the configuration, else nobody."""
        return given if given is not None else self.config.actor

    def announce(self, *, quiet: bool) -> None:
        """Name the target of a write on standard error, before it begins."""
        if not quiet:
            typer.echo(self.target.announce(self.command), err=True)

    def confirm_destructive(self, *, yes: bool, as_json: bool) -> None:
        """Let a destructive write go on where it is local or consented to.

        Raises:
            InputError: the target is not local and nobody consented.
        """
        if self.target.is_local or yes:
            return
        about = f"destructive '{self.command}' against {self.target.uri} (not local)"
        if sys.stdin.isatty() and not as_json:
            answer = typer.prompt(f"About to run a {about}. Type 'yes' to continue", default="", err=True)
            if answer.strip().lower() in ("yes", "y"):
                return
        raise InputError(f"refused to run a {about}: pass --yes to consent")

    @contextmanager
    def open(self, *, read_only: bool, durability: str = "fast", external_blobs: Sequence[str] = ()) -> Iterator[Graph]:
        """The graph, closed again when the verb is done with it."""
        import omnigraph

        embedding = embedding_config(os.environ)
        with omnigraph.connect(
            self.target.uri,
            read_only=read_only,
            durability=durability,
            embedding=embedding,
            external_blobs=external_blobs,
        ) as graph:
            yield graph


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
