"""What a process keeps for a graph is bounded however long it writes, and goes when the graph is closed."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
from tests.amounts import always_first

import omnigraph
from omnigraph.engine.storage.cache import GENERATIONS, SHARED, ByteCache, column_key
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.written import WRITTEN
from omnigraph.errors import GraphNotFoundError

SCHEMA = "node Person { name: String @key\n age: I32? }\nedge Knows: Person -> Person { since: I32? }"
WRITE = """query add($n: String, $a: I32) {
    insert Person { name: $n, age: $a }
    insert Knows { from: $n, to: "p0", since: $a }
}"""
ASK = "query ask($n: String) { match { $p: Person { name: $n } $p knows $f } return { $f.name } }"

GROWTH_MB = 56
"""How much a process may grow over its next thousands of commits: what Lance keeps by itself until its bound is met."""
ENTRIES_MAX, ENTRY_BYTES_MAX, FILES_MAX = 800, 4 << 20, 160
"""What is kept for two tables at any time, whatever the number of commits: they have some fifty data files."""

_LONG_RUN = f"""
import gc, json, sys
import omnigraph
from omnigraph.engine.storage.cache import SHARED
from omnigraph.engine.storage.written import WRITTEN
SCHEMA, WRITE, ASK = {SCHEMA!r}, {WRITE!r}, {ASK!r}

def megabytes():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

graph = omnigraph.create(sys.argv[1], SCHEMA)
graph.mutate('query q() {{ insert Person {{ name: "p0" }} }}')
seen = {{}}
first, last = int(sys.argv[2]), int(sys.argv[3])
for number in range(1, last + 1):
    graph.mutate(WRITE, {{"n": f"p{{number}}", "a": number}})
    if number % 10 == 0:
        assert graph.query(ASK, {{"n": f"p{{number}}"}}).to_pylist() == [{{"f.name": "p0"}}]
    if number in (first, last):
        use = SHARED.use()
        seen[number] = [megabytes(), use.entries, use.bytes, *WRITTEN.use()]
