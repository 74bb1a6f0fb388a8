"""`omnigraph mutate`: run a write query, which becomes one commit."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.inputs import name_and_uri, parameters, query_text
from omnigraph.cli.options import (
    Actor,
    Address,
    BlobsFrom,
    Branch,
    CommitDurability,
    Inline,
    Json,
    Message,
    Params,
    ParamsFile,
    Query,
    QueryName,
    Quiet,
    Uri,
    addressed,
)
from omnigraph.cli.session import Session, changed_lines, write_lines
from omnigraph.errors import InputError


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("mutate")(mutate)


@addressed
def mutate(
    address: Address,
    name: QueryName = None,
    uri: Uri = None,
    query_file: Query = None,
    inline: Inline = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Branch = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", metavar="ID", help="Write only if this commit still is the branch's head."),
    ] = None,
    durability: CommitDurability = "fast",
    blobs_from: BlobsFrom = None,
    actor: Actor = None,
    message: Message = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a write query; it becomes one commit, or nothing."""
    name, uri = name_and_uri(name, uri)
    values = parameters(params, params_file)
    stored = query_file is None and inline is None and name is not None
    source = "" if stored else query_text(query_file, inline)
    session = Session("mutate", address, uri=uri)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    if stored and name is not None:
        if message is not None:
            raise InputError("a stored query takes no message: leave -m out, or give the query with --query or -e")
        result = session.run_stored_mutation(name, values, branch=branch, if_commit=if_commit)
    else:
        with session.open(read_only=False, durability=durability, external_blobs=blobs_from or ()) as graph:
            result = graph.mutate(
                source, values, name=name, branch=branch, actor=author, if_commit=if_commit, message=message
            )
    write_lines(changed_lines(result, as_json=as_json))
