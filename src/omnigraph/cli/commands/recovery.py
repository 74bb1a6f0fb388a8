"""`omnigraph recovery list`: writes in flight, or cut short."""

from __future__ import annotations

import typer

from omnigraph.cli.options import Address, Json, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, write_lines


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="See unfinished writes.", no_args_is_help=False)
    group.command("list")(list_unfinished)
    application.add_typer(group, name="recovery")


@addressed
def list_unfinished(address: Address, uri: Uri = None, as_json: Json = False) -> None:
    """List the writes in flight or cut short; the next write settles those whose writer is gone."""
    from omnigraph.wire import intent_output

    session = Session("recovery list", address, uri=uri, capability="direct")
    with session.open(read_only=True) as graph:
        rows = [intent_output(intent) for intent in graph.maintenance.unfinished()]
    if as_json:
        typer.echo(to_json({"uri": session.uri, "intents": rows}))
    elif not rows:
        typer.echo("no unfinished writes")
    else:
        write_lines(
            f"{row['operation_id']} {row['writer_kind']} branch={row['branch'] or 'main'}"
            f" tables={','.join(row['tables'])}"
            for row in rows
        )
