"""`omnigraph commit list|show|changes|revert`: the history of a graph."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from omnigraph.cli.commands import merge
from omnigraph.cli.differences import SHOWN_CHANGES, Kinds, Ops, Stat, Told, Types, diff_lines
from omnigraph.cli.options import Actor, Address, Branch, Json, Message, Quiet, Uri, UriOption, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError

FILTERS = ("actor", "branch", "since", "until")
"""What `--filter key=value` understands."""


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Read the history.", no_args_is_help=False)
    group.command("list")(list_commits)
    group.command("show")(show_commit)
    group.command("changes")(show_changes)
    group.command("revert")(revert_commit)
    application.add_typer(group, name="commit")


@addressed
def list_commits(
    address: Address,
    uri: Uri = None,
    branch: Branch = "main",
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="At most so many commits.")] = None,
    actor: Annotated[str | None, typer.Option("--actor", metavar="ACTOR", help="Only commits of this actor.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only commits from this time on (ISO 8601, UTC).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only commits up to this time (ISO 8601, UTC).")
    ] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="KEY=VALUE", help="actor, branch, since or until; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the commits of a branch, newest first."""
    from omnigraph.wire import commit_output

    wanted = parse_filters(filters or [])
    wanted.update(
        {key: value for key, value in (("actor", actor), ("since", since), ("until", until)) if value is not None}
    )
    branch = wanted.pop("branch", branch)
    session = Session("commit list", address, uri=uri)
    with session.open(read_only=True) as graph:
        chosen = [commit_output(commit) for commit in graph.history.list(branch, limit, **wanted)]
    if as_json:
        typer.echo(to_json({"commits": chosen}))
    else:
        write_lines(commit_line(commit) for commit in chosen)


@addressed
def show_commit(
    address: Address,
    commit_id: Annotated[str, typer.Argument(metavar="ID", help="The commit; its id may be shortened.")],
    uri: Uri = None,
    uri_option: UriOption = None,
    as_json: Json = False,
) -> None:
    """Show one commit."""
    from omnigraph.wire import commit_output

    session = Session("commit show", address, uri=uri, uri_option=uri_option)
    with session.open(read_only=True) as graph:
        output = commit_output(graph.history.show(commit_id))
    if as_json:
        typer.echo(to_json(output))
    else:
        output["created_at"] = moment_text(output["created_at"])
        writes = output.pop("writes", ())
        write_lines(f"{key}: {v if isinstance(v, str) else _json(v)}" for key, v in output.items())
        write_lines(f"write: {_json(write)}" for write in writes)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@addressed
def show_changes(
    address: Address,
    commit_id: Annotated[str, typer.Argument(metavar="ID", help="The commit; its id may be shortened.")],
    uri: Uri = None,
    uri_option: UriOption = None,
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    values: Told = "changed",
    stat: Stat = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=0,
            metavar="N",
            help=f"Entities shown at most ({SHOWN_CHANGES}); with --json the size of a page, without it all are told.",
            show_default=False,
        ),
    ] = None,
    page_token: Annotated[
        str | None,
        typer.Option("--page-token", metavar="TOKEN", help="With --json: the next page.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what one commit changed, entity by entity."""
    from omnigraph.wire import diff_output

    session = Session("commit changes", address, uri=uri, uri_option=uri_option)
    wanted: dict[str, Any] = {"types": types or (), "kinds": kinds or (), "ops": ops or (), "values": values}
    with session.open(read_only=True) as graph:
        if page_token is not None or (as_json and limit):
            if not as_json:
                raise InputError("a page token is for programs: pass --json, or leave it out and all is shown")
            page = graph.changes.of(commit_id, page_token=page_token, limit=limit or None, **wanted)
            typer.echo(to_json(page.to_json()))
            return
        found = graph.history.changes(commit_id, **wanted)
        if as_json:
            typer.echo(to_json(diff_output(found)))
        else:
            write_lines(diff_lines(found, stat=stat, limit=SHOWN_CHANGES if limit is None else limit))


@addressed
def revert_commit(
    address: Address,
    commit_id: Annotated[str, typer.Argument(metavar="ID", help="The commit; its id may be shortened.")],
    uri: Uri = None,
    branch: Branch = "main",
    strategy: merge.Strategy = None,
    strategy_for: merge.StrategyFor = None,
    resolve: Annotated[
        str | None,
        typer.Option("--resolve", metavar="FILE", help="Conflicts as lines, each with a take.", show_default=False),
    ] = None,
    expect_head: Annotated[
        str | None,
        typer.Option("--expect-head", metavar="COMMIT", help="Refuse if it is not there.", show_default=False),
    ] = None,
    actor: Actor = None,
    message: Message = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Undo one commit by a new one; of a merge, what it brought."""
    session = Session("commit revert", address, uri=uri)
    resolutions = None if resolve is None else merge.read_resolutions(resolve)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        result = graph.revert(
            commit_id,
            branch,
            strategy=strategy,
            strategies=merge.by_type(strategy_for or []),
            resolve=resolutions,
            expect_head=expect_head,
            actor=author,
            message=message,
        )
    if as_json:
        typer.echo(to_json(result.to_json()))
    elif result.commit_id is None:
        typer.echo(f"nothing of it is left to undo on {branch}, no commit")
    else:
        typer.echo(f"undone on {branch} by commit {result.commit_id}")


def commit_line(commit: dict[str, Any]) -> str:
    """One commit in one line; of its message the first line."""
    actor = f" actor={commit['actor_id']}" if commit["actor_id"] is not None else ""
    writes = f" writes={len(commit['writes'])}" if commit.get("writes") else ""
    branch = commit["manifest_branch"] or "main"
    message = commit.get("message")
    said = f"  {message.strip().splitlines()[0]}" if message else ""
    place = f"branch={branch} version={commit['manifest_version']} at={moment_text(commit['created_at'])}"
    return f"{commit['graph_commit_id']} {place}{actor}{writes}{said}"


def moment_text(micros: int) -> str:
    """A time of a commit, to the second and in UTC, as `--since`, `--until` and `--at` take it.

    >>> moment_text(1_700_000_000_000_000)
    '2023-11-14T22:13:20Z'
    """
    return datetime.fromtimestamp(micros // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_filters(texts: list[str]) -> dict[str, str]:
    """The filters of the line by key.

    Raises:
        InputError: a filter is not `key=value`, or its key is unknown or given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or key not in FILTERS or not value:
            raise InputError(f"'{text}' is not a filter: write key=value with one of {', '.join(FILTERS)}")
        if key in found:
            raise InputError(f"the filter '{key}' is given twice")
        found[key] = value
    return found
