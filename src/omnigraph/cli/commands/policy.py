"""`omnigraph policy validate|test|explain`: who may do what, checked before anything is served with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.exits import FAILURE
from omnigraph.cli.inputs import read_text
from omnigraph.cli.options import Json
from omnigraph.cli.output import to_json
from omnigraph.cli.session import write_lines

if TYPE_CHECKING:
    from omnigraph.policy import Policy

File = Annotated[str, typer.Option("--file", metavar="FILE", help="A policy file; - reads standard input.")]


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Check policies.", no_args_is_help=False)
    group.command("validate")(validate_policy)
    group.command("test")(run_tests)
    group.command("explain")(explain_decision)
    application.add_typer(group, name="policy")


def validate_policy(file: File, as_json: Json = False) -> None:
    """Check a policy file; the first thing wrong with it is named with its place."""
    policy = _compiled(file)
    name, actors = _name(file), len(policy.rules.actors)
    if as_json:
        rules = [rule.id for rule in policy.rules.rules]
        typer.echo(to_json({"ok": True, "bundle": name, "kind": policy.rules.kind, "actors": actors, "rules": rules}))
    else:
        typer.echo(f"policy valid: bundle '{name}' [{actors} {'actor' if actors == 1 else 'actors'}]")


def run_tests(
    file: File,
    tests: Annotated[str, typer.Option("--tests", metavar="FILE", help="The cases; - reads standard input.")],
    as_json: Json = False,
) -> None:
    """Ask a policy every case of a tests file; a wrong answer makes the command fail."""
    policy = _compiled(file)
    from omnigraph.policy.cases import failures, parse_cases

    cases = parse_cases(read_text(tests, what="policy tests"), origin=f"the policy tests '{tests}'")
    failed = failures(policy, cases)
    if as_json:
        typer.echo(to_json({"ok": not failed, "cases": len(cases), "failures": failed}))
    elif failed:
        write_lines([*failed, f"policy tests failed: {len(failed)} of {len(cases)} cases"])
    else:
        typer.echo(f"policy tests passed: {len(cases)} {'case' if len(cases) == 1 else 'cases'}")
    if failed:
        raise typer.Exit(FAILURE)


def explain_decision(
    file: File,
    actor: Annotated[str, typer.Option("--actor", metavar="ACTOR", help="Who asks.")],
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="What for, e.g. change.")],
    branch: Annotated[str | None, typer.Option("--branch", metavar="NAME", help="On which branch.")] = None,
    target_branch: Annotated[
        str | None, typer.Option("--target-branch", metavar="NAME", help="To which branch: of a merge, a creation.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", metavar="NAME", help="Which stored query.")] = None,
    as_json: Json = False,
) -> None:
    """Tell what a policy says to one request, and which rule says it."""
    decision = _compiled(file).check(actor, action, branch, target_branch, query)
    asked = {"actor": actor, "action": action, "branch": branch, "target_branch": target_branch, "query": query}
    told = {
        "decision": "allow" if decision.allowed else "deny",
        **{name: value for name, value in asked.items() if value is not None},
        **({"matched_rule_id": decision.matched_rule_id} if decision.matched_rule_id is not None else {}),
        "message": decision.message,
    }
    if as_json:
        typer.echo(to_json(told))
    else:
        write_lines(f"{name}: {value}" for name, value in told.items())


def _compiled(file: str) -> Policy:
    from omnigraph.boundary import extras
    from omnigraph.policy import Policy

    with extras():
        return Policy.parse(read_text(file, what="policy"), origin=f"the policy '{file}'")


def _name(file: str) -> str:
    name = os.path.basename(file)
    return "standard input" if file == "-" else name.removesuffix(".yaml").removesuffix(".yml")
