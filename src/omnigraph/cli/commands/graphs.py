"""`omnigraph graphs list`: the graphs of a server."""

from __future__ import annotations

import typer

from omnigraph.cli.options import Address, Json, Profile, Server
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, write_lines


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="See the graphs of a server.", no_args_is_help=False)
    group.command("list")(list_graphs)
    application.add_typer(group, name="graphs")


def list_graphs(server: Server = None, as_json: Json = False, profile: Profile = None) -> None:
    """List the graphs of a server."""
    session = Session("graphs list", Address(server=server, profile=profile), capability="served")
    found = session.graphs()
    if as_json:
        typer.echo(to_json({"graphs": found}))
    else:
        write_lines(f"{graph['graph_id']}\t{graph['uri']}" for graph in found)
