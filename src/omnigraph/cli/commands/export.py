"""`omnigraph export`: a whole snapshot as data lines, or as files, that `load` takes back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from omnigraph.cli.commands.load import Engine, spark_settings
from omnigraph.cli.options import Branch, Profile, SparkConf, SparkMaster, Store, Uri
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError


class Format(StrEnum):
    """What an export writes."""

    JSONL = "jsonl"
    PARQUET = "parquet"


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
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="PATH", help="A new folder for files per type, or one file of lines."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="What to write; Parquet needs --to.")] = Format.JSONL,
    engine: Annotated[Engine, typer.Option("--engine", help="What does the work; auto chooses by size.")] = Engine.AUTO,
    master: SparkMaster = None,
    conf: SparkConf = None,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Print every entity as one JSON line, tables in key order and rows by id, or write files."""
    from omnigraph.cli.progress import load_bar

    settings = spark_settings(conf)
    needs_target = format is Format.PARQUET or engine is Engine.SPARK or bool(master or settings)
    if target is None and needs_target:
        raise InputError("Parquet and exports through Spark are folders of files: name a new one with --to")
    session = Session("export", uri=uri, store=store, profile=profile)
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
                format=format.value,
                engine=engine.value,
                master=master,
                conf=settings or None,
                progress=listener,
            )
    write_lines([f"exported {count:,} entities to {target}"])
