"""Tables, publishes and whole graphs on an S3 server, with its conditional puts and without trust in its answers."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.contract.forgetful_proxy import forgetful_proxy
from tests.contract.s3_server import BUCKET, storage_options
from tests.unit.engine.manifest.publishers import PERSON, SCHEMA, advance, assert_linear, commit_table_ids, lineage
from tests.unit.engine.storage.people import (
    PEOPLE,
    ages,
    delete,
    find,
    identities,
    insert,
    people,
    staged_insert,
    update,
)
from tests.unit.engine.storage.people import SCHEMA as PEOPLE_SCHEMA

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.manifest.delta import UpdateTable
from omnigraph.engine.manifest.publish import COMMIT_WINDOW, Manifest
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.create import create_graph
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpectedVersionMismatchError,
    GraphNotFoundError,
    StorageError,
)
from omnigraph.ids import new_ulid


@pytest.fixture
def root() -> str:
    return f"s3://{BUCKET}/{new_ulid()}"


@pytest.fixture
def store(root: str, s3_endpoint: str) -> TableStore:
    return TableStore(root, storage_options=storage_options(s3_endpoint))


def test_a_table_lives_on_s3_as_on_disk(store: TableStore) -> None:
    table = store.create(PEOPLE, PEOPLE_SCHEMA, people(["a", "b", "x"]))
    assert store.exists(PEOPLE)
    table = insert(store, table, "c")
    before = identities(table)
    table = delete(store, update(store, table, "a", age=7), "b")
    assert ages(table) == {"a": 7, "c": 1, "x": 1}
    assert identities(table)["a"][:2] == before["a"][:2]
    assert table.deleted_offsets(table.fragments()[0]).tolist() == [0, 1]
    addresses, _ = find(table, "c", "a")
    assert table.take_addresses(addresses, ["id"])["id"].to_pylist() == ["c", "a"]
    assert ages(store.open(PEOPLE, version=2)) == {"a": 1, "b": 1, "c": 1, "x": 1}


def test_the_head_is_probed_on_s3(store: TableStore) -> None:
    table = store.create(PEOPLE, PEOPLE_SCHEMA)
    for name in "abc":
        table = insert(store, table, name)
    for known in (None, 1, 3, 4):
        assert store.head_version(PEOPLE, known=known) == 4


def test_strictness_holds_on_s3(store: TableStore) -> None:
    store.create(PEOPLE, PEOPLE_SCHEMA, people(["a"]))
    with pytest.raises(StorageError) as caught:
        store.create(PEOPLE, PEOPLE_SCHEMA)
    assert caught.value.kind == "precondition"
    start = threading.Barrier(5)

    def attempt(number: int) -> bool:
        base = store.open(PEOPLE, version=1)
        staged = staged_insert(base, "same", age=number)
        start.wait(30)
        try:
            store.commit(base, staged, {})
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(5) as pool:
        won = list(pool.map(attempt, range(5)))
    assert won.count(True) == 1
    assert ages(store.open(PEOPLE)) == {"a": 1, "same": won.index(True)}


def test_a_commit_whose_answer_was_lost_is_not_taken_for_a_conflict(root: str, s3_endpoint: str) -> None:
    with forgetful_proxy(s3_endpoint, "_versions/") as proxy:
        store = TableStore(root, storage_options=storage_options(proxy.endpoint))
        table = store.create(PEOPLE, PEOPLE_SCHEMA, people(["a"]))
        rival = store.open(PEOPLE)
        proxy.losses = 1
        table = insert(store, table, "b")
        assert proxy.lost, "the answer must really have been lost"
        assert (table.version, ages(table)) == (2, {"a": 1, "b": 1})
        with pytest.raises(ConflictError):
            insert(store, rival, "c")


def test_a_publish_whose_answer_was_lost_lands_once(root: str, s3_endpoint: str) -> None:
    create_graph(TableStore(root, storage_options=storage_options(s3_endpoint)), SCHEMA)
    with forgetful_proxy(s3_endpoint, f"{layout.MANIFEST}/_versions/") as proxy:
        manifest = Manifest(TableStore(root, storage_options=storage_options(proxy.endpoint)))
        manifest.snapshot()
        proxy.losses = 1
        published = advance(manifest)
        assert proxy.lost
        assert published.entry(PERSON).version == 2
    direct = Manifest(TableStore(root, storage_options=storage_options(s3_endpoint)))
    assert direct.snapshot().state == published.state
    assert_linear(direct.history, 2)


def test_publishers_on_s3_exclude_each_other(root: str, store: TableStore, s3_endpoint: str) -> None:
    create_graph(store, SCHEMA)
    arrived = threading.Barrier(3)
    once = threading.local()

    def plan(name: str) -> None:
        if name == failpoints.PUBLISH_AFTER_PRECHECK and not getattr(once, "passed", False):
            once.passed = True
            arrived.wait(30)

    def attempt(number: int) -> Snapshot | None:
        manifest = Manifest(TableStore(root, storage_options=storage_options(s3_endpoint)))
        change = UpdateTable(PERSON, 2, None, number)
        try:
            return manifest.publish("main", [change], lineage=lineage(), expected={PERSON: 1})
        except ExpectedVersionMismatchError:
            return None

    previous = failpoints.install(plan)
    try:
        with ThreadPoolExecutor(3) as pool:
            results = list(pool.map(attempt, range(3)))
    finally:
        failpoints.install(previous)
    assert len([result for result in results if result is not None]) == 1
    assert_linear(Manifest(store).history, 2)


def test_the_commit_window_moves_on_s3(store: TableStore) -> None:
    create_graph(store, SCHEMA)
    manifest = Manifest(store)
    for _ in range(COMMIT_WINDOW + 4):
        manifest.publish("main", [], lineage=lineage())
    assert len(manifest.snapshot().state.commits) <= COMMIT_WINDOW
    assert_linear(manifest.history, COMMIT_WINDOW + 5)
    archived = commit_table_ids(manifest)
    assert len(archived) == len(set(archived))


def test_a_graph_is_created_found_and_refused_on_s3(
    root: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in storage_options(s3_endpoint).items():
        monkeypatch.setenv(name.upper() if name.startswith("aws_") else f"AWS_{name.upper()}", value)
    with pytest.raises(GraphNotFoundError):
        omnigraph.connect(root)
    omnigraph.create(root, schema=SCHEMA).close()
    with pytest.raises(AlreadyExistsError):
        omnigraph.create(root, schema=SCHEMA)
    with omnigraph.connect(root) as graph:
        snapshot = graph.snapshot()
        assert sorted(snapshot.entries) == ["edge:Knows", "node:Company", "node:Person"]
    with omnigraph.connect(root, read_only=True) as graph:
        assert len(graph.history.list()) == 1
