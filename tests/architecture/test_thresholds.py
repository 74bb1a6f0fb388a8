"""Every threshold of derived state is lowered by the one switch, wherever it is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph
from omnigraph.testing.thresholds import EXEMPT, LOWERED, PACKAGES, lowered_thresholds

SOURCE = Path(omnigraph.__file__).parent
NAMES = {f"{module}.{name}" for module, values in LOWERED.items() for name in values}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((SOURCE / package.replace(".", "/")).rglob("*.py")):
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            yield name, ast.parse(path.read_text())


def constants() -> Iterator[str]:
    """Every upper-case name that a module gives a number."""
    for name, tree in modules():
        for statement in tree.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            flat = [e for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
            for target in flat:
                if not isinstance(target, ast.Name) or target.id != target.id.upper():
                    continue
                value: Any = getattr(import_module(f"omnigraph.{name}"), target.id)
                if isinstance(value, int | float | np.number) and not isinstance(value, bool):
                    yield f"{name}.{target.id}"


def test_every_numeric_constant_is_lowered_or_exempt() -> None:
    found = set(constants())
    assert found - NAMES - EXEMPT.keys() == set()
    assert EXEMPT.keys() - found == set()
    assert not EXEMPT.keys() & NAMES


def test_every_threshold_is_lowered_and_set_back() -> None:
    before = {name: _value(name) for name in NAMES}
    with lowered_thresholds():
        same = {name for name in NAMES if _value(name) == before[name]}
    assert {name: _value(name) for name in NAMES} == before
    assert same <= {"engine.storage.columns.INDEX_FROM_SEARCH"}


def _value(name: str) -> float:
    module, _, constant = name.rpartition(".")
    found: float = getattr(import_module(f"omnigraph.{module}"), constant)
    return found


@pytest.mark.parametrize("package", ["engine", "catalog", "plan", "pipeline"])
def test_no_threshold_is_taken_over_before_it_is_lowered(package: str) -> None:
    """Not by an import of the name, nor by a default value: both would keep what it was."""
    kept = []
    for path in sorted((SOURCE / package).rglob("*.py")):
        here = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                kept += [f"{here} imports {a.name}" for a in node.names if f"{node.module}.{a.name}" in _QUALIFIED]
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
                used = {each.id for default in defaults for each in ast.walk(default) if isinstance(each, ast.Name)}
                kept += [f"{here}.{node.name} defaults to {name}" for name in used if f"{here}.{name}" in NAMES]
    assert kept == []


_QUALIFIED = {f"omnigraph.{name}" for name in NAMES}
