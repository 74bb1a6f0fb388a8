"""`omnigraph shell`: a prompt for queries and mutations, or a script on standard input."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from omnigraph.boundary import extras
from omnigraph.cli.config import operator_home
from omnigraph.cli.options import Actor, Address, Branch, Format, Uri, addressed
from omnigraph.cli.session import Session


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("shell")(shell)


@addressed
def shell(
    address: Address,
    uri: Uri = None,
    branch: Branch = "main",
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.TABLE,
    actor: Actor = None,
) -> None:
    """Ask a graph questions and change it, statement by statement; .help lists the commands."""
    from omnigraph.cli.shell.run import Shell, run_interactively, run_script

    session = Session("shell", address, uri=uri)
    with session.open(read_only=False) as graph:
        state = Shell(graph, session.layout, branch, form.value, session.actor(actor))
        if not sys.stdin.isatty():
            run_script(state, sys.stdin)
            return
        with extras():
            from omnigraph.cli.shell.terminal import terminal_prompt
        run_interactively(state, terminal_prompt(state, operator_home(os.environ) / "shell_history"))
