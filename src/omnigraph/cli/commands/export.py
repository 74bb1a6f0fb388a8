"""`omnigraph export`: a whole snapshot as data lines that `load` takes back."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Branch, Profile, Store, Uri
from omnigraph.cli.session import Session, write_lines


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("export")(export)


def export(
    uri: Uri = None,
    branch: Branch = "main",
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type; may be repeated.")
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", metavar="KEY", help="Only this table, e.g. node:Person.")
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", metavar="ID", help="A commit to export instead of the branch's head.")
    ] = None,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Print every entity as one JSON line, tables in key order and rows by id."""
    session = Session("export", uri=uri, store=store, profile=profile)
    with session.open(read_only=True) as graph:
        write_lines(graph.export(None, branch=branch, at=snapshot, types=types or (), tables=tables or ()))
