"""`omnigraph mutate`: run a write query, which becomes one commit."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.inputs import parameters, query_text
from omnigraph.cli.options import (
    Actor,
    BlobsFrom,
    Branch,
    CommitDurability,
    Durability,
    Inline,
    Json,
    Params,
    ParamsFile,
    Profile,
    Query,
    QueryName,
    Quiet,
    Store,
)
from omnigraph.cli.session import Session


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("mutate")(mutate)


def mutate(
    name: QueryName = None,
    query_file: Query = None,
    inline: Inline = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Branch = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", metavar="ID", help="Write only if this commit still is the branch's head."),
    ] = None,
    durability: CommitDurability = Durability.FAST,
    blobs_from: BlobsFrom = None,
    actor: Actor = None,
    as_json: Json = False,
    quiet: Quiet = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Run a write query; it becomes one commit, or nothing."""
    from omnigraph.cli.output import to_json
    from omnigraph.wire import change_output

    source = query_text(query_file, inline)
    values = parameters(params, params_file)
    session = Session("mutate", store=store, profile=profile)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    with session.open(read_only=False, durability=durability.value, external_blobs=blobs_from or ()) as graph:
        result = graph.mutate(source, values, name=name, branch=branch, actor=author, if_commit=if_commit)
    if as_json:
        typer.echo(to_json(change_output(result)))
        return
    typer.echo(
        f"changed {branch} via {result.query_name}: {result.affected_nodes} nodes, {result.affected_edges} edges"
    )
    if author is not None:
        typer.echo(f"actor_id: {author}")
