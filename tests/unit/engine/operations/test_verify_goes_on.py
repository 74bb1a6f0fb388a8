"""`verify` tells everything that is wrong at once, and damaged version files raise nothing but errors of ours."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.operations import verify as verifying
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import stage_overwrite
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.translate import translated
from omnigraph.errors import GraphError, StorageError
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import CommitId, TableKey, new_ulid, now_micros

SCHEMA = """
node Person { name: String @key }
node Picture { name: String @key  photo: Blob? }
node Visit { at: DateTime  place: String  @key(at, place) }
node Note { text: String }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = create(tmp_path / "graph", SCHEMA)
    people = [{"type": "Person", "data": {"name": f"p{number}"}} for number in range(5)]
    visits = [{"type": "Visit", "data": {"at": f"2024-01-0{day}T10:30:00Z", "place": "x"}} for day in range(1, 4)]
    graph.load([*people, *visits, {"type": "Note", "data": {"text": "t"}}])
    graph.load([{"type": "Picture", "data": {"name": "p", "photo": "base64:aGVsbG8="}}])
    graph.load([{"edge": "Knows", "from": "p0", "to": "p1"}])
    return graph


def _rewrite(graph: Graph, key: str, column: str, values: list[str]) -> None:
    """Publish rows that no writer would have accepted, as a disk that returns other bytes does."""
    context = graph.context
    entry = context.manifest.snapshot().entry(TableKey(key))
    base = context.store.open(entry.path)
    rows = base.scan()
    where = rows.schema.get_field_index(column)
    rows = rows.set_column(where, rows.schema.field(column), pa.array(values, rows.schema.field(column).type))
    head = context.store.commit(base, stage_overwrite(base, rows), {})
    change = UpdateTable(TableKey(key), head.version, None, rows.num_rows)
    context.manifest.publish("main", [change], lineage=Lineage(CommitId(new_ulid()), None, now_micros()))


def _codes(graph: Graph) -> dict[str, set[str]]:
    report = connect(graph.uri, read_only=True).maintenance.verify()
    found: dict[str, set[str]] = {}
    for problem in report.problems:
        found.setdefault(problem.code, set()).add(problem.subject)
    return found


def test_a_graph_with_blobs_and_keys_of_every_kind_is_clean(graph: Graph) -> None:
    assert connect(graph.uri, read_only=True).maintenance.verify().problems == []


