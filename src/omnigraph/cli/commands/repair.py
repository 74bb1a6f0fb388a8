"""`omnigraph repair`: tables that another program changed behind the graph's back."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.exits import FAILURE
from omnigraph.cli.options import Address, Json, Message, Quiet, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("repair")(repair)


@addressed
def repair(
    address: Address,
    uri: Uri = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Publish what is verified to be maintenance.")] = False,
    force: Annotated[bool, typer.Option("--force", help="With --confirm: publish everything else as well.")] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="With --confirm: put tables back to what is published instead.")
    ] = False,
    message: Message = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show how table heads differ from what is published, and settle it when told to."""
    from omnigraph.wire import repair_output

    session = Session("repair", address, uri=uri, capability="direct")
    if confirm:
        session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        report = graph.maintenance.repair(confirm=confirm, force=force, discard=discard, message=message)
    body = repair_output(report, uri=session.uri)
    if as_json:
        typer.echo(to_json(body))
    else:
        for row in body["tables"]:
            versions = f"published {row['manifest_version']}, head {row['lance_head_version']}"
            typer.echo(f"{row['table_key']}: {row['classification']} ({versions}) → {row['action']}")
        typer.echo(f"commit {report.commit_id}" if report.commit_id else "nothing changed, no commit")
    if report.refused:
        raise typer.Exit(FAILURE)
