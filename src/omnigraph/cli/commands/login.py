"""`omnigraph login` and `omnigraph logout`: the token of a server, kept for this user."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from omnigraph.cli.config import operator_home
from omnigraph.cli.credentials import check_name, credentials_path, remove_token, store_token
from omnigraph.cli.options import Json
from omnigraph.cli.output import to_json
from omnigraph.cli.session import configuration
from omnigraph.errors import InputError

Name = Annotated[str, typer.Argument(metavar="NAME", help="The server, as servers: of the configuration names it.")]


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    application.command("login")(login)
    application.command("logout")(logout)


def login(
    name: Name,
    token: Annotated[
        str | None, typer.Option("--token", metavar="TOKEN", help="The token; better through standard input.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep the token of a server; it is read from standard input unless it is given."""
    check_name(name)
    config = configuration()
    given = token if token is not None else _asked(name)
    home = operator_home(os.environ)
    store_token(home, name, given)
    if name not in config.servers:
        typer.echo(f"note: there is no server '{name}' under servers: of the configuration yet", err=True)
    if as_json:
        typer.echo(to_json({"name": name, "stored": True, "path": str(credentials_path(home))}))
    else:
        typer.echo(f"stored the token of {name}")


def logout(name: Name, as_json: Json = False) -> None:
    """Forget the token of a server."""
    removed = remove_token(operator_home(os.environ), name)
    if as_json:
        typer.echo(to_json({"name": name, "removed": removed}))
    else:
        typer.echo(f"removed the token of {name}" if removed else f"there is no token of {name}")


def _asked(name: str) -> str:
    if sys.stdin.isatty():
        return str(typer.prompt(f"Token of {name}", hide_input=True, err=True))
    line = sys.stdin.readline().strip()
    if not line:
        raise InputError("no token given: pass it on standard input, or with --token")
    return line
