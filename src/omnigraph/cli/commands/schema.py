"""`omnigraph schema show|plan|apply|unlock`: the accepted schema, what another one would change, and accepting it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from omnigraph.cli.inputs import read_text
from omnigraph.cli.options import Actor, Json, Profile, Quiet, Schema, Store, Uri
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError

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


def show_schema(uri: Uri = None, as_json: Json = False, store: Store = None, profile: Profile = None) -> None:
    """Print the accepted schema as it was written."""
    session = Session("schema show", uri=uri, store=store, profile=profile)
    with session.open(read_only=True) as graph:
        source = graph.schema.source
    if as_json:
        from omnigraph.cli.output import to_json

        typer.echo(to_json({"schema_source": source}))
    else:
        typer.echo(source, nl=not source.endswith("\n"))


def plan_schema(
    schema: Schema,
    uri: Uri = None,
    allow_data_loss: DataLoss = False,
    as_json: Json = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Show what accepting another schema would change; nothing is written."""
    from omnigraph.cli.output import to_json

    text = read_text(schema, what="schema")
    session = Session("schema plan", uri=uri, store=store, profile=profile)
    with session.open(read_only=True) as graph:
        plan = graph.schema.plan(text, allow_data_loss=allow_data_loss).to_json()
    if as_json:
        typer.echo(to_json({"uri": session.target.uri, **plan}))
        return
    typer.echo(f"schema plan for {session.target.uri}")
    typer.echo(f"supported: {'yes' if plan['supported'] else 'no'}")
    write_lines(_step_lines(plan["steps"]))


def apply_schema(
    schema: Schema,
    uri: Uri = None,
    allow_data_loss: DataLoss = False,
    actor: Actor = None,
    as_json: Json = False,
    quiet: Quiet = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Accept another schema as one commit, or refuse it and change nothing."""
    from omnigraph.cli.output import to_json

    text = read_text(schema, what="schema")
    session = Session("schema apply", uri=uri, store=store, profile=profile)
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        body = graph.schema.apply(text, allow_data_loss=allow_data_loss, actor=session.actor(actor)).to_json()
    if as_json:
        typer.echo(to_json({"uri": session.target.uri, **body}))
        return
    typer.echo(f"schema apply for {session.target.uri}")
    write_lines(_step_lines(body["steps"]))
    typer.echo(f"applied: {'yes' if body['applied'] else 'no'}")
    typer.echo(f"manifest_version: {body['manifest_version']}")


def unlock_schema(
    uri: Uri = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Really remove the lock.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Remove the lock of a schema change on another machine that will not come back."""
    session = Session("schema unlock", uri=uri, store=store, profile=profile)
    if not confirm:
        raise InputError("a schema change may still be running where the lock was taken: pass --confirm to remove it")
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        unlocked = graph.schema.unlock()
    if as_json:
        from omnigraph.cli.output import to_json

        typer.echo(to_json({"uri": session.target.uri, "unlocked": unlocked}))
    else:
        typer.echo("the schema lock is removed" if unlocked else "there is no schema lock")


def _step_lines(steps: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from (f"- {describe_step(step)}" for step in steps)
    if not steps:
        yield "no schema changes"


def describe_step(step: dict[str, Any]) -> str:
    """One step of a plan in words."""
    kind, where = step["kind"], f"{step.get('type_kind')} '{step.get('type_name')}'"
    name = f"'{step.get('type_name')}.{step.get('property_name')}'"
    match kind:
        case "add_type":
            return f"add {step['type_kind']} '{step['name']}'"
        case "rename_type":
            return f"rename {step['type_kind']} '{step['from']}' to '{step['to']}'"
        case "add_property":
            return f"add property {name} ({_type_text(step['property_type'])}) on {where}"
        case "rename_property":
            return f"rename property '{step['type_name']}.{step['from']}' to '{step['to']}' on {where}"
        case "add_constraint":
            ((constraint, columns),) = step["constraint"].items()
            return f"add @{constraint.lower()}({', '.join(columns)}) on {where}"
        case "update_type_metadata":
            return f"update the annotations of {step['type_kind']} '{step['name']}'"
        case "update_property_metadata":
            return f"update the annotations of property {name} on {where}"
        case "drop_type":
            return f"drop {step['type_kind']} '{step['name']}' ({step['mode']} mode)"
        case "drop_property":
            return f"drop property {name} of {where} ({step['mode']} mode)"
        case "extend_enum":
            return f"add {', '.join(step['added_values'])} to the enum of {name} on {where}"
        case _:
            code = f"[{step['code']}] " if step.get("code") else ""
            return f"unsupported: {code}{step.get('entity')}: {step.get('reason')}"


def _type_text(described: dict[str, Any]) -> str:
    scalar = described["scalar"]
    text = f"Vector({scalar['Vector']})" if isinstance(scalar, dict) else str(scalar)
    if described.get("enum_values"):
        text = f"enum({', '.join(described['enum_values'])})"
    if described.get("list"):
        text = f"[{text}]"
    return f"{text}?" if described.get("nullable") else text