graph.close()
del graph
seen["closed"] = [megabytes()]
print(json.dumps(seen))
"""


@pytest.fixture(autouse=True)
def _nothing_open() -> None:
    """Other tests of the process may have left graphs open, which is their right."""
    SHARED.clear()
    WRITTEN.clear()


def _people(root: Path, count: int = 3) -> omnigraph.Graph:
    graph = omnigraph.create(str(root), SCHEMA)
    graph.mutate('query q() { insert Person { name: "p0" } }')
    for number in range(count):
        graph.mutate(WRITE, {"n": f"p{number + 1}", "a": number})
    return graph


@pytest.mark.long
@pytest.mark.parametrize(("first", "last"), always_first(1, [(300, 1_300), (500, 2_500)]))
def test_thousands_of_commits_more_take_no_more_memory(tmp_path: Path, first: int, last: int) -> None:
    program = [sys.executable, "-c", _LONG_RUN, str(tmp_path / "g"), str(first), str(last)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    early, (late, entries, held, files, _) = seen[str(first)][0], seen[str(last)]
    assert entries <= ENTRIES_MAX, seen
    assert held <= ENTRY_BYTES_MAX, seen
    assert files <= FILES_MAX, seen
    assert late - early <= GROWTH_MB, seen
    assert seen["closed"][0] <= late - 16, seen


def test_a_closed_graph_is_forgotten_with_its_snapshots_and_handles(tmp_path: Path) -> None:
    graph = _people(tmp_path / "g")
    graph.query(ASK, {"n": "p1"})
    other = omnigraph.connect(str(tmp_path / "g"))
    snapshot = graph.snapshot()
    handle = snapshot.open("node:Person")  # type: ignore[arg-type]
    files = [file for fragment in handle.fragments() for file in fragment.files]
    assert any(SHARED.get(column_key((file,), handle.field_ids["id"])) is not None for file in files)
    held = [weakref.ref(each) for each in (snapshot.state, handle, graph.context.store)]
    del snapshot, handle
    graph.close()
    graph.close()
    assert len(other.query(ASK, {"n": "p1"})) == 1
    assert TableStore.at(str(tmp_path / "g")) is other.context.store
    other.close()
    del graph, other
    gc.collect()
    assert [each() for each in held] == [None, None, None]
    assert not [key for key in TableStore._shared if key[0] == str(tmp_path / "g")]
    left = [key for key in SHARED._entries if any(file in repr(key) for file in files)]
    assert not left
    assert not any(file in WRITTEN._files for file in files)


@pytest.mark.long
def test_closing_leaves_no_thread_and_no_note(tmp_path: Path) -> None:
    _people(tmp_path / "first").close()
    before, system_before = _our_threads(), len(os.listdir("/proc/self/task"))
    for number in range(50):
        graph = omnigraph.create(str(tmp_path / f"g{number}"), SCHEMA)
        graph.mutate('query q() { insert Person { name: "p0" } }')
        graph.query("query q() { match { $p: Person } return { count($p) as n } }")
        graph.close()
        assert not list((tmp_path / f"g{number}" / "__writers").iterdir())
    assert _our_threads() == before
    # Lance's own threads come and go, a handful of them for all graphs.
    assert len(os.listdir("/proc/self/task")) <= system_before + 12
    # A graph that is opened again writes as before, under a note again.
    graph = omnigraph.connect(str(tmp_path / "g0"))
    graph.mutate('query q() { insert Person { name: "p1" } }')
    assert len(list((tmp_path / "g0" / "__writers").iterdir())) == 1
    assert "omnigraph-leases" in _our_threads()
    graph.close()
    assert _our_threads() == before


def _our_threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("omnigraph"))


def test_a_graph_that_cannot_be_opened_leaves_nothing(tmp_path: Path) -> None:
    for number in range(5):
        with pytest.raises(GraphNotFoundError):
            omnigraph.connect(str(tmp_path / f"none{number}"))
    assert not [key for key in TableStore._shared if key[0].startswith(str(tmp_path))]


def test_what_is_kept_of_deleted_rows_does_not_grow_with_the_deletions(tmp_path: Path) -> None:
    count = GENERATIONS + 3
    graph = omnigraph.create(str(tmp_path / "g"), SCHEMA)
    inserts = " ".join(f'insert Person {{ name: "p{number}" }}' for number in range(count + 1))
    graph.mutate(f"query all() {{ {inserts} }}")
    for number in range(count):
        graph.mutate("query gone($n: String) { delete Person where name = $n }", {"n": f"p{number}"})
    kept = [key for key in SHARED._entries if isinstance(key, tuple) and "deleted" in str(key[0])]
    assert len(kept) <= GENERATIONS
    assert graph.query("query q() { match { $p: Person } return { $p.name } }").to_pylist() == [{"p.name": f"p{count}"}]


def test_only_the_latest_generations_of_a_growing_group_are_kept() -> None:
    cache = ByteCache()
    files: tuple[str, ...] = ()
    for number in range(3 * GENERATIONS):
        files = (*files, f"file-{number}")
        cache.put(column_key(files, 0), number, 10)
        cache.put(("codes", "lineage", files, "id"), number, 10)
        cache.put(("deleted", ("file-0",), f"deletion-{number}"), number, 10)
        cache.put(("overlay", "segment", "uri", tuple((file,) for file in files)), number, 10)
    assert cache.use().entries == 4 * GENERATIONS
    assert cache.get(column_key(files, 0)) == 3 * GENERATIONS - 1
    cache.put(column_key(("file-1",), 0), "another", 10)
    cache.put(("asked", "uri", 3), 1, 64)
    cache.forget(["file-0", "unknown"])
    assert cache.use().entries == 2
    cache.forget(["file-1"])
    assert cache.get(("asked", "uri", 3)) == 1
    cache.clear()
    assert cache.use().bytes == 0
