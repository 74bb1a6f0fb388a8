"""`omnigraph profile list|show`: the scopes of the configuration, and which one is active."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from omnigraph.cli.config import OperatorConfig
from omnigraph.cli.options import Json
from omnigraph.cli.output import to_json
from omnigraph.cli.session import configuration, write_lines
from omnigraph.cli.target import Scope, default_scope, profile_scope, server_address
from omnigraph.errors import InputError


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="See profiles.", no_args_is_help=False)
    group.command("list")(list_profiles)
    group.command("show")(show_profile)
    application.add_typer(group, name="profile")


def list_profiles(as_json: Json = False) -> None:
    """List the profiles; one that is broken says why."""
    config = configuration()
    active = os.environ.get("OMNIGRAPH_PROFILE", "").strip()
    rows = [_row(config, str(name), active) for name in sorted(config.profiles, key=str)]
    if as_json:
        typer.echo(to_json({"profiles": rows}))
        return
    for row in rows:
        mark = "*" if row["active"] else " "
        told = f"{row['scope_kind']} {row['target']}" if row["valid"] else f"broken: {row['error']}"
        graph = f" graph={row['default_graph']}" if row["default_graph"] else ""
        typer.echo(f"{mark} {row['name']}: {told}{graph}")
    if not rows:
        typer.echo("no profiles")


def _row(config: OperatorConfig, name: str, active: str) -> dict[str, Any]:
    scope, error = None, None
    try:
        scope = profile_scope(config, name)
        _endpoint(config, scope)
    except InputError as exc:
        error = exc.message
    return {
        "name": name,
        "binding": None if scope is None else {scope.kind: scope.target},
        "scope_kind": None if scope is None else scope.kind,
        "target": None if scope is None else scope.target,
        "valid": error is None,
        "error": error,
        "default_graph": None if scope is None else scope.graph,
        "active": name == active,
    }


def show_profile(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A profile; the active one by default.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a profile addresses, or what is addressed by default."""
    config = configuration()
    chosen = name or os.environ.get("OMNIGRAPH_PROFILE", "").strip() or None
    scope = default_scope(config) if chosen is None else profile_scope(config, chosen)
    told = {
        "name": chosen or "(defaults)",
        "scope_kind": None if scope is None else scope.kind,
        "target": None if scope is None else scope.target,
        "endpoint": None if scope is None else _endpoint(config, scope),
        "default_graph": None if scope is None else scope.graph,
        "output_format": config.defaults.output,
    }
    if as_json:
        typer.echo(to_json(told))
    else:
        write_lines(f"{key}: {'null' if value is None else value}" for key, value in told.items())


def _endpoint(config: OperatorConfig, scope: Scope) -> str:
    return server_address(config, scope.target) if scope.kind == "server" else scope.target
