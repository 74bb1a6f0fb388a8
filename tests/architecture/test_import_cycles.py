"""No module needs itself: imports form no cycle, also not through those inside functions or for type checkers only.

The layer contract of `pyproject.toml` orders packages; this looks at modules, inside each package as well. A cycle that
only runs when a function is called is one all the same: neither module can be understood, moved or tested alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.architecture.modules import SOURCE, Module, modules

ROOT = SOURCE.name


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = [ROOT, *module.name.split(".")] if module.name else [ROOT]
    if module.path.name != "__init__.py":
        parts = parts[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _inner(target: str) -> str:
    return target.removeprefix(ROOT).removeprefix(".")


def _named_by(module: Module, known: Mapping[str, Module]) -> Iterable[str]:
    """The modules that the imports of a module mean, wherever they stand; a name counts as the module that has it."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (_inner(alias.name) for alias in node.names if alias.name.partition(".")[0] == ROOT)
        elif isinstance(node, ast.ImportFrom):
            home = _absolute(module, node)
            if home.partition(".")[0] == ROOT:
                for alias in node.names:
                    below = _inner(f"{home}.{alias.name}")
                    yield below if below in known else _inner(home)


def import_graph(found: Iterable[Module]) -> dict[str, set[str]]:
    """Which module names which."""
    known = {module.name: module for module in found}
    return {
        name: {other for other in _named_by(module, known) if other in known and other != name}
        for name, module in known.items()
    }


def cycles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Every set of modules of which each needs every other, in one pass over the graph."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        open_.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in open_:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            group = frozenset(open_[open_.index(name) :])
            del open_[open_.index(name) :]
            if len(group) > 1:
                found.add(group)

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return found


def test_imports_form_no_cycle() -> None:
    assert cycles(import_graph(modules())) == set()


def test_a_cycle_through_a_function_or_a_type_checker_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert cycles(graph) == {frozenset("abc")}
    assert cycles({"a": {"b"}, "b": set()}) == set()
    whole = import_graph(modules())
    assert "engine.storage.tables" in whole["engine.manifest.publish"]
    assert len(whole) > 200


def test_imports_inside_functions_count(tmp_path: Path) -> None:
    source = tmp_path / "late.py"
    source.write_text("def f():\n    from omnigraph.engine import commit\n    import omnigraph.ids\n")
    known = {module.name: module for module in modules()}
    assert set(_named_by(Module(source), known)) == {"engine.commit", "ids"}
