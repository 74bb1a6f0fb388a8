"""Files stay small, named after one idea, and say what it is."""

import ast

import pytest
from tests.architecture.modules import Module, modules

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
HIDES_A_NOUN = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base"}


@pytest.fixture(params=modules(), ids=lambda module: module.name or "omnigraph", scope="module")
def module(request: pytest.FixtureRequest) -> Module:
    chosen: Module = request.param
    return chosen


def test_a_module_opens_with_its_idea(module: Module) -> None:
    assert ast.get_docstring(module.tree), f"{module.name} has no docstring"


def test_a_module_can_be_read_in_one_sitting(module: Module) -> None:
    assert len(module.path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES_MAX


def test_a_module_is_named_after_what_it_holds(module: Module) -> None:
    assert module.path.stem not in HIDES_A_NOUN


def test_a_function_fits_on_a_screen(module: Module) -> None:
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_nothing_is_swallowed_or_left_for_later(module: Module) -> None:
    text = module.path.read_text(encoding="utf-8")
    assert not any(mark in text for mark in ("TO" + "DO", "FIX" + "ME", "X" + "XX"))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            pytest.fail(f"bare except at line {node.lineno}")
