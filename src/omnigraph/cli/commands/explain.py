"""`omnigraph explain`: what a query will do, and with --analyze what it did."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.inputs import name_and_uri, parameters, query_text
from omnigraph.cli.options import (
    Branch,
    GraphId,
    Inline,
    Json,
    Params,
    ParamsFile,
    Profile,
    Query,
    QueryName,
    Server,
    Store,
    Uri,
)
from omnigraph.cli.session import Session


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("explain")(explain)


def explain(
    name: QueryName = None,
    uri: Uri = None,
    query_file: Query = None,
    inline: Inline = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Branch = "main",
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the read, and show rows and times of each step.")
    ] = False,
    as_json: Json = False,
    store: Store = None,
    server: Server = None,
    graph_id: GraphId = None,
    profile: Profile = None,
) -> None:
    """Show the plan of a query."""
    name, uri = name_and_uri(name, uri)
    source = query_text(query_file, inline)
    values = parameters(params, params_file)
    session = Session("explain", uri=uri, store=store, server=server, graph=graph_id, profile=profile)
    with session.open(read_only=True) as graph:
        tree = graph.explain(source, values, name=name, branch=branch, analyze=analyze)
    if as_json:
        from omnigraph.cli.output import to_json

        typer.echo(to_json(tree.to_json()))
    else:
        typer.echo(tree.to_text())
