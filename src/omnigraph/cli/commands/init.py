"""`omnigraph init`: an empty graph from a schema."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.inputs import read_text
from omnigraph.cli.options import Json, Schema
from omnigraph.cli.target import Target, checked_address


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("init")(init)


def init(
    uri: Annotated[str, typer.Argument(metavar="URI", help="Where the graph will live: a path, file:// or s3:// URI.")],
    schema: Schema,
    force: Annotated[
        bool, typer.Option("--force", help="Replace schema files left without a graph; never an existing graph.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create an empty graph with the branch main."""
    import omnigraph

    target = Target(checked_address(uri))
    text = read_text(schema, what="schema")
    with omnigraph.create(target.uri, schema=text, force=force):
        pass
    if as_json:
        from omnigraph.cli.output import to_json

        typer.echo(to_json({"uri": target.uri, "branch": "main"}))
    else:
        typer.echo(f"initialized {target.uri}")
