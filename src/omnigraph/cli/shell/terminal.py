"""The prompt at a terminal: history, completion and editing, by prompt_toolkit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from omnigraph.cli.shell.completion import candidates
from omnigraph.cli.shell.run import COMMANDS, Shell
from omnigraph.cli.shell.statements import is_whole


class _Names(Completer):
    """Completes from the schema as it was when the shell began."""

    def __init__(self, shell: Shell) -> None:
        self._catalog = shell.catalog()
        self.before = ""
        """The lines of the statement above the one that is edited."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """What may follow the text before the cursor."""
        text = self.before + document.text_before_cursor
        for name, typed in candidates(text, self._catalog, tuple(COMMANDS)):
            yield Completion(name, start_position=-typed)


def terminal_prompt(shell: Shell, history: Path) -> Callable[[str], str]:
    """A function that asks for a line, and remembers it for the next shell."""
    history.parent.mkdir(parents=True, exist_ok=True)
    names = _Names(shell)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)), completer=names, complete_while_typing=False
    )

    def ask(prompt: str) -> str:
        line: str = session.prompt(prompt)
        names.before = "" if is_whole(names.before + line) or not line.strip() else f"{names.before}{line}\n"
        return line

    return ask
