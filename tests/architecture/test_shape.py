"""Files stay small, named after one idea, and say what it is."""

import ast

from tests.architecture.modules import Module, modules

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
HIDES_A_NOUN = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base"}
LEFT_FOR_LATER = ("TO" + "DO", "FIX" + "ME", "X" + "XX")


def lines_of(module: Module) -> list[str]:
    return module.path.read_text(encoding="utf-8").splitlines()


def long_functions(module: Module) -> dict[str, int]:
    """The functions that do not fit on a screen, and how many lines they have."""
    return {
        f"{module.name}.{node.name}": node.end_lineno - node.lineno + 1
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    }


def test_a_module_opens_with_its_idea() -> None:
    assert [module.name for module in modules() if not ast.get_docstring(module.tree)] == []


def test_a_module_can_be_read_in_one_sitting() -> None:
    assert [module.name for module in modules() if len(lines_of(module)) > MODULE_LINES_MAX] == []


def test_a_module_is_named_after_what_it_holds() -> None:
    assert [module.name for module in modules() if module.path.stem in HIDES_A_NOUN] == []


def test_a_function_fits_on_a_screen() -> None:
    assert {name: lines for module in modules() for name, lines in long_functions(module).items()} == {}


def test_nothing_is_left_for_later() -> None:
    assert [m.name for m in modules() if any(mark in line for line in lines_of(m) for mark in LEFT_FOR_LATER)] == []


def test_no_exception_is_caught_without_being_named() -> None:
    bare = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert bare == []


def test_there_are_modules_to_look_at() -> None:
    assert len(modules()) > 300
