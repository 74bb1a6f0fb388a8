"""The entry point of the `omnigraph` program.

`main` loads only the verb that was asked for, runs it, and turns whatever went wrong into one sentence and an exit
code. A verb is listed once, in `VERBS`.
"""

from __future__ import annotations

import errno
import functools
import gc
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main

from omnigraph.cli.arguments import settle, wants_json, wants_lines
from omnigraph.cli.exits import FAILURE, INTERRUPTED, SUCCESS, USAGE, exit_code
from omnigraph.errors import GraphError, InputError, InternalError
from omnigraph.interrupts import interrupt_behind

TRACEBACK = "OMNIGRAPH_TRACEBACK"
"""The variable that makes errors appear with the place they come from, for whoever works on the code."""
FAILPOINTS = "OMNIGRAPH_FAILPOINTS"
"""The variable that makes a process fail or die at named places, for tests of crashes."""

_OUTPUT_ENDED = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
"""What writing to standard output can meet: a full disk, a used-up quota, a terminal that is gone."""

VERBS: dict[str, str] = {
    "version": "version",
    "init": "init",
    "load": "load",
    "query": "query",
    "mutate": "mutate",
    "explain": "explain",
    "draw": "draw",
    "shell": "shell",
    "lint": "lint",
    "export": "export",
    "snapshot": "snapshot",
    "branch": "branch",
    "commit": "commit",
    "tag": "tag",
    "changes": "changes",
    "blob": "blob",
    "schema": "schema",
    "serve": "serve",
    "verify": "verify",
    "optimize": "optimize",
    "cleanup": "cleanup",
    "repair": "repair",
    "recovery": "recovery",
    "policy": "policy",
    "login": "login",
    "logout": "login",
    "profile": "profile",
    "graphs": "graphs",
    "alias": "alias",
}
"""Each verb and the module of `omnigraph.cli.commands` that registers it, in the order help lists them."""


def main(words: Sequence[str] | None = None) -> None:
    """Run one command line and leave the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Data is UTF-8 whatever the locale says, so that a result never depends on the machine it was asked from.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    # A command loads much that stays, and ends soon: looking for garbage as often as a server does would only delay it.
    gc.set_threshold(50_000, 20, 100)
    _install_failpoints()
    sys.exit(run(sys.argv[1:] if words is None else words))


def _install_failpoints() -> None:
    """Let a crash test say where this process is to fail or die; without the variable nothing is even imported."""
    plan = os.environ.get(FAILPOINTS)
    if plan:
        from omnigraph import failpoints
        from omnigraph.testing.failpoints import FailpointPlan

        failpoints.install(FailpointPlan(plan))


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit code; every failure ends as a sentence on standard error."""
    if any(not _is_text(word) for word in words):
        report(InputError("the command line is not text in UTF-8"), words)
        return USAGE
    line = settle(words)
    for warning in line.warnings:
        typer.echo(warning, err=True)
    try:
        command = parser_of(line.verb if line.verb in VERBS else None)
        outcome = command(list(line.words) or ["--help"], prog_name="omnigraph", standalone_mode=False)
        if outcome == INTERRUPTED:
            # The parser takes an interrupt for an exit without a word.
            raise KeyboardInterrupt
        return outcome if isinstance(outcome, int) else SUCCESS
    except typer.TyperException as refusal:
        # The parser tells of a wrong choice in the words of the exception behind it.
        report(InputError(refusal.format_message().replace("Value error, ", "")), line.words)
        typer.echo("Run the command with --help to see how it is used.", err=True)
        return refusal.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted()
    except GraphError as error:
        if os.environ.get(TRACEBACK):
            raise
        return report(error, line.words)
    except BrokenPipeError:
        _let_go_of_output()
        return FAILURE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OUTPUT_ENDED and error.filename is None:
            # Storage translates what it meets, and names the file; this is what we print ourselves.
            _let_go_of_output()
            typer.echo(f"error: the output cannot be written: {(error.strerror or 'it failed').lower()}", err=True)
            return FAILURE
        if isinstance(interrupt_behind(error), KeyboardInterrupt):
            return _interrupted()
        # The last door: a bug of ours is a sentence too, and never a traceback.
        if os.environ.get(TRACEBACK):
            raise
        cause = InternalError(
            f"unexpected {type(error).__name__}: {error} (set {TRACEBACK}=1 to see where it happened)"
        )
        return report(cause, line.words)


def _interrupted() -> int:
    typer.echo("error: interrupted", err=True)
    return INTERRUPTED


def _is_text(word: str) -> bool:
    try:
        return "\0" not in word and bool(word.isascii() or word.encode())
    except UnicodeEncodeError:
        return False


def _let_go_of_output() -> None:
    """Send the rest of our output nowhere: nobody can take it, and a second message about that at exit is noise."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: GraphError, words: Sequence[str]) -> int:
    """Print an error for the caller, the way the surface it asked for has it, and return the exit code."""
    typer.echo(f"error: {error.message}", err=True)
    if wants_json(words):
        from omnigraph.cli.output import to_json
        from omnigraph.wire import error_output

        told = error_output(error)
        try:
            typer.echo(json.dumps(told, ensure_ascii=False) if wants_lines(words) else to_json(told))
        except OSError:
            # The sentence is on standard error already.
            _let_go_of_output()
    return exit_code(error)


@functools.cache
def parser_of(verb: str | None) -> Callable[..., Any]:
    """The parser of one verb, or of all; made once, because making it takes longer than most commands take to run."""
    return typer.main.get_command(build_application(VERBS if verb is None else [verb]))


def build_application(verbs: Iterable[str]) -> typer.Typer:
    """The application with these verbs; a verb that is not named is not even imported."""
    application = typer.Typer(
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    application.callback()(_global_flags)
    for verb in verbs:
        import_module(f"omnigraph.cli.commands.{VERBS[verb]}").register(application)
    return application


def _print_version(asked: bool) -> None:
    if asked:
        from omnigraph.cli.commands.version import version_line

        typer.echo(version_line())
        raise typer.Exit


def _global_flags(
    store: Annotated[str | None, typer.Option("--store", metavar="URI", help="The graph's store.")] = None,
    server: Annotated[str | None, typer.Option("--server", metavar="NAME|URL", help="A server.")] = None,
    graph: Annotated[str | None, typer.Option("--graph", metavar="ID", help="Which graph of a server.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", metavar="NAME", help="A profile of the config.")] = None,
    actor: Annotated[str | None, typer.Option("--as", metavar="ACTOR", help="Who a write is attributed to.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Consent to a destructive write on a remote target.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print the target of a write.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", "-v", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """A lakehouse graph database: typed property graphs with atomic commits and a history to read."""
    # These flags are declared for the help alone: `settle` has moved them behind the verb, and each verb takes those
    # that apply to it.


if __name__ == "__main__":
    main()
