"""`omnigraph snapshot`: every table of a branch, with its version and row count."""

from __future__ import annotations

import typer

from omnigraph.cli.options import Address, Branch, Json, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("snapshot")(snapshot)


@addressed
def snapshot(address: Address, uri: Uri = None, branch: Branch = "main", as_json: Json = False) -> None:
    """Show each type's version and row count."""
    from omnigraph.wire import snapshot_output

    session = Session("snapshot", address, uri=uri)
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
