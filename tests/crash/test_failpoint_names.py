"""A failpoint is a constant, has a place in the engine, and has a test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.crash.matrix import ELSEWHERE

from omnigraph import failpoints

ROOT = Path(__file__).parents[2]
CONSTANTS = {name: value for name, value in vars(failpoints).items() if name.isupper() and isinstance(value, str)}


RELAYED = ("path.py", "failpoint")
"""The write path stops where the row of its kind says; the rows of `Stops` count as its call sites."""


def called_with() -> list[tuple[str, ast.expr]]:
    """Every argument of a call of `maybe_fail` in the product, and every stop that a kind of writer names."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and name == "maybe_fail":
                argument = node.args[0]
                branches = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
                found += [(path.name, branch) for branch in branches]
            elif isinstance(node, ast.Call) and name == "Stops":
                found += [(path.name, keyword.value) for keyword in node.keywords]
    assert [(path, ast.unparse(argument)) for path, argument in found].count(RELAYED) == 1
    return [(path, argument) for path, argument in found if (path, ast.unparse(argument)) != RELAYED]


def constant(argument: ast.expr) -> str | None:
    if isinstance(argument, ast.Attribute):
        return argument.attr
    return argument.id if isinstance(argument, ast.Name) else None


def test_no_call_site_spells_a_name_itself() -> None:
    strangers = [
        (path, ast.unparse(argument)) for path, argument in called_with() if constant(argument) not in CONSTANTS
    ]
    assert strangers == []


def test_every_name_has_a_call_site() -> None:
    assert set(CONSTANTS) - {constant(argument) for _, argument in called_with()} == set()


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_every_name_has_a_test(name: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    assert any(f"failpoints.{name}" in text or CONSTANTS[name] in text for text in texts)


def test_no_two_names_mean_one_place() -> None:
    assert len(set(CONSTANTS.values())) == len(CONSTANTS) == len(failpoints.names())


def test_a_window_without_a_name_says_what_stands_for_it() -> None:
    assert not set(ELSEWHERE) & failpoints.names(), "it has a name by now: take it out of the list"
    known = failpoints.names()
    for window, stands in ELSEWHERE.items():
        assert stands in known or stands.startswith(("does not exist", "every storage operation")), window
