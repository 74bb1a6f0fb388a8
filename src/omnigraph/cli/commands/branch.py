"""`omnigraph branch create|list|show|diff|merge|conflicts|delete`: names that move between commits."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.commands import merge
from omnigraph.cli.commands.commit import commit_line
from omnigraph.cli.differences import SHOWN_CHANGES, Kinds, Limit, Ops, Stat, Told, Types, diff_lines
from omnigraph.cli.options import Actor, Address, Json, Quiet, Uri, UriOption, Yes, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, write_lines
from omnigraph.ids import MAIN

Name = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Work with branches.", no_args_is_help=False)
    group.command("create")(create_branch)
    group.command("list")(list_branches)
    group.command("show")(show_branch)
    group.command("diff")(diff_branches)
    merge.register(group)
    group.command("delete")(delete_branch)
    application.add_typer(group, name="branch")


@addressed
def create_branch(
    address: Address,
    name: Name,
    uri: Uri = None,
    uri_option: UriOption = None,
    source: Annotated[str, typer.Option("--from", metavar="NAME", help="The branch to start from.")] = "main",
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="MOMENT", help="A commit, a tag or a time to start at.", show_default=False),
    ] = None,
    actor: Actor = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Create a branch at the newest state of another one; nothing is copied."""
    session = Session("branch create", address, uri=uri, uri_option=uri_option)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        created = graph.branches.create(name, source, at=at, actor=author)
    if as_json:
        facts = {"uri": session.uri, "from": source, "name": name, "actor_id": author}
        typer.echo(to_json({**facts, "graph_commit_id": created.head}))
    else:
        typer.echo(f"created branch {name} from {source}{'' if at is None else f' at commit {created.head}'}")


@addressed
def list_branches(address: Address, uri: Uri = None, uri_option: UriOption = None, as_json: Json = False) -> None:
    """List the branches by name."""
    session = Session("branch list", address, uri=uri, uri_option=uri_option)
    with session.open(read_only=True) as graph:
        names = sorted(graph.branches.list())
    if as_json:
        typer.echo(to_json({"branches": names}))
    else:
        write_lines(names)


@addressed
def show_branch(
    address: Address,
    name: Name,
    uri: Uri = None,
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="The branch it is compared with.")] = "main",
    as_json: Json = False,
) -> None:
    """Show where a branch stands: its newest commit, and how many commits it is ahead and behind."""
    from omnigraph.wire import branch_output, commit_output

    session = Session("branch show", address, uri=uri)
    with session.open(read_only=True) as graph:
        info = graph.branches.show(name, into)
    if as_json:
        typer.echo(to_json(branch_output(info)))
        return
    typer.echo(f"branch {info.name}")
    if info.created_from is not None:
        typer.echo(f"created from {info.created_from} at version {info.created_at_version}")
    typer.echo(f"head {commit_line(commit_output(info.head))}")
    if info.name != info.compared_with:
        typer.echo(f"{info.ahead} commits ahead of {info.compared_with}, {info.behind} behind")


@addressed
def diff_branches(
    address: Address,
    source: Annotated[str, typer.Argument(metavar="A", help="A branch; with --two-way also a commit.")],
    into: Annotated[str, typer.Argument(metavar="B", help="What it is compared with.")] = MAIN,
    uri: Uri = None,
    uri_option: UriOption = None,
    two_way: Annotated[
        bool, typer.Option("--two-way", help="Compare the newest states: what B lacks of A, and has besides.")
    ] = False,
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    values: Told = "changed",
    stat: Stat = False,
    limit: Limit = SHOWN_CHANGES,
    as_json: Json = False,
) -> None:
    """Show what branch A would bring into branch B: its changes since the two parted."""
    hint = "" if into == MAIN else f"; '{into}' was taken as the branch B: write 'branch diff {source} main {into}'"
    session = Session("branch diff", address, uri=uri, uri_option=uri_option, hint=hint)
    with session.open(read_only=True) as graph:
        wanted = {"types": types or (), "kinds": kinds or (), "ops": ops or ()}
        if two_way:
            found = graph.diff(into, source, values=values, **wanted)
        else:
            found = graph.branches.diff(source, into, values=values, **wanted)
        if as_json:
            from omnigraph.wire import diff_output

            typer.echo(to_json(diff_output(found)))
        else:
            write_lines(diff_lines(found, stat=stat, limit=limit))


@addressed
def delete_branch(
    address: Address,
    name: Name,
    uri: Uri = None,
    uri_option: UriOption = None,
    actor: Actor = None,
    yes: Yes = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Delete a branch, with what only it has."""
    session = Session("branch delete", address, uri=uri, uri_option=uri_option)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    session.confirm_destructive(yes=yes, as_json=as_json)
    with session.open(read_only=False) as graph:
        graph.branches.delete(name, actor=author)
    if as_json:
        typer.echo(to_json({"uri": session.uri, "name": name, "actor_id": author}))
    else:
        typer.echo(f"deleted branch {name}")
