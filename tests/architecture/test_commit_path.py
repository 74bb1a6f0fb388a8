"""A write becomes visible in one place: who arms, commits tables, confirms, publishes and disarms is pinned here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.architecture.modules import Module, modules

from omnigraph.engine.commit.kinds import KINDS
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.recovery.classify import MODES

PATH = "engine.commit.path"
CALLERS = {
    "arm": {PATH},
    "disarm": {PATH},
    "confirm": {PATH},
    # Recovery finishes or undoes what a crash cut short; nobody else shows anything.
    "publish": {PATH, "engine.recovery.resolve"},
}
COMMITTERS = {PATH, "engine.recovery.resolve", "engine.recovery.audit"}
"""Who commits to tables; the manifest's own tables are committed to by its own layer."""
OWN_HOMES = ("engine.storage", "engine.manifest")
STORES_OF_INTENTS = "engine.coordination.intents"


def _calls(module: Module, name: str) -> list[int]:
    return [
        node.lineno
        for node in module.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
    ]


def _callers(name: str, *, apart_from: tuple[str, ...] = ()) -> set[str]:
    return {module.name for module in modules() if not module.name.startswith(apart_from) and _calls(module, name)}


@pytest.mark.parametrize("name", CALLERS)
def test_a_step_of_the_write_path_is_taken_in_one_place(name: str) -> None:
    assert _callers(name, apart_from=(STORES_OF_INTENTS, "testing")) == CALLERS[name]


def test_tables_are_committed_to_in_one_place() -> None:
    assert _callers("commit", apart_from=(*OWN_HOMES, "testing")) == COMMITTERS


def test_every_writer_that_an_intent_can_name_has_a_row() -> None:
    assert set(KINDS) == set(WriterKind) == set(MODES)
    assert {kind.writer for kind in KINDS.values()} == set(WriterKind)


def test_the_guard_sees_what_it_forbids(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text("context.intents.arm(intent)\n\ngraph.manifest.publish('main', [])\n")
    assert [_calls(Module(source), name) for name in ("arm", "publish", "disarm")] == [[1], [3], []]
