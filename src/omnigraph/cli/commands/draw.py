"""`omnigraph draw`: what a query finds, or the neighbourhood of some nodes, as a picture."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.inputs import name_and_uri, parameters, query_text
from omnigraph.cli.options import Address, Inline, Params, ParamsFile, Query, QueryName, Uri, addressed
from omnigraph.cli.session import Session
from omnigraph.errors import InputError


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("draw")(draw)


@addressed
def draw(
    address: Address,
    name: QueryName = None,
    uri: Uri = None,
    query_file: Query = None,
    inline: Inline = None,
    params: Params = None,
    params_file: ParamsFile = None,
    nodes: Annotated[
        list[str] | None, typer.Option("--node", metavar="TYPE:ID", help="A node to begin with; may be repeated.")
    ] = None,
    hops: Annotated[int, typer.Option("--hops", metavar="N", min=0, help="How far around to go.")] = 1,
    edges: Annotated[
        list[str] | None, typer.Option("--edge", metavar="TYPE", help="Only edges of this type; may be repeated.")
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="TYPE=PROPERTY", help="What nodes of a type are called by; may be repeated."),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--nodes-max", metavar="N", min=1, help="At most so many nodes; 100 by default.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="An .svg or .html file; else SVG goes to standard output."),
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="NAME", help="The branch to read; main by default.")
    ] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="MOMENT", help="The past, as in query.")] = None,
) -> None:
    """Draw what a query finds, some nodes or a sample, and what is near it."""
    if branch is not None and at is not None:
        raise InputError("--branch and --at are mutually exclusive: pass one of them")
    name, uri = name_and_uri(name, uri)
    asked = query_text(query_file, inline) if query_file is not None or inline is not None else None
    if asked is not None and nodes:
        raise InputError("a query and --node are two ways to say where to begin: pass one of them")
    begin: dict[str, list[str]] = {}
    for kind, key in (_halves(each, ":", "--node", "TYPE:ID") for each in nodes or ()):
        begin.setdefault(kind, []).append(key)
    session = Session("draw", address, uri=uri)
    with session.open(read_only=True) as graph:
        drawing = graph.draw(
            asked,
            parameters(params, params_file),
            branch or "main",
            at,
            name=name,
            nodes=begin or None,
            hops=hops,
            edges=edges or (),
            nodes_max=most,
            labels=dict(_halves(each, "=", "--label", "TYPE=PROPERTY") for each in labels or ()),
        )
    if out is None:
        typer.echo(drawing.to_svg())
        return
    drawing.save(out)
    typer.echo(f"drew {len(drawing.nodes):,} nodes to {out}", err=True)
    for left in drawing.left_out:
        typer.echo(f"not drawn: {left}", err=True)


def _halves(text: str, mark: str, flag: str, shape: str) -> tuple[str, str]:
    left, found, right = text.partition(mark)
    if not (left and found and right):
        raise InputError(f"{flag} is written as {shape}, not '{text}'")
    return left, right
