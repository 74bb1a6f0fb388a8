"""Decides whether a text fits an ordered-choice grammar, straight from the grammar's own text.

Slow and simple on purpose: it shares nothing with the parsers it is held against.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

Matcher = Callable[["_Run", int], int | None]
_TOKEN = re.compile(r'\s*(?:\(\*[\s\S]*?\*\)\s*)*("[^"]*"|/(?:[^/\\]|\\.)+/|[A-Za-z_][A-Za-z0-9_]*|[=;|{}\[\]()!])')
_SKIP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*[\s\S]*?\*/)*")


class OrderedChoice:
    """A grammar read from a file; its first rule is where matching starts."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8").rstrip()
        self._tokens: list[str] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            assert match is not None, f"{path.name}: {text[position : position + 40]!r}"
            self._tokens.append(match[1])
            position = match.end()
        self.rules: dict[str, Matcher] = {}
        while self._tokens:
            name = self._tokens.pop(0)
            self._expect("=")
            self.rules[name] = self._choice()
            self._expect(";")
        self.first = next(iter(self.rules))

    def accepts(self, text: str) -> bool:
        """True when the whole text is one program."""
        run = _Run(self, text)
        end = run.rule(self.first, 0)
        return end is not None and _SKIP.match(text, end).end() == len(text)  # type: ignore[union-attr]

    def _expect(self, token: str) -> None:
        found = self._tokens.pop(0)
        assert found == token, f"{token!r} expected, not {found!r}"

    def _choice(self) -> Matcher:
        options = [self._sequence()]
        while self._tokens[0] == "|":
            self._tokens.pop(0)
            options.append(self._sequence())

        def choose(run: _Run, position: int) -> int | None:
            return next((end for option in options if (end := option(run, position)) is not None), None)

        return options[0] if len(options) == 1 else choose

    def _sequence(self) -> Matcher:
        parts = []
        while self._tokens[0] not in "|;)}]":
            parts.append(self._part())

        def follow(run: _Run, position: int) -> int | None:
            end: int | None = position
            for part in parts:
                end = part(run, end)  # type: ignore[arg-type]
                if end is None:
                    return None
            return end

        return follow

    def _part(self) -> Matcher:
        token = self._tokens.pop(0)
        if token == "!":
            refused = self._part()
            return lambda run, position: position if refused(run, position) is None else None
        if token in "([{":
            inner = self._choice()
            self._expect({"(": ")", "[": "]", "{": "}"}[token])
            return {"(": inner, "[": _optional(inner), "{": _repeated(inner)}[token]
        if token == "EOF":
            return lambda run, position: position if run.skip(position) == len(run.text) else None
        if token[0] in '"/':
            return _terminal(token)
        return lambda run, position: run.rule(token, position)


class _Run:
    """One text being matched; what a rule does at a place is remembered."""

    def __init__(self, grammar: OrderedChoice, text: str) -> None:
        self.grammar, self.text = grammar, text
        self._known: dict[tuple[str, int], int | None] = {}

    def rule(self, name: str, position: int) -> int | None:
        key = name, position
        if key not in self._known:
            self._known[key] = self.grammar.rules[name](self, position)
        return self._known[key]

    def skip(self, position: int) -> int:
        return _SKIP.match(self.text, position).end()  # type: ignore[union-attr]


def _terminal(token: str) -> Matcher:
    body = token[1:-1]
    pattern = body if token[0] == "/" else re.escape(body) + (r"\b" if body[-1].isalnum() else "")
    expression = re.compile(pattern, re.DOTALL)

    def match(run: _Run, position: int) -> int | None:
        found = expression.match(run.text, run.skip(position))
        return found.end() if found else None

    return match


def _optional(inner: Matcher) -> Matcher:
    def match(run: _Run, position: int) -> int | None:
        end = inner(run, position)
        return position if end is None else end

    return match


def _repeated(inner: Matcher) -> Matcher:
    def match(run: _Run, position: int) -> int | None:
        while (end := inner(run, position)) is not None:
            position = end
        return position

    return match
