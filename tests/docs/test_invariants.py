"""Every promise of the documentation names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = [
    line
    for line in (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| **I")
]


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.split("**")[1])
def test_a_promise_is_kept_by_tests(promise: str) -> None:
    shown = re.findall(r"`([\w/]+\.py)::(\w+)`", promise)
    assert shown
    for file, name in shown:
        assert name in _functions(ROOT / "tests" / file), f"{file} has no {name}"


def test_no_promise_is_listed_twice() -> None:
    numbers = [promise.split("**")[1] for promise in PROMISES]
    assert numbers == sorted(set(numbers), key=lambda number: int(number[1:]))
