"""`omnigraph version`: which release this is, and which storage format it writes."""

from __future__ import annotations

import typer

from omnigraph.cli.options import Json
from omnigraph.version import STORAGE_FORMAT, __version__


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("version")(version)


def version(as_json: Json = False) -> None:
    """Print the release and the storage format."""
    if as_json:
        from omnigraph.cli.output import to_json

        typer.echo(to_json({"version": __version__, "internal_schema_version": STORAGE_FORMAT}))
    else:
        typer.echo(version_line())


def version_line() -> str:
    """The release and the format in one line."""
    return f"omnigraph {__version__} (storage format {STORAGE_FORMAT})"
