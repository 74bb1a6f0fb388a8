"""With full durability all a commit names is on the medium before the commit, and the commit before its answer."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance.blob import blob_array, blob_field
from tests.unit.engine.manifest.publishers import SCHEMA as GRAPH_SCHEMA
from tests.unit.engine.manifest.publishers import advance
from tests.unit.engine.storage.people import PEOPLE, SCHEMA, find, insert, people, staged_delete, staged_insert

import omnigraph
from omnigraph.catalog.indexes import IndexKind, IndexSpec
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.operations.create import create_graph
from omnigraph.engine.storage import layout, steps
from omnigraph.engine.storage.durability import Durability
from omnigraph.engine.storage.lance_internals import files
from omnigraph.engine.storage.maintenance import index_gaps, stage_fence, stage_indexes
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.storage.tables import TableStore

HINTS = ("_transactions", "latest_version_hint.json")
"""What Lance writes and can do without: a version carries its transaction, and the hint is only a hint."""


class Recorder:
    """Every sync and every storage step, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def before(self, name: str, target: str) -> None:
        self.events.append((f"before {name}", target))

    def after(self, name: str, target: str) -> None:
        self.events.append((f"after {name}", target))

    def synced(self) -> set[str]:
        """Every path synced, a file that was written under a temporary name by the name it got."""
        return {path.partition("#")[0] for kind, path in self.events if kind == "sync"}

    def position(self, kind: str, path: str) -> int:
        return self.events.index((kind, path))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Records real syncs by the name of the file behind the descriptor."""
    seen = Recorder()
    sync = os.fsync

    def recording(descriptor: int) -> None:
        sync(descriptor)
        seen.events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", recording)
    previous = steps.observe(seen)
    yield seen
    steps.observe(previous)


@pytest.fixture
def full(tmp_path: Path) -> TableStore:
    return TableStore(str(tmp_path / "graph"), durability=Durability.FULL)


def _files(root: str) -> set[str]:
    return {
        str(path)
        for path in Path(root).rglob("*")
        if path.is_file() and not any(hint in path.parts for hint in HINTS) and path.name not in HINTS
    }


def test_data_and_deletions_are_synced_before_the_commit_and_the_version_after_it(
    full: TableStore, recorder: Recorder
) -> None:
    table = insert(full, full.create(PEOPLE, SCHEMA), "a", "b", "c")
    before = _files(full.root)
    addresses, row_ids = find(table, "b")
    staged = stage_changes(
        table,
        new_rows=people(["d"]),
        updated_rows=people(["b"], 2),
        updated_addresses=addresses,
        updated_row_ids=row_ids,
        deleted_addresses=find(table, "a")[0],
    )
    assert staged is not None
    new = _files(full.root) - before
    assert {Path(path).parent.name for path in new} == {"data", "_deletions"}
    recorder.events.clear()
    table = full.commit(table, staged, {})
    committed = recorder.position("before commit", PEOPLE)
    version = f"{full.root}/{PEOPLE}/{files.version_file(table.version)}"
    for path in new:
        assert recorder.position("sync", path) < recorder.position("sync", str(Path(path).parent)) < committed
    folder = str(Path(version).parent)
    assert committed < recorder.position("sync", version) < recorder.position("sync", folder)
    assert _files(full.root) - before == new | {version}


def test_a_new_folder_is_synced_into_the_folder_above_it(full: TableStore, recorder: Recorder) -> None:
    table = full.create(PEOPLE, SCHEMA, people(["a", "b"]))
    root = Path(full.root)
    above = {str(root.parent), str(root), str(root / "nodes"), str(root / PEOPLE)}
    assert above <= recorder.synced()
    full.commit(table, staged_delete(table, "a"), {})
    made = [event for event in recorder.events if event == ("sync", str(root / PEOPLE))]
    assert len(made) == 3, "once for each of data, _versions and _deletions, whose names it holds"
    recorder.events.clear()
    full.commit(full.open(PEOPLE), staged_insert(full.open(PEOPLE), "c"), {})
    assert ("sync", str(root / PEOPLE)) not in recorder.events


def test_large_values_beside_a_data_file_are_synced_too(full: TableStore, recorder: Recorder) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), blob_field("body")])
    rows = pa.table([pa.array(["a", "b"]), blob_array([b"x" * 200_000, b"y" * 6_000_000])], schema=schema)
    full.create("nodes/blobs", schema, rows)
    values = {path for path in _files(full.root) if path.endswith(".blob")}
    assert values
    assert _files(full.root) <= recorder.synced()


def test_index_files_are_synced_before_the_commit_that_names_them(full: TableStore, recorder: Recorder) -> None:
    table = insert(full, full.create(PEOPLE, SCHEMA), "a", "b")
    table = full.commit(table, stage_fence(table), {})
    staged = stage_indexes(
        table, index_gaps(table, [IndexSpec("id", IndexKind.BTREE), IndexSpec("bio", IndexKind.TEXT)])
    )
    assert staged is not None
    recorder.events.clear()
    full.commit(table, staged, {})
    parts = {path for path in _files(full.root) if "/_indices/" in path}
    committed = recorder.position("before commit", PEOPLE)
    assert parts
    used = {index.uuid for index in full.open(PEOPLE).indexes()}
    for path in parts:
        if Path(path).parent.name in used:
            assert recorder.position("sync", path) < committed


def test_branches_are_synced_where_their_files_are(full: TableStore, recorder: Recorder) -> None:
    table = insert(full, full.create(PEOPLE, SCHEMA), "a", "b")
    before = _files(full.root)
    full.residual.create_branch(PEOPLE, "side", source=None, version=table.version)
    assert len(_files(full.root) - before) == 2, "a branch is a version file and a ref"
    side = full.open(PEOPLE, branch="side")
    full.commit(side, staged_delete(side, "a"), {})
    side = full.open(PEOPLE, branch="side")
    full.commit(side, staged_insert(side, "c"), {})
    assert _files(full.root) - before <= recorder.synced()


def test_a_publish_is_synced_before_it_is_acknowledged(full: TableStore, recorder: Recorder) -> None:
    create_graph(full, GRAPH_SCHEMA)
    assert _files(full.root) <= recorder.synced(), "a created graph is whole on the medium"
    manifest = Manifest(full)
    recorder.events.clear()
    before = _files(full.root)
    snapshot = advance(manifest)
    assert _files(full.root) - before <= recorder.synced()
    version = f"{full.root}/{layout.MANIFEST}/{files.version_file(snapshot.version)}"
    assert recorder.position("before commit", layout.MANIFEST) < recorder.position("sync", version)
    assert recorder.events[-1] == ("sync", str(Path(version).parent))


def test_a_write_to_several_tables_syncs_each_of_its_files_and_folders_once(tmp_path: Path, recorder: Recorder) -> None:
    schema = "node P { k: String @key }\nedge K: P -> P"
    graph = omnigraph.create(str(tmp_path / "g"), schema, durability="full")
    pair = "query pair($k: String) { insert P { k: $k } insert K { from: $k, to: $k } }"
    graph.mutate(pair, {"k": "first"})
    before = _files(graph.uri)
    recorder.events.clear()
    graph.mutate(pair, {"k": "second"})
    synced = [path.partition("#")[0] for kind, path in recorder.events if kind == "sync" and "__writers" not in path]
    assert len(synced) == len(set(synced)) == 14, "data and version of three tables, the intent, and their folders"
    assert _files(graph.uri) - before <= set(synced)


def test_texts_are_synced_before_they_get_their_name_and_their_folder_after(
    full: TableStore, recorder: Recorder
) -> None:
    for write, name in ((full.objects.write_text, "a.json"), (full.objects.write_text_if_absent, "b.json")):
        recorder.events.clear()
        write(f"__recovery/{name}", "x")
        kinds = [kind for kind, path in recorder.events if kind != "sync" or not path.endswith("/graph")]
        assert kinds[:3] == [f"before {write.__name__}", "sync", "sync"]
        [(_, file), (_, folder), *_] = [event for event in recorder.events if event[0] == "sync"]
        assert file.startswith(f"{full.root}/__recovery/{name}#"), "the file is synced under its temporary name"
        assert folder == f"{full.root}/__recovery"
    assert sorted(os.listdir(f"{full.root}/__recovery")) == ["a.json", "b.json"]
    full.objects.rename_text("__recovery/a.json", "__recovery/b.json")
    assert recorder.events[-2] == ("sync", f"{full.root}/__recovery")


def test_fast_syncs_nothing(tmp_path: Path, recorder: Recorder) -> None:
    store = TableStore(str(tmp_path / "graph"))
    create_graph(store, GRAPH_SCHEMA)
    advance(Manifest(store))
    store.objects.write_text("a.json", "x")
    assert recorder.synced() == set()
