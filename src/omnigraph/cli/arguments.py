"""What happens to the command line before it is parsed.

Flags that address a graph may stand before or after the verb, and a few older spellings of verbs still work. Both are
settled here, on plain lists of words, so that each verb declares its flags once and the parser alone decides which of
them it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct, field

GLOBAL_VALUES = ("--store", "--server", "--graph", "--profile", "--as")
"""Global flags that take a value."""

GLOBAL_SWITCHES = ("--yes", "--quiet")
"""Global flags that stand alone."""

DEPRECATED_VERBS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("read",): ("query",),
    ("change",): ("mutate",),
    ("check",): ("lint",),
    ("query", "lint"): ("lint",),
    ("query", "check"): ("lint",),
    ("ingest",): ("load",),
}
"""Older spellings and what they mean today; each costs one warning line."""


class CommandLine(Struct, frozen=True):
    """The words to parse, and the warnings that settling them gave rise to."""

    words: tuple[str, ...]
    warnings: tuple[str, ...] = field(default=())

    @property
    def verb(self) -> str | None:
        """The first word when it is not a flag: what decides which verb is loaded."""
        return self.words[0] if self.words and not self.words[0].startswith("-") else None


def settle(words: Sequence[str]) -> CommandLine:
    """Move leading global flags behind the verb, replace an older spelling by today's, and take `help` for `--help`.

    >>> settle(["--store", "g.omni", "query", "-e", "…"]).words
    ('query', '-e', '…', '--store', 'g.omni')
    >>> settle(["help", "branch", "merge"]).words
    ('branch', 'merge', '--help')
    """
    if words and words[0] == "help":
        return CommandLine((*words[1:], "--help"))
    leading, rest = _split_leading(words)
    if not rest:
        return CommandLine(tuple(words))
    for length in (2, 1):
        old = tuple(rest[:length])
        new = DEPRECATED_VERBS.get(old)
        if new is None:
            continue
        rest = [*new, *rest[length:]]
        if old == ("ingest",) and not _has_option(rest, "--mode"):
            rest += ["--mode", "merge"]
        warning = f"warning: '{' '.join(old)}' is deprecated; use '{' '.join(new)}'"
        return CommandLine(tuple(_insert(rest, leading)), (warning,))
    return CommandLine(tuple(_insert(rest, leading)))


def wants_json(words: Sequence[str]) -> bool:
    """True when the caller asked for JSON, so that a failure is reported in JSON as well."""
    before_literals = list(words[: words.index("--")] if "--" in words else words)
    if "--json" in before_literals or "--format=json" in before_literals:
        return True
    return ("--format", "json") in pairwise(before_literals)


def wants_lines(words: Sequence[str]) -> bool:
    """True for the verb whose JSON is read line by line, so that a failure is one line of it."""
    return tuple(words[:2]) == ("changes", "follow")


def _split_leading(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The global flags in front of the verb, and everything from the verb on."""
    leading: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        if word in GLOBAL_VALUES and position + 1 < len(words):
            leading += [word, words[position + 1]]
            position += 2
        elif word in GLOBAL_SWITCHES or word.startswith(tuple(f"{flag}=" for flag in GLOBAL_VALUES)):
            leading.append(word)
            position += 1
        else:
            break
    return leading, list(words[position:])


def _insert(rest: list[str], leading: list[str]) -> list[str]:
    """The leading flags behind the verb's own words, but before `--`, which ends the flags."""
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *leading, *rest[end:]]


def _has_option(words: Sequence[str], option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in words)
