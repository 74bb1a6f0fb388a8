"""`omnigraph export`: a whole snapshot as data lines, or as files, that `load` takes back."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from omnigraph.choices import Engine, ExportFormat
from omnigraph.cli.commands.load import spark_settings
from omnigraph.cli.options import Address, Branch, SparkConf, SparkMaster, Uri, addressed
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("export")(export)


@addressed
def export(
    address: Address,
    uri: Uri = None,
    branch: Branch = "main",
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type; may be repeated.")
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", metavar="KEY", help="Only this table, e.g. node:Person.")
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option("--at", "--snapshot", metavar="MOMENT", help="A commit to export instead of the branch's head."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="PATH", help="A new folder for files per type, or one file of lines."),
    ] = None,
    format: Annotated[ExportFormat, typer.Option("--format", help="What to write; Parquet needs --to.")] = "jsonl",
    engine: Annotated[Engine, typer.Option("--engine", help="What does the work; auto chooses by size.")] = "auto",
    master: SparkMaster = None,
    conf: SparkConf = None,
) -> None:
    """Print every entity as one JSON line, tables in key order and rows by id, or write files."""
    from omnigraph.cli.progress import load_bar
    from omnigraph.engine.storage.outlet import is_replaced

    settings = spark_settings(conf)
    needs_target = format == "parquet" or engine == "spark" or bool(master or settings)
    if target is None and needs_target:
        raise InputError("Parquet and exports through Spark are folders of files: name a new one with --to")
    session = Session("export", address, uri=uri)
    with session.open(read_only=True) as graph:
        if target is None:
            write_lines(graph.export(None, branch=branch, at=snapshot, types=types or (), tables=tables or ()))
            return
        with load_bar() as listener:
            count = graph.export(
                target,
                branch=branch,
                at=snapshot,
                types=types or (),
                tables=tables or (),
                format=format,
                engine=engine,
                master=master,
                conf=settings or None,
                progress=listener,
            )
    # What went through a pipe or to the terminal is not followed by a sentence that its reader would take for data.
    typer.echo(f"exported {count:,} entities to {target}", err=not is_replaced(target) and not os.path.isdir(target))
