"""`omnigraph explain`: what a query will do, and with --analyze what it did."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.inputs import name_and_uri, parameters, query_text
from omnigraph.cli.options import Address, Branch, Inline, Json, Params, ParamsFile, Query, QueryName, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("explain")(explain)


@addressed
def explain(
    address: Address,
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
) -> None:
    """Show the plan of a query."""
    name, uri = name_and_uri(name, uri)
    source = query_text(query_file, inline)
    values = parameters(params, params_file)
    session = Session("explain", address, uri=uri)
    with session.open(read_only=True) as graph:
        tree = graph.explain(source, values, name=name, branch=branch, analyze=analyze)
    if as_json:
        typer.echo(to_json(tree.to_json()))
    else:
        typer.echo(tree.to_text())
