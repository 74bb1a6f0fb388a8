"""The server that forks processes has everything a writer needs, and nothing of storage runs in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.graph import connect, create
from omnigraph.testing.children import run_child

THREADS = Path("/proc/self/task")
# Numerical libraries start threads of their own as soon as they are imported.
ALONE = """
import os, numpy, pandas, pyarrow
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
import omnigraph.testing.crash, omnigraph.testing.warm
assert "lance" in __import__("sys").modules
assert threads() == before, (before, threads())
"""


@pytest.mark.long
@pytest.mark.skipif(not THREADS.exists(), reason="threads are counted where the system lists them")
def test_nothing_of_storage_runs_in_the_server() -> None:
    subprocess.run([sys.executable, "-c", ALONE], check=True, timeout=60)


def write_without_importing(root: str) -> None:
    graph = connect(root)
    loaded = set(sys.modules)
    graph.mutate('query q() { insert Thing { name: "a" } }')
    graph.mutate('query q() { delete Thing where name = "a" }')
    graph.load(b'{"type": "Thing", "data": {"name": "b"}}', mode="append")
    graph.maintenance.optimize()
    late = {name for name in set(sys.modules) - loaded if name.startswith(("omnigraph.engine.", "lance", "pyarrow"))}
    sys.exit(f"imported late: {sorted(late)}" if late else 0)


def test_a_writer_in_a_child_imports_nothing_more(tmp_path: Path) -> None:
    create(tmp_path / "graph", "node Thing { name: String @key }")
    assert run_child(write_without_importing, str(tmp_path / "graph")) == 0
