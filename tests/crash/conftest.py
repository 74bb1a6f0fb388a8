"""Template graphs that every case copies."""

from __future__ import annotations

import functools
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.writes import LOADS, MUTATIONS, ON_A_BRANCH, SCHEMA, SEED, Load

from omnigraph.engine.recovery import contract
from omnigraph.graph import connect, create
from omnigraph.testing.crash import copy_graph, crash_at_failpoint


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recovery reports what it does as warnings, some thousand times here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """The same few texts are compiled as often as a graph is opened, some ten thousand times here, to the same end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract, "compile_schema", functools.cache(contract.compile_schema))
        yield


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of graphs are copied and removed here."""
    fast = Path("/dev/shm")
    if not os.access(fast, os.W_OK):
        yield tmp_path_factory.mktemp("crash")
        return
    with tempfile.TemporaryDirectory(dir=fast, prefix="omnigraph-crash-") as folder:
        yield Path(folder)


@pytest.fixture
def scratch(memory: Path) -> Iterator[Path]:
    """An empty folder for one test."""
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def seeded(memory: Path) -> Path:
    """A graph with some of everything, written in several commits."""
    root = memory / "seeded"
    create(root, SCHEMA)
    Load(SEED, "append").run(str(root))
    MUTATIONS["insert a keyless node"].run(str(root))
    return root


@pytest.fixture(scope="session")
def branched(seeded: Path, memory: Path) -> Path:
    """The same graph with a branch on which nothing was written yet."""
    root = memory / "branched"
    connect(copy_graph(seeded, root)).branches.create("review")
    return root


@pytest.fixture(scope="session")
def diverged(branched: Path, memory: Path) -> Path:
    """The same graph with tables that the branch has written."""
    root = memory / "diverged"
    copy_graph(branched, root)
    ON_A_BRANCH["first write on a branch"].run(str(root))
    return root


@pytest.fixture(scope="session")
def interrupted(seeded: Path, memory: Path) -> dict[str, Path]:
    """Graphs whose last writer was killed, by the place where that happened."""
    multi = MUTATIONS["insert nodes and an edge"]
    plans = {
        "after some tables": (multi, "mutation.post_table_commit=exit"),
        "after all tables": (multi, "mutation.post_finalize_pre_publisher=exit"),
        "after the publish": (multi, "graph_publish.after_manifest_commit=exit"),
        "after all tables of an overwrite": (LOADS["load overwrite"], "mutation.post_finalize_pre_publisher=exit"),
    }
    roots = {}
    for name, (write, plan) in plans.items():
        root = memory / name.replace(" ", "-")
        copy_graph(seeded, root)
        assert crash_at_failpoint(write, str(root), plan), name
        roots[name] = root
    return roots
