"""A shell on one graph: what was typed is run, and what comes of it is printed.

The graph may be embedded or behind a server; both have the same verbs. Errors end a statement, not the shell, unless
the lines come from a file: then the first error ends the script.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer
from msgspec import Struct

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.cli.output import Layout, render
from omnigraph.cli.session import changed_lines, read_view, write_lines
from omnigraph.cli.shell.statements import PLAIN_WORDS, is_whole, read_statement
from omnigraph.errors import GraphError, InputError

FORMATS = ("table", "kv", "csv", "json", "jsonl")


class Leave(Exception):
    """Somebody wants to leave the shell."""


class Shell(Struct):
    """What the shell remembers between statements."""

    graph: Any
    layout: Layout
    branch: str = "main"
    form: str = "table"
    actor: str | None = None
    timing: bool = False
    explains: bool = False

    def catalog(self) -> Catalog:
        """The schema, for completion."""
        return compile_schema(self.graph.schema.source, stored=True)

    def run(self, text: str) -> None:
        """Run one whole statement or command; nothing at all is fine.

        Raises:
            GraphError: it is wrong, or failed.
            Leave: it asks for the end.
        """
        stripped = PLAIN_WORDS.get(text.strip(), text.strip())
        if stripped.startswith("."):
            self._command(stripped.removesuffix(";"))
        elif stripped not in ("", ";"):
            started = time.perf_counter()
            self._statement(text)
            if self.timing:
                typer.echo(f"{(time.perf_counter() - started) * 1_000:.1f} ms", err=True)

    def _statement(self, text: str) -> None:
        statement = read_statement(text)
        if self.explains:
            typer.echo(self.graph.explain(statement.text, branch=self.branch).to_text())
        elif statement.writes:
            done = self.graph.mutate(statement.text, branch=self.branch, actor=self.actor)
            write_lines(changed_lines(done, as_json=self.form in ("json", "jsonl")))
        else:
            result = self.graph.query(statement.text, branch=self.branch)
            write_lines(render(read_view(result, branch=self.branch, snapshot=None), self.form, self.layout))

    def _command(self, line: str) -> None:
        name, *words = line.split()
        command = COMMANDS.get(name)
        if command is None:
            raise InputError(f"there is no command '{name}': .help lists them")
        write_lines(command.run(self, words))


class Command(Struct, frozen=True):
    """One dot command."""

    usage: str
    summary: str
    run: Callable[[Shell, list[str]], Iterable[str]]


def _show_help(shell: Shell, words: list[str]) -> Iterator[str]:
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        yield f"{command.usage:<{width}}  {command.summary}"
    yield "A statement ends with ';' or an empty line; 'query … { … }' ends with its last brace."


def _show_schema(shell: Shell, words: list[str]) -> Iterator[str]:
    yield str(shell.graph.schema.source).rstrip("\n")


def _list_branches(shell: Shell, words: list[str]) -> Iterator[str]:
    for name in shell.graph.branches.list():
        yield f"{'*' if name == shell.branch else ' '} {name}"


def _choose_branch(shell: Shell, words: list[str]) -> Iterator[str]:
    if len(words) != 1:
        raise InputError(f"the branch is {shell.branch}; .branch NAME chooses another")
    if words[0] not in shell.graph.branches.list():
        raise InputError(f"there is no branch '{words[0]}': .branches lists them")
    shell.branch = words[0]
    yield f"branch {shell.branch}"


def _choose_format(shell: Shell, words: list[str]) -> Iterator[str]:
    if len(words) != 1 or words[0] not in FORMATS:
        raise InputError(f"the format is {shell.form}; .format takes one of {', '.join(FORMATS)}")
    shell.form = words[0]
    yield f"format {shell.form}"


def _switch(now: bool, words: list[str], name: str) -> bool:
    if words not in ([], ["on"], ["off"]):
        raise InputError(f"{name} takes on, off or nothing")
    return not now if not words else words == ["on"]


def _switch_timing(shell: Shell, words: list[str]) -> Iterator[str]:
    shell.timing = _switch(shell.timing, words, ".timing")
    yield f"timing {'on' if shell.timing else 'off'}"


def _switch_explain(shell: Shell, words: list[str]) -> Iterator[str]:
    shell.explains = _switch(shell.explains, words, ".explain")
    yield f"explain {'on' if shell.explains else 'off'}"


def _leave(shell: Shell, words: list[str]) -> Iterator[str]:
    raise Leave
    yield ""  # a generator like the others


COMMANDS = {
    ".help": Command(".help", "this list", _show_help),
    ".schema": Command(".schema", "the accepted schema", _show_schema),
    ".branches": Command(".branches", "the branches; a star marks the one in use", _list_branches),
    ".branch": Command(".branch NAME", "read and write another branch", _choose_branch),
    ".format": Command(".format NAME", f"how rows are printed: {', '.join(FORMATS)}", _choose_format),
    ".timing": Command(".timing [on|off]", "how long each statement takes", _switch_timing),
    ".explain": Command(".explain [on|off]", "show plans instead of running statements", _switch_explain),
    ".quit": Command(".quit", "leave, as the end of the input does", _leave),
}
"""The dot commands, in the order of help."""


def run_script(shell: Shell, lines: Iterable[str]) -> None:
    """Run lines of a file or pipe; the first error ends it.

    Raises:
        GraphError: a statement is wrong, or failed; those before it have been run.
    """
    waiting = ""
    try:
        for line in lines:
            waiting += line.rstrip("\n")
            if is_whole(waiting) or not line.strip():
                text, waiting = waiting, ""
                shell.run(text)
            else:
                waiting += "\n"
        shell.run(waiting)
    except Leave:
        return


def run_interactively(shell: Shell, ask: Callable[[str], str]) -> None:
    """Run what is typed until the end of the input; `ask` shows a prompt and gives a line."""
    waiting = ""
    typer.echo("a statement ends with ';' or an empty line; .help lists the commands", err=True)
    while True:
        try:
            line = ask(f"{shell.branch}> " if not waiting else "   ...> ")
        except KeyboardInterrupt:
            waiting = ""
            continue
        except EOFError:
            return
        waiting += line
        if not (is_whole(waiting) or not line.strip()):
            waiting += "\n"
            continue
        text, waiting = waiting, ""
        try:
            shell.run(text)
        except Leave:
            return
        except GraphError as error:
            typer.echo(f"error: {error}", err=True)
        except KeyboardInterrupt:
            typer.echo("error: interrupted", err=True)
