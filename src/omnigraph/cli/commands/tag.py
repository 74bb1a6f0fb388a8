"""`omnigraph tag create|list|delete`: names that stay with one commit."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Actor, Address, Branch, Json, Message, Quiet, Uri, addressed
from omnigraph.cli.output import Layout, table_lines, to_json
from omnigraph.cli.session import Session, write_lines

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tag.")]


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Work with tags.", no_args_is_help=False)
    group.command("create")(create_tag)
    group.command("list")(list_tags)
    group.command("delete")(delete_tag)
    application.add_typer(group, name="tag")


@addressed
def create_tag(
    address: Address,
    name: Name,
    uri: Uri = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="MOMENT",
            help="A commit, a tag or a time; the newest commit without it.",
            show_default=False,
        ),
    ] = None,
    branch: Branch = "main",
    actor: Actor = None,
    message: Message = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Name a commit, and keep its state from cleanup."""
    from omnigraph.wire import tag_output

    session = Session("tag create", address, uri=uri)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        tag = graph.tags.create(name, at, branch, actor=author, message=message)
    if as_json:
        typer.echo(to_json(tag_output(tag)))
    else:
        typer.echo(f"tag {tag.name} names commit {tag.graph_commit_id}")


@addressed
def list_tags(address: Address, uri: Uri = None, as_json: Json = False) -> None:
    """List the tags by name."""
    from omnigraph.engine.manifest.references import told
    from omnigraph.wire import tag_output

    session = Session("tag list", address, uri=uri)
    with session.open(read_only=True) as graph:
        tags = graph.tags.list()
    if as_json:
        typer.echo(to_json({"tags": [tag_output(tag) for tag in tags]}))
        return
    rows = [
        {
            "tag": tag.name,
            "commit": tag.graph_commit_id,
            "branch": tag.manifest_branch or "main",
            "made": told(tag.created_at),
            "actor": tag.actor_id or "",
            "message": (tag.message or "").strip().partition("\n")[0],
        }
        for tag in tags
    ]
    if rows:
        write_lines(table_lines(list(rows[0]), rows, Layout()))


@addressed
def delete_tag(
    address: Address,
    name: Name,
    uri: Uri = None,
    actor: Actor = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Delete a tag; what only it kept is for the next cleanup."""
    session = Session("tag delete", address, uri=uri)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        graph.tags.delete(name, actor=author)
    if as_json:
        typer.echo(to_json({"uri": session.uri, "name": name, "actor_id": author}))
    else:
        typer.echo(f"deleted tag {name}")
