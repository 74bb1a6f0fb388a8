"""A store that lets two create one object is refused before anything is written there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.forgetful_proxy import Forgetful, forgetful_proxy
from tests.contract.s3_server import BUCKET, storage_options

from omnigraph.engine.operations.create import create_graph
from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.open import open_graph
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import GraphNotFoundError, StorageError
from omnigraph.ids import new_ulid

SCHEMA = "node Person { name: String @key }"


@pytest.fixture
def root() -> str:
    return f"s3://{BUCKET}/{new_ulid()}"


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[Forgetful]:
    with forgetful_proxy(s3_endpoint, "_versions") as proxy:
        yield proxy


def _store(root: str, endpoint: str, **more: str) -> TableStore:
    """A store as a process of its own has it: nothing is shared."""
    return TableStore(root, storage_options={**storage_options(endpoint), "client_max_retries": "1", **more})


def _objects(root: str, endpoint: str) -> list[str]:
    return sorted(ObjectStore(root, options=storage_options(endpoint)).list_dir("__probe"))


@pytest.mark.long
@pytest.mark.parametrize("conditions", ["ignored", "refused"])
def test_a_store_without_conditional_puts_is_refused_in_one_sentence(
    root: str, s3_endpoint: str, proxy: Forgetful, conditions: str
) -> None:
    proxy.conditions = conditions
    with pytest.raises(StorageError, match="does not support conditional puts") as refused:
        create_graph(_store(root, proxy.endpoint), SCHEMA)
    assert refused.value.kind == "configuration"
    assert root in str(refused.value)
    create_graph(_store(root, s3_endpoint), SCHEMA)
    with pytest.raises(StorageError, match="does not support conditional puts"):
        open_graph(_store(root, proxy.endpoint))
    assert _objects(root, s3_endpoint) == []


@pytest.mark.parametrize("conditions", ["ignored", "refused"])
def test_two_writers_at_a_barrier_lose_nothing_they_were_told_is_there(
    root: str, s3_endpoint: str, proxy: Forgetful, conditions: str
) -> None:
    create_graph(_store(root, s3_endpoint), SCHEMA)
    proxy.conditions = conditions
    barrier = threading.Barrier(2)
    acknowledged: list[str] = []
    refused: list[StorageError] = []

    def write(name: str) -> None:
        barrier.wait()
        try:
            context = open_graph(_store(root, proxy.endpoint))
            load(context, [{"type": "Person", "data": {"name": name}}], mode="append")
            acknowledged.append(name)
        except StorageError as exc:
            refused.append(exc)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    plain = open_graph(_store(root, s3_endpoint), read_only=True)
    there = plain.manifest.snapshot().open("node:Person").scan(["id"])["id"].to_pylist()
    assert sorted(there) == sorted(acknowledged)
    assert len(refused) == 2
    assert all(exc.kind == "configuration" for exc in refused)


def test_a_read_only_open_writes_nothing_and_works_without_conditional_puts(
    root: str, s3_endpoint: str, proxy: Forgetful
) -> None:
    create_graph(_store(root, s3_endpoint), SCHEMA)
    proxy.conditions = "refused"
    context = open_graph(_store(root, proxy.endpoint), read_only=True)
    assert context.manifest.snapshot().open("node:Person").count_rows() == 0
    assert proxy.written == []


@pytest.mark.long
def test_a_store_is_asked_once_by_a_process_and_nothing_is_left_of_it(
    root: str, s3_endpoint: str, proxy: Forgetful
) -> None:
    store = _store(root, proxy.endpoint)
    create_graph(store, SCHEMA)
    asked = [path for path in proxy.written if "__probe" in path]
    assert len(asked) == 2
    open_graph(store)
    open_graph(store)
    assert [path for path in proxy.written if "__probe" in path] == asked
    open_graph(_store(root, proxy.endpoint))
    assert len([path for path in proxy.written if "__probe" in path]) == 4
    assert _objects(root, s3_endpoint) == []


@pytest.mark.long
def test_a_lost_answer_to_the_question_is_no_refusal(root: str, s3_endpoint: str) -> None:
    with forgetful_proxy(s3_endpoint, "__probe") as proxy:
        proxy.losses = 1
        create_graph(_store(root, proxy.endpoint, client_max_retries="3"), SCHEMA)
        assert proxy.lost
    assert _objects(root, s3_endpoint) == []


def test_where_there_is_no_graph_nothing_is_written_to_find_out(root: str, proxy: Forgetful) -> None:
    with pytest.raises(GraphNotFoundError):
        open_graph(_store(root, proxy.endpoint))
    assert proxy.written == []


def test_a_local_folder_is_not_asked(tmp_path: Path) -> None:
    ObjectStore(str(tmp_path)).require_conditional_puts()
    assert list(tmp_path.iterdir()) == []
