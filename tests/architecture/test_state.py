"""State is typed and owned: no bag of anything on another layer's object, nothing kept under the id of an object."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.modules import Module, modules

ENGINE = [module for module in modules() if module.within("engine")]


def bags(module: Module) -> Iterator[tuple[str, int]]:
    """Attributes and fields that hold anything under any key."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "memo":
            yield "memo", node.lineno
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith(("dict[Any", "dict[object")):
            yield ast.unparse(node.target), node.lineno


def identities(module: Module) -> Iterator[tuple[str, int]]:
    """Calls of `id`, whose answer is another object's as soon as the first one is gone."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id":
            yield "id", node.lineno


def threads(module: Module) -> Iterator[tuple[str, int]]:
    for node in module.nodes:
        if isinstance(node, ast.Attribute | ast.Name | ast.alias):
            name = (
                node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else node.name
            )
            if name in {"Thread", "ThreadPoolExecutor"}:
                yield name, node.lineno


def test_no_state_is_an_untyped_bag() -> None:
    assert {module.name: list(bags(module)) for module in modules() if list(bags(module))} == {}


def test_nothing_is_kept_under_the_id_of_an_object() -> None:
    assert {module.name: list(identities(module)) for module in modules() if list(identities(module))} == {}


LOW_LAYERS = ("storage", "values", "manifest", "schema", "coordination", "recovery", "commit", "rules")
STARTS_THREADS = {
    "engine.storage.adopting": "copies the files it was told to copy, and waits for them",
    "engine.commit.ahead": "does what its caller gives it, and the caller waits for it",
    "engine.coordination.lease": "renews the leases that this process holds",
}


def test_a_layer_below_starts_no_thread_for_what_it_does_not_know() -> None:
    below = [module for module in ENGINE if any(module.within(f"engine.{layer}") for layer in LOW_LAYERS)]
    assert {module.name for module in below if list(threads(module))} == set(STARTS_THREADS)


def test_the_guards_see_what_they_forbid(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text(
        "from threading import Thread\nh.memo['x'] = 1\nkept: dict[Any, int] = {}\nkept[id(plan)] = 2\nThread()\n"
    )
    bad = Module(source)
    assert set(bags(bad)) == {("kept", 3), ("memo", 2)}
    assert list(identities(bad)) == [("id", 4)]
    assert set(threads(bad)) == {("Thread", 1), ("Thread", 5)}
