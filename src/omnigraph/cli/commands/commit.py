"""`omnigraph commit list|show`: the history of a graph."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from omnigraph.cli.options import Branch, Json, Profile, Store, Uri, UriOption
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError

FILTERS = ("actor", "branch", "since", "until")
"""What `--filter key=value` understands."""


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Read the history.", no_args_is_help=False)
    group.command("list")(list_commits)
    group.command("show")(show_commit)
    application.add_typer(group, name="commit")


def list_commits(
    uri: Uri = None,
    branch: Branch = "main",
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="At most so many commits.")] = None,
    actor: Annotated[str | None, typer.Option("--actor", metavar="ACTOR", help="Only commits of this actor.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only commits from this time on (ISO 8601, UTC).")
    ] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="KEY=VALUE", help="actor, branch, since or until; may be repeated."),
    ] = None,
    as_json: Json = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """List the commits of a branch, newest first."""
    from omnigraph.cli.output import to_json
    from omnigraph.wire import commit_output

    wanted = parse_filters(filters or [])
    wanted.update({key: value for key, value in (("actor", actor), ("since", since)) if value is not None})
    oldest = _micros(wanted["since"]) if "since" in wanted else None
    newest = _micros(wanted["until"]) if "until" in wanted else None
    session = Session("commit list", uri=uri, store=store, profile=profile)
    with session.open(read_only=True) as graph:
        # A bound on time is applied to what is listed, so only without one does the number bound the listing itself.
        listed = limit if oldest is None and newest is None else None
        commits = graph.history.list(branch=wanted.get("branch", branch), limit=listed, actor=wanted.get("actor"))
    chosen = [
        commit_output(commit)
        for commit in commits
        if (oldest is None or commit.created_at >= oldest) and (newest is None or commit.created_at <= newest)
    ][:limit]
    if as_json:
        typer.echo(to_json({"commits": chosen}))
    else:
        write_lines(commit_line(commit) for commit in chosen)


def show_commit(
    commit_id: Annotated[str, typer.Argument(metavar="ID", help="The commit.")],
    uri: Uri = None,
    uri_option: UriOption = None,
    as_json: Json = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Show one commit."""
    from omnigraph.cli.output import to_json
    from omnigraph.wire import commit_output

    session = Session("commit show", uri=uri, uri_option=uri_option, store=store, profile=profile)
    with session.open(read_only=True) as graph:
        output = commit_output(graph.history.show(commit_id))
    if as_json:
        typer.echo(to_json(output))
    else:
        write_lines(f"{key}: {'null' if value is None else value}" for key, value in output.items())


def commit_line(commit: dict[str, Any]) -> str:
    """One commit in one line."""
    actor = f" actor={commit['actor_id']}" if commit["actor_id"] is not None else ""
    branch = commit["manifest_branch"] or "main"
    return f"{commit['graph_commit_id']} branch={branch} version={commit['manifest_version']}{actor}"


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


def _micros(text: str) -> int:
    """A time as Unix microseconds; a date alone is its midnight, and no offset means UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise InputError(f"'{text}' is not a time: write 2026-02-14 or 2026-02-14T10:00:00Z") from exc
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000)
