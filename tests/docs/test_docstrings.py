"""The examples in docstrings do what they say."""

import doctest
from importlib import import_module

import pytest
from tests.architecture.modules import Module, modules

WITH_EXAMPLES = [module for module in modules() if ">>> " in module.path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("module", WITH_EXAMPLES, ids=lambda module: module.name)
def test_the_examples_of_a_module_hold(module: Module) -> None:
    found = doctest.testmod(import_module(f"omnigraph.{module.name}"))
    assert found.attempted
    assert found.failed == 0


def test_there_are_examples() -> None:
    assert len(WITH_EXAMPLES) > 30
