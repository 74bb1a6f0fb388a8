"""`omnigraph optimize`: compact tables and complete indexes, as one commit."""

from __future__ import annotations

from typing import Any

import typer

from omnigraph.cli.options import Address, Json, Message, Quiet, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, write_lines


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("optimize")(optimize)


@addressed
def optimize(
    address: Address,
    uri: Uri = None,
    message: Message = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compact small fragments and build declared indexes; no content changes."""
    session = Session("optimize", address, uri=uri, capability="direct")
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        report = graph.maintenance.optimize(actor=session.config.actor, message=message)
    rows = [table.to_json() for table in report.tables]
    if as_json:
        typer.echo(to_json({"uri": session.uri, "tables": rows, "commit": report.commit_id}))
        return
    for row in rows:
        typer.echo(f"{row['table_key']}: {_done(row)}")
        write_lines(f"  index on {index['column']} waits: {index['reason']}" for index in row["pending_indexes"])
    typer.echo(f"commit {report.commit_id}" if report.commit_id else "nothing changed, no commit")


def _done(row: dict[str, Any]) -> str:
    if row["skipped"]:
        return f"skipped, {row['skipped']}"
    done = []
    if row["fragments_removed"] or row["fragments_added"]:
        done.append(f"{row['fragments_removed']} fragments became {row['fragments_added']}")
    if row["indexes_built"]:
        done.append(f"indexed {', '.join(row['indexes_built'])}")
    return "; ".join(done) or "nothing to do"