def test_every_table_is_read_once(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[str] = Counter()

    def counting(way: Callable[..., Any]) -> Callable[..., Any]:
        def run(handle: TableHandle, *given: Any, **options: Any) -> Any:
            read[handle.path] += 1
            return way(handle, *given, **options)

        return run

    for name in ("scan", "scan_batches"):
        monkeypatch.setattr(TableHandle, name, counting(getattr(TableHandle, name)))
    assert connect(graph.uri, read_only=True).maintenance.verify().problems == []
    tables = [layout.table_path(key) for key in graph.context.catalog.tables]
    assert {path: read[path] for path in tables} == dict.fromkeys(tables, 1)


@pytest.mark.parametrize("unreadable", ["scan_batches", "dst"])
def test_what_cannot_be_read_of_a_table_hides_nothing_else_that_is_wrong_with_it(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    graph.load([{"edge": "Knows", "from": "p1", "to": "p2"}])
    _rewrite(graph, "edge:Knows", "id", ["same", "same"])
    _rewrite(graph, "edge:Knows", "dst", ["nobody", "p2"])
    scan, path = TableHandle.scan, layout.table_path("edge:Knows")

    def broken(way: Callable[..., Any]) -> Callable[..., Any]:
        def run(handle: TableHandle, *given: Any, **options: Any) -> Any:
            if handle.path == path and (way is not scan or (unreadable == "dst" and "dst" in given[0])):
                raise StorageError("a page of it is damaged")
            return way(handle, *given, **options)

        return run

    for name in ("scan", "scan_batches"):
        monkeypatch.setattr(TableHandle, name, broken(getattr(TableHandle, name)))
    subject = {"main/edge:Knows"}
    ends = {"dangling-edge": subject} if unreadable == "scan_batches" else {}
    assert _codes(graph) == {"rows": subject, "duplicate-id": subject, **ends}


def test_a_byte_that_changed_in_a_key_is_found_by_the_id(graph: Graph) -> None:
    _rewrite(graph, "node:Person", "name", ["p0", "q1", "p2", "p3", "p4"])
    _rewrite(graph, "node:Visit", "place", ["x", "y", "x"])
    assert _codes(graph) == {"key": {"main/node:Person", "main/node:Visit"}}


def test_everything_that_is_wrong_is_reported_in_one_walk(graph: Graph) -> None:
    root = Path(graph.uri)
    graph.branches.create("side")
    graph.load([{"type": "Note", "data": {"text": "u"}}], branch="side")
    for file in (root / layout.table_path("node:Note") / "data").iterdir():
        file.write_bytes(b"no Lance file")
    _rewrite(graph, "node:Person", "name", ["p0", "q1", "p2", "p3", "p4"])
    (root / layout.RECOVERY_DIR).mkdir(exist_ok=True)
    (root / layout.RECOVERY_DIR / "branch-x.lock").write_bytes(b"\xff\x00")
    (root / layout.RECOVERY_DIR / f"{new_ulid()}.json").write_text("{")
    (root / layout.RECOVERY_DIR / "01X.claim-000001").write_text("[]")
    (root / layout.SCHEMA_LOCK).write_text("{}")
    (root / layout.WRITERS_DIR).mkdir(exist_ok=True)
    (root / layout.WRITERS_DIR / "x.json").write_text("nobody")
    (root / layout.SCHEMA_HISTORY).mkdir(exist_ok=True)
    (root / layout.SCHEMA_HISTORY / "abc.pg").write_text("node Other { k: String @key }")
    (root / layout.GRAPH_COMMITS / "_versions" / "latest_version_hint.json").unlink(missing_ok=True)
    found = _codes(graph)
    assert {"main/node:Note", "side/node:Note"} <= found["rows"]
    assert "main/node:Person" in found["key"]
    assert {
        f"{layout.RECOVERY_DIR}/branch-x.lock",
        f"{layout.RECOVERY_DIR}/01X.claim-000001",
        layout.SCHEMA_LOCK,
    } <= found["lock"]
    assert found["writer"] >= {f"{layout.WRITERS_DIR}/x.json"}
    assert f"{layout.SCHEMA_HISTORY}/abc.pg" in found["schema-file"]
    assert len(found["intent"]) == 1


def test_a_damaged_version_file_raises_an_error_of_ours(graph: Graph, tmp_path: Path) -> None:
    source = Path(graph.uri) / layout.table_path("node:Person")
    refused = 0
    for seed in range(150):
        rng = random.Random(seed)
        root = tmp_path / f"copy{seed}"
        shutil.copytree(source, root / "table")
        newest = min((root / "table" / "_versions").glob("*.manifest"))
        content = bytearray(newest.read_bytes())
        if seed % 3:
            for _ in range(1 + seed % 4):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        else:
            content = content[: rng.randrange(len(content))]
        newest.write_bytes(bytes(content))
        try:
            handle = TableStore(str(root)).open("table")
            handle.scan()
            handle.indexes()
        except GraphError:
            refused += 1
        shutil.rmtree(root)
    assert refused > 50


def test_an_interrupt_passes_where_foreign_errors_are_translated() -> None:
    with pytest.raises(KeyboardInterrupt), translated("waiting"):
        raise KeyboardInterrupt
    with pytest.raises(SystemExit), translated("waiting"):
        raise SystemExit(3)


@pytest.mark.parametrize("deleted", [False, True])
def test_what_is_cleaned_up_or_deleted_while_it_is_looked_at_is_no_problem(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    graph.branches.create("b")
    graph.mutate('query q() { insert Note { text: "b" } }', branch="b")
    check_heads = verifying._check_heads

    def before_it_goes(context: Any, snapshot: Any, report: Any) -> None:
        check_heads(context, snapshot, report)
        other = connect(graph.uri)
        if deleted and snapshot.branch == "b":
            other.branches.delete("b")
        if not deleted and snapshot.branch == "main" and "b" in graph.branches.list():
            other.branches.delete("b")
            other.load([{"type": "Note", "data": {"text": "newer"}}], mode="overwrite")
            other.maintenance.cleanup(keep=1)

    monkeypatch.setattr(verifying, "_check_heads", before_it_goes)
    report = graph.maintenance.verify()
    assert (report.problems, report.branches) == ([], 1)
