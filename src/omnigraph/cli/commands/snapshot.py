"""`omnigraph snapshot`: every table of a branch, with its version and row count."""

from __future__ import annotations

import typer

from omnigraph.cli.options import Branch, GraphId, Json, Profile, Server, Store, Uri
from omnigraph.cli.session import Session


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("snapshot")(snapshot)


def snapshot(
    uri: Uri = None,
    branch: Branch = "main",
    as_json: Json = False,
    store: Store = None,
    server: Server = None,
    graph_id: GraphId = None,
    profile: Profile = None,
) -> None:
    """Show each type's version and row count."""
    from omnigraph.cli.output import to_json
    from omnigraph.wire import snapshot_output

    session = Session("snapshot", uri=uri, store=store, server=server, graph=graph_id, profile=profile)
    with session.open(read_only=True) as graph:
        output = snapshot_output(graph.snapshot(branch))
    if as_json:
        typer.echo(to_json(output))
        return
    typer.echo(f"branch: {output['branch']}")
    typer.echo(f"manifest_version: {output['manifest_version']}")
    for table in output["tables"]:
        owner = table["table_branch"] or "main"
        typer.echo(f"{table['table_key']} v{table['table_version']} branch={owner} rows={table['row_count']}")
