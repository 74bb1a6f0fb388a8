"""Template graphs that every case copies."""

from __future__ import annotations

import functools
import logging
import os
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.writes import (
    FILES,
    LOADS,
    MERGES,
    MUTATIONS,
    ON_A_BRANCH,
    REVERTS,
    SCHEMA,
    SEED,
    Load,
    Merge,
    Mutation,
)

from omnigraph.engine.schema import accepted
from omnigraph.failpoints import MERGE_PRE_CONFIRM
from omnigraph.graph import connect, create
from omnigraph.ids import TableKey
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
        patch.setattr(accepted, "compile_schema", functools.cache(accepted.compile_schema))
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
def to_merge(seeded: Path, diverged: Path, memory: Path) -> dict[str, Path]:
    """Graphs whose branch has inserted, updated and deleted, by the merge each is for; main has gone on in some."""
    forward, parted = memory / "forward", memory / "parted"
    Mutation('delete Person where name = "bob"', branch="review").run(copy_graph(diverged, forward))
    Mutation('update Person set { age: 31 } where name = "ann"', branch="review").run(str(forward))
    connect(copy_graph(forward, parted)).branches.create("other")
    Mutation('insert Person { name: "oda" } insert Note { text: "other" }', branch="other").run(str(parted))
    Mutation('update Person set { age: 32 } where name = "ann"').run(str(parted))
    Mutation('insert Note { text: "main" } insert Company { name: "globex" }').run(str(parted))
    level = memory / "level"
    connect(copy_graph(seeded, level)).branches.create("review")
    Mutation('insert Note { text: "x" }', branch="review").run(str(level))
    Mutation('delete Note where text = "x"', branch="review").run(str(level))
    undone, merged = memory / "undone", memory / "merged"
    assert crash_at_failpoint(Merge(strategy="theirs"), copy_graph(parted, undone), f"{MERGE_PRE_CONFIRM}=exit")
    connect(undone).close()
    Merge(strategy="theirs").run(copy_graph(parted, merged))
    named = {
        "fast-forward main to a branch": forward,
        "fast-forward by two commits to a table": diverged,
        "merge a branch that has come back to where it was": level,
        "merge blobs": _with_blobs(memory / "blobs"),
        "merge after a merge that was undone": undone,
        "revert a merge": merged,
    }
    return {name: named.get(name, parted) for name in (*MERGES, *REVERTS)}


def _with_blobs(root: Path) -> Path:
    """A graph of files, small, none and large, which the branch has changed, removed and added to; so has main."""
    graph = create(root, FILES)

    def put(branch: str, **bodies: bytes | None) -> None:
        texts = {name: None if body is None else f"base64:{b64encode(body).decode()}" for name, body in bodies.items()}
        graph.load([{"type": "File", "data": {"name": n, "body": t}} for n, t in texts.items()], "merge", branch=branch)

    large = bytes(100_000)
    put("main", a=b"a", b=large, c=None, d=b"")
    graph.branches.create("review")
    put("review", a=large + b"a", e=large + b"e", f=b"")
    graph.mutate('query q() { delete File where name = "b" }', branch="review")
    put("main", c=b"c")
    return root


@pytest.fixture(scope="session")
def configured(seeded: Path, memory: Path) -> Path:
    """The same graph with tables of which another program wants old versions removed."""
    root = memory / "configured"
    graph = connect(copy_graph(seeded, root))
    store, wanted = graph.context.store, {"lance.auto_cleanup.interval": "1000", "lance.auto_cleanup.older_than": "9d"}
    for key in ("node:Person", "node:Company"):
        store.annotate(graph.snapshot().open(TableKey(key)), config=wanted)
    graph.maintenance.repair(confirm=True, force=True)
    return root


@pytest.fixture(scope="session")
def interrupted(seeded: Path, to_merge: dict[str, Path], memory: Path) -> dict[str, Path]:
    """Graphs whose last writer was killed, by the place where that happened."""
    multi, merge = MUTATIONS["insert nodes and an edge"], MERGES["merge by two commits to a table"]
    plans = {
        "after some tables": (multi, "mutation.post_table_commit=exit"),
        "after all tables": (multi, "mutation.post_finalize_pre_publisher=exit"),
        "after the publish": (multi, "graph_publish.after_manifest_commit=exit"),
        "between the commits of a merge": (merge, "branch_merge.adopt_after_append_pre_upsert=exit"),
        "after the confirmation of a merge": (merge, "mutation.post_finalize_pre_publisher=exit"),
        "after all tables of an overwrite": (LOADS["load overwrite"], "mutation.post_finalize_pre_publisher=exit"),
    }
    roots = {}
    for name, (write, plan) in plans.items():
        root = memory / name.replace(" ", "-")
        copy_graph(to_merge["merge by two commits to a table"] if isinstance(write, Merge) else seeded, root)
        assert crash_at_failpoint(write, str(root), plan), name
        roots[name] = root
    return roots
