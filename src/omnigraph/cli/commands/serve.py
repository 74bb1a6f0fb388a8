"""`omnigraph serve`, and the program `omnigraph-server`: one graph for many, over HTTP."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

from omnigraph.cli.options import BlobsFrom, CommitDurability, Uri
from omnigraph.errors import InputError

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("serve")(serve)


def serve(
    uri: Uri = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URI", help="The graph to serve.", envvar="OMNIGRAPH_STORE")
    ] = None,
    graph_id: Annotated[
        str, typer.Option("--graph-id", metavar="ID", help="Its name in URLs.", envvar="OMNIGRAPH_GRAPH_ID")
    ] = "default",
    bind: Annotated[
        str,
        typer.Option(
            "--bind", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.", envvar="OMNIGRAPH_BIND"
        ),
    ] = "127.0.0.1:8080",
    unauthenticated: Annotated[
        bool, typer.Option("--unauthenticated", help="Serve without tokens: everybody may do everything.")
    ] = False,
    queries: Annotated[
        str | None,
        typer.Option("--queries", metavar="FOLDER", help="Stored queries (.gq files).", envvar="OMNIGRAPH_QUERIES"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="FILE", help="Who may do what with the graph.", envvar="OMNIGRAPH_POLICY"),
    ] = None,
    server_policy: Annotated[
        str | None,
        typer.Option(
            "--server-policy", metavar="FILE", help="Who may list the graphs.", envvar="OMNIGRAPH_SERVER_POLICY"
        ),
    ] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Answer GET /metrics.")] = False,
    durability: CommitDurability = "full",
    blobs_from: BlobsFrom = None,
    check: Annotated[
        bool, typer.Option("--check", help="Open and check everything that is to be served, and end.")
    ] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = "info",
) -> None:
    """Serve one graph over HTTP until it is told to stop (SIGINT, SIGTERM)."""
    from omnigraph.cli.embedding import embedding_config
    from omnigraph.server.boot import Boot, check_boot
    from omnigraph.server.boot import serve as run
    from omnigraph.server.settings import switched_on

    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise InputError(f"a log level is debug, info, warning or error, not '{log_level}'")
    store = _addressed(uri, store)
    logging.basicConfig(level=log_level.upper(), format=_LOG_FORMAT, stream=sys.stderr)
    variables = {**os.environ, **({"OMNIGRAPH_METRICS": "1"} if metrics else {})}
    boot = Boot(
        store=store,
        graph_id=graph_id,
        bind=bind,
        unauthenticated=unauthenticated
        or switched_on(variables.get("OMNIGRAPH_UNAUTHENTICATED"), variable="OMNIGRAPH_UNAUTHENTICATED"),
        queries=queries,
        policy=policy,
        server_policy=server_policy,
        durability=durability,
        external_blobs=tuple(blobs_from or ()),
        embedding=embedding_config(os.environ),
    )
    if check:
        check_boot(boot, variables)
        typer.echo(f"ready to serve {boot.store} as '{graph_id}' at {bind}")
        return
    run(boot, variables, announce=_announce)


def _addressed(uri: str | None, store: str | None) -> str:
    """The graph that is meant: the one named first, `--store`, or that of the environment."""
    if uri is not None and store not in (None, os.environ.get("OMNIGRAPH_STORE")):
        raise InputError("a positional URI and --store are mutually exclusive: pass one of them")
    named = (store or "" if uri is None else uri).strip()
    if not named:
        raise InputError("there is nothing to serve: pass the URI of a graph, or --store <uri>")
    return named


def _announce(address: str) -> None:
    typer.echo(f"OMNIGRAPH_LISTEN_ADDR={address}")
    sys.stdout.flush()


def main() -> None:
    """The program `omnigraph-server`, the same as `omnigraph serve`."""
    from omnigraph.cli.main import main as program

    program(["serve", *sys.argv[1:]])
