"""`omnigraph cleanup`: remove old versions for good."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.durations import parse_duration
from omnigraph.cli.exits import FAILURE
from omnigraph.cli.options import Json, Profile, Quiet, Store, Uri, Yes
from omnigraph.cli.session import Session
from omnigraph.errors import InputError


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("cleanup")(cleanup)


def cleanup(
    uri: Uri = None,
    keep: Annotated[int | None, typer.Option("--keep", metavar="N", help="Keep the newest N versions.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="SPAN", help="Keep what is younger, e.g. 7d, 12h, 90m.")
    ] = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Really remove; without it nothing happens.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    quiet: Quiet = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Remove versions beyond both bounds; what is published always stays."""
    from omnigraph.cli.output import to_json
    from omnigraph.wire import cleanup_output

    if keep is None and older_than is None:
        raise InputError("say how much history to keep: --keep <n>, --older-than <span>, or both")
    span = parse_duration(older_than) if older_than is not None else None
    session = Session("cleanup", uri=uri, store=store, profile=profile)
    if not confirm:
        bounds = [f"the newest {keep}"] if keep is not None else []
        bounds += [f"what is younger than {older_than}"] if older_than is not None else []
        typer.echo(
            f"would clean {session.target.uri}, keeping {' and '.join(bounds)}; pass --confirm to do it", err=True
        )
        return
    session.announce(quiet=quiet)
    session.confirm_destructive(yes=yes, as_json=as_json)
    with session.open(read_only=False) as graph:
        report = graph.maintenance.cleanup(keep_versions=keep, older_than=span)
    body = cleanup_output(report, uri=session.target.uri)
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
