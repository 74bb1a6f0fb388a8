"""`omnigraph verify`: walk the whole graph and report every inconsistency."""

from __future__ import annotations

import typer

from omnigraph.cli.exits import FAILURE
from omnigraph.cli.options import Address, Json, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, write_lines


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("verify")(verify)


@addressed
def verify(address: Address, uri: Uri = None, as_json: Json = False) -> None:
    """Check tables, rows, edges, rules and history; changes nothing."""
    from omnigraph.wire import verify_output

    session = Session("verify", address, uri=uri, capability="direct")
    with session.open(read_only=True) as graph:
        report = graph.maintenance.verify()
    body = verify_output(report, uri=session.uri)
    if as_json:
        typer.echo(to_json(body))
    else:
        for word, findings in (("problem", body["problems"]), ("note", body["notes"])):
            write_lines(f"{word}: {found['code']} {found['subject']}: {found['message']}" for found in findings)
        counts = ", ".join(f"{body[name]} {name}" for name in ("branches", "tables", "rows", "commits"))
        typer.echo(f"{'clean' if report.clean else 'NOT clean'}: {counts}")
    if not report.clean:
        raise typer.Exit(FAILURE)
