"""`omnigraph schema show|plan|apply|unlock`: the accepted schema, what another one would change, and accepting it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import typer

from omnigraph.cli.inputs import read_text
from omnigraph.cli.options import Actor, Address, Json, Message, Quiet, Schema, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.schema_steps import describe_rows, describe_step
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError

Yes = Annotated[bool, typer.Option("--yes", help="Drop what holds data; earlier commits keep it.")]
DataLoss = Annotated[bool, typer.Option("--allow-data-loss", help="Drops remove the data of earlier commits as well.")]


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Read, plan and change the schema.", no_args_is_help=False)
    group.command("show")(show_schema)
    group.command("get", hidden=True)(show_schema)
    group.command("plan")(plan_schema)
    group.command("apply")(apply_schema)
    group.command("unlock")(unlock_schema)
    application.add_typer(group, name="schema")


@addressed
def show_schema(
    address: Address,
    uri: Uri = None,
    form: Annotated[
        Literal["text", "svg"], typer.Option("--format", help="The schema as it was written, or as a diagram.")
    ] = "text",
    as_json: Json = False,
) -> None:
    """Print the accepted schema as it was written, or as a diagram."""
    if form == "svg" and as_json:
        raise InputError("--format and --json are mutually exclusive: pass one of them")
    session = Session("schema show", address, uri=uri)
    with session.open(read_only=True) as graph:
        source = graph.schema.to_svg() if form == "svg" else graph.schema.source
    if as_json:
        typer.echo(to_json({"schema_source": source}))
    else:
        typer.echo(source, nl=not source.endswith("\n"))


@addressed
def plan_schema(
    address: Address,
    schema: Schema,
    uri: Uri = None,
    allow_data_loss: DataLoss = False,
    as_json: Json = False,
) -> None:
    """Show what accepting another schema would change; nothing is written."""
    text = read_text(schema, what="schema")
    session = Session("schema plan", address, uri=uri)
    with session.open(read_only=True) as graph:
        plan = graph.schema.plan(text, allow_data_loss=allow_data_loss).to_json()
    if as_json:
        typer.echo(to_json({"uri": session.uri, **plan}))
        return
    typer.echo(f"schema plan for {session.uri}")
    typer.echo(f"supported: {'yes' if plan['supported'] else 'no'}")
    if plan["other_branches"]:
        typer.echo(f"cannot be applied while there are other branches: {', '.join(plan['other_branches'])}")
    write_lines(_step_lines(plan["steps"]))


@addressed
def apply_schema(
    address: Address,
    schema: Schema,
    uri: Uri = None,
    allow_data_loss: DataLoss = False,
    yes: Yes = False,
    actor: Actor = None,
    message: Message = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Accept another schema as one commit, or refuse it and change nothing."""
    text = read_text(schema, what="schema")
    session = Session("schema apply", address, uri=uri)
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        author = session.actor(actor)
        confirmed = yes or (not allow_data_loss and not as_json and _confirm_drops(graph, text))
        applied = graph.schema.apply(
            text, allow_data_loss=allow_data_loss, confirm_drops=confirmed, actor=author, message=message
        )
        body = applied.to_json()
    if as_json:
        typer.echo(to_json({"uri": session.uri, **body}))
        return
    typer.echo(f"schema apply for {session.uri}")
    write_lines(_step_lines(body["steps"]))
    typer.echo(f"applied: {'yes' if body['applied'] else 'no'}")
    typer.echo(f"manifest_version: {body['manifest_version']}")


@addressed
def unlock_schema(
    address: Address,
    uri: Uri = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Really remove the lock.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove the lock of a schema change on another machine that will not come back."""
    session = Session("schema unlock", address, uri=uri, capability="direct")
    if not confirm:
        raise InputError("a schema change may still be running where the lock was taken: pass --confirm to remove it")
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        unlocked = graph.schema.unlock()
    if as_json:
        typer.echo(to_json({"uri": session.uri, "unlocked": unlocked}))
    else:
        typer.echo("the schema lock is removed" if unlocked else "there is no schema lock")


def _confirm_drops(graph: Any, text: str) -> bool:
    """Ask whoever sits at the terminal whether what holds data may be dropped; False where nobody can be asked."""
    if not sys.stdin.isatty():
        return False
    steps = graph.schema.plan(text).to_json()["steps"]
    drops = [step for step in steps if step["kind"] in ("drop_type", "drop_property") and step.get("rows")]
    if not drops:
        return False
    for step in drops:
        typer.echo(f"- {describe_step(step)}", err=True)
    answer = typer.prompt("Drop this data? Earlier commits keep it. Type 'yes' to continue", default="", err=True)
    return str(answer).strip().lower() in ("yes", "y")


def _step_lines(steps: Sequence[dict[str, Any]]) -> Iterator[str]:
    for step in steps:
        yield f"- {describe_step(step)}"
        yield from (f"    {line}" for line in describe_rows(step))
    if not steps:
        yield "no schema changes"
