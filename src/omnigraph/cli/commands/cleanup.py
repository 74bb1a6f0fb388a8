"""`omnigraph cleanup`: remove old versions for good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.durations import parse_duration
from omnigraph.cli.exits import FAILURE
from omnigraph.cli.options import Address, Json, Quiet, Uri, Yes, addressed
from omnigraph.cli.output import counted, to_json
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.engine.operations.cleanup import CleanupPlan


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("cleanup")(cleanup)


@addressed
def cleanup(
    address: Address,
    uri: Uri = None,
    keep: Annotated[int | None, typer.Option("--keep", metavar="N", help="Keep the newest N versions.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="SPAN", help="Keep what is younger, e.g. 7d, 12h, 90m.")
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Really remove; without it what would go is listed.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove versions beyond both bounds; what is published always stays."""
    from omnigraph.wire import cleanup_output, cleanup_plan_output

    if keep is None and older_than is None:
        raise InputError("say how much history to keep: --keep <n>, --older-than <span>, or both")
    span = parse_duration(older_than) if older_than is not None else None
    session = Session("cleanup", address, uri=uri, capability="direct")
    if not confirm:
        bounds = [f"the newest {keep}"] if keep is not None else []
        bounds += [f"what is younger than {older_than}"] if older_than is not None else []
        typer.echo(f"would clean {session.uri}, keeping {' and '.join(bounds)}; pass --confirm to do it", err=True)
        with session.open(read_only=True) as graph:
            plan = graph.maintenance.plan_cleanup(keep=keep, older_than=span)
        if as_json:
            typer.echo(to_json(cleanup_plan_output(plan, uri=session.uri)))
        else:
            write_lines(plan_lines(plan))
        return
    session.announce(quiet=quiet)
    session.confirm_destructive(yes=yes, as_json=as_json)
    with session.open(read_only=False) as graph:
        report = graph.maintenance.cleanup(keep=keep, older_than=span)
    body = cleanup_output(report, uri=session.uri)
    if as_json:
        typer.echo(to_json(body))
    else:
        for row in body["tables"]:
            removed = f"{row['old_versions_removed']} versions, {row['orphan_files_removed']} unused files"
            outcome = row["error"] or f"{removed}, {row['bytes_removed']:,} bytes"
            typer.echo(f"{row['table_key']}: {outcome}")
        states = body["manifest"]
        if states["error"] or states["old_versions_removed"]:
            removed = f"{states['old_versions_removed']} unreadable states, {states['bytes_removed']:,} bytes"
            typer.echo(f"history: {states['error'] or removed}")
    if report.failed:
        raise typer.Exit(FAILURE)


def plan_lines(plan: CleanupPlan) -> Iterator[str]:
    """What would go, a line per table that something goes from."""
    if plan.is_empty:
        yield "nothing to remove"
    for table in plan.tables:
        if table.error:
            yield f"{table.table_key}: {table.error}"
        parts = []
        if table.versions:
            oldest, newest = min(table.versions.values()), max(table.versions.values())
            parts.append(
                f"{counted(len(table.versions), 'version')} of {oldest:%Y-%m-%d %H:%M} to {newest:%Y-%m-%d %H:%M}"
            )
        if table.forks:
            parts.append(f"the unused forks {', '.join(table.forks)}")
        if table.orphan_files:
            parts.append(f"{counted(table.orphan_files, 'unused file')} ({table.orphan_bytes:,} bytes)")
        if parts:
            yield f"{table.table_key}: {', '.join(parts)}"
