"""`omnigraph branch create|list|delete`: names that move between commits."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Actor, Json, Profile, Quiet, Store, Uri, UriOption, Yes
from omnigraph.cli.session import Session, write_lines

Name = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Work with branches.", no_args_is_help=False)
    group.command("create")(create_branch)
    group.command("list")(list_branches)
    group.command("delete")(delete_branch)
    application.add_typer(group, name="branch")


def create_branch(
    name: Name,
    uri: Uri = None,
    uri_option: UriOption = None,
    source: Annotated[str, typer.Option("--from", metavar="NAME", help="The branch to start from.")] = "main",
    actor: Actor = None,
    as_json: Json = False,
    quiet: Quiet = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Create a branch at the newest state of another one; nothing is copied."""
    session = Session("branch create", uri=uri, uri_option=uri_option, store=store, profile=profile)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        graph.branches.create(name, source, actor=author)
    if as_json:
        from omnigraph.cli.output import to_json

        typer.echo(to_json({"uri": session.target.uri, "from": source, "name": name, "actor_id": author}))
    else:
        typer.echo(f"created branch {name} from {source}")


def list_branches(
    uri: Uri = None,
    uri_option: UriOption = None,
    as_json: Json = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """List the branches by name."""
    session = Session("branch list", uri=uri, uri_option=uri_option, store=store, profile=profile)
    with session.open(read_only=True) as graph:
        names = sorted(graph.branches.list())
    if as_json:
        from omnigraph.cli.output import to_json

        typer.echo(to_json({"branches": names}))
    else:
        write_lines(names)


def delete_branch(
    name: Name,
    uri: Uri = None,
    uri_option: UriOption = None,
    actor: Actor = None,
    yes: Yes = False,
    as_json: Json = False,
    quiet: Quiet = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Delete a branch, with what only it has."""
    session = Session("branch delete", uri=uri, uri_option=uri_option, store=store, profile=profile)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    session.confirm_destructive(yes=yes, as_json=as_json)
    with session.open(read_only=False) as graph:
        graph.branches.delete(name, actor=author)
    if as_json:
        from omnigraph.cli.output import to_json

        typer.echo(to_json({"uri": session.target.uri, "name": name, "actor_id": author}))
    else:
        typer.echo(f"deleted branch {name}")
