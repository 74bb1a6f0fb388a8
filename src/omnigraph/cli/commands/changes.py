"""`omnigraph changes poll|baseline|follow`: what happens on a graph, for whoever follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.differences import Kinds, Ops, Told, Types, change_lines
from omnigraph.cli.durations import parse_duration
from omnigraph.cli.options import Address, Branch, Json, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, write_lines

if TYPE_CHECKING:
    from omnigraph.engine.operations.feed import ChangeBlock

Cursor = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where this was given.", show_default=False)
]
Start = Annotated[
    str | None,
    typer.Option(
        "--start", metavar="now|beginning|after:COMMIT", help="Where to begin without a cursor.", show_default=False
    ),
]
PageLimit = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="Changes in an answer at most.", show_default=False)
]


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Follow what happens on a graph.", no_args_is_help=False)
    group.command("poll")(poll)
    group.command("follow")(follow)
    group.command("baseline")(baseline)
    application.add_typer(group, name="changes")


@addressed
def poll(
    address: Address,
    uri: Uri = None,
    cursor: Cursor = None,
    start: Start = None,
    page_token: Annotated[
        str | None,
        typer.Option("--page-token", metavar="TOKEN", help="The rest of a large commit.", show_default=False),
    ] = None,
    branch: Branch = "main",
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    values: Told = "changed",
    limit: PageLimit = None,
    as_json: Json = False,
) -> None:
    """Show what came after a cursor, commit by commit, and the cursor to go on with."""
    session = Session("changes poll", address, uri=uri)
    wanted: dict[str, Any] = {"types": types or (), "kinds": kinds or (), "ops": ops or (), "values": values}
    with session.open(read_only=True) as graph:
        page = graph.changes.poll(cursor, start=start, page_token=page_token, branch=branch, limit=limit, **wanted)
        if as_json:
            typer.echo(to_json(page.to_json()))
            return
        while True:
            for block in page.blocks:
                write_lines(block_lines(block))
            if page.next_page_token is None:
                break
            page = graph.changes.poll(page_token=page.next_page_token, branch=branch, limit=limit, **wanted)
    typer.echo("caught up" if page.caught_up else "there is more")
    typer.echo(f"cursor: {page.cursor}")


@addressed
def follow(
    address: Address,
    uri: Uri = None,
    cursor: Cursor = None,
    start: Start = None,
    branch: Branch = "main",
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    values: Told = "changed",
    idle: Annotated[
        str | None,
        typer.Option(
            "--idle", metavar="SPAN", help="End after so long without news: 90, 30m, 12h.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what happens as it happens, until interrupted; --json prints a line per block and per cursor."""
    session = Session("changes follow", address, uri=uri)
    idle_seconds = None if idle is None else parse_duration(idle).total_seconds()
    with session.open(read_only=True) as graph:
        pages = graph.changes.follow(
            cursor,
            start=start,
            branch=branch,
            types=types or (),
            kinds=kinds or (),
            ops=ops or (),
            values=values,
            idle_seconds=idle_seconds,
        )
        for page in pages:
            for block in page.blocks:
                if as_json:
                    typer.echo(json.dumps(block.to_json(), ensure_ascii=False))
                else:
                    write_lines(block_lines(block))
            if page.cursor is not None:
                typer.echo(json.dumps({"cursor": page.cursor}) if as_json else f"cursor: {page.cursor}")


@addressed
def baseline(
    address: Address,
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Where the state is written.")],
    uri: Uri = None,
    branch: Branch = "main",
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="MOMENT", help="A commit, a tag or a time instead of now.", show_default=False),
    ] = None,
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    as_json: Json = False,
) -> None:
    """Write one state as data lines, and last the cursor to follow it with."""
    session = Session("changes baseline", address, uri=uri)
    with session.open(read_only=True) as graph:
        made = graph.changes.baseline(out, branch, at, types=types or (), kinds=kinds or (), ops=ops or ())
    if as_json:
        typer.echo(to_json(made.to_json()))
    else:
        typer.echo(f"{made.entities:,} entities of commit {made.snapshot_commit_id} written to {out}")
        typer.echo(f"cursor: {made.resume_cursor}")


def block_lines(block: ChangeBlock) -> Iterator[str]:
    """One commit of the feed for people."""
    from omnigraph.engine.manifest.references import told

    cause = block.cause
    by = f" by {cause.actor_id}" if cause.actor_id is not None else ""
    merged = f", merging {cause.merged_parent_commit_id}" if cause.merged_parent_commit_id is not None else ""
    said = f"  {cause.message.strip().splitlines()[0]}" if cause.message else ""
    yield f"commit {cause.graph_commit_id} at {told(cause.authored_at)}{by}{merged}{said}"
    for change in block.changes:
        yield from (f"  {line}" for line in change_lines(change))
    if not block.changes:
        yield "  no entity changed"
