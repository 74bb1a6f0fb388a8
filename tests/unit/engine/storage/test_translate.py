"""Every foreign failure arrives as one of ours, of the kind that says what to do; shown with real failures."""

import errno
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance.commit import CommitConflictError
from lance.fragment import write_fragments
from tests.unit.engine.storage.hostile import look_without_permission, write_without_room
from tests.unit.engine.storage.people import PEOPLE, SCHEMA, insert, people, staged_insert, update

from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.translate import classify_lance_error, is_missing, translated
from omnigraph.errors import ConflictError, GraphError, InputError, StorageError

SPAWN = multiprocessing.get_context("spawn")
NOWHERE = {
    "aws_endpoint": "http://127.0.0.1:9",
    "aws_access_key_id": "x",
    "aws_secret_access_key": "y",
    "aws_region": "us-east-1",
    "allow_http": "true",
    "client_max_retries": "0",
    "client_retry_timeout": "1",
}


def _kind(exc: BaseException) -> str:
    ours = classify_lance_error(exc, "testing")
    return ours.kind if isinstance(ours, StorageError) else type(ours).__name__


def test_a_missing_table_version_or_branch_is_not_found(store: TableStore, table: TableHandle) -> None:
    for open_it in (
        lambda: store.open("nodes/none"),
        lambda: store.open(PEOPLE, version=99),
        lambda: store.open(PEOPLE, branch="nowhere"),
        lambda: store.open(PEOPLE, branch="nowhere", version=1),
    ):
        with pytest.raises(StorageError) as caught:
            open_it()
        assert caught.value.kind == "not_found"
        assert is_missing(caught.value)


def test_a_table_that_is_there_already_is_a_precondition(store: TableStore, table: TableHandle) -> None:
    with pytest.raises(StorageError) as caught:
        store.create(PEOPLE, SCHEMA)
    assert caught.value.kind == "precondition"
    location = store.location(PEOPLE)
    with pytest.raises(OSError, match="already exists") as foreign:
        lance.write_dataset(people(["a"]), location, mode="create")
    assert _kind(foreign.value) == "precondition"


def test_a_lost_race_for_a_first_version_is_a_precondition(store: TableStore, tmp_path: Path) -> None:
    location = store.location("nodes/raced")
    options = {"mode": "create", "return_transaction": True, "enable_stable_row_ids": True}
    first = write_fragments(people(["a"]), location, **options)
    second = write_fragments(people(["b"]), location, **options)
    LanceDataset.commit(location, first, max_retries=0)
    with pytest.raises(StorageError) as caught, translated("creating"):
        store._commit_creation("nodes/raced", location, second)
    assert caught.value.kind == "precondition"
    assert store.open("nodes/raced").scan(["id"])["id"].to_pylist() == ["a"]


def test_every_form_of_contention_is_a_conflict(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a", "b")
    stale = store.open(PEOPLE)
    staged = staged_insert(stale, "c")
    update(store, table, "a", age=2)
    with pytest.raises(ConflictError) as caught:
        store.commit(stale, staged, {})
    assert isinstance(caught.value.__cause__, CommitConflictError)
    inline = stale.dataset.merge_insert("id").when_matched_update_all().conflict_retries(0)
    with pytest.raises(OSError, match="Too many concurrent writers") as contention:
        inline.execute(people(["a"], 3))
    assert _kind(contention.value) == "ConflictError"
    LanceDataset.commit(
        store.open(PEOPLE).dataset,
        write_fragments(people(["z"]), store.open(PEOPLE).dataset, mode="overwrite", return_transaction=True),
        max_retries=0,
    )
    with pytest.raises(OSError, match=r"Incompatible transaction|Commit conflict") as incompatible:
        stale.dataset.delete("id = 'a'")
    assert _kind(incompatible.value) == "ConflictError"


def test_a_full_disk_is_permanent() -> None:
    with pytest.raises(OSError, match="No space left") as caught, open("/dev/full", "wb", buffering=0) as device:
        device.write(b"x")
    assert caught.value.errno == errno.ENOSPC
    assert _kind(caught.value) == "permanent"


def test_a_file_that_may_not_grow_fails_for_good_and_changes_nothing(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a")
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        kind, message = pool.submit(write_without_room, store.root).result(timeout=60)
    assert kind == "permanent", message
    assert store.open(PEOPLE).version == table.version
    assert insert(store, store.open(PEOPLE), "b").count_rows() == 2


@pytest.mark.long
def test_a_lack_of_permission_is_permanent_and_never_looks_like_absence(store: TableStore, table: TableHandle) -> None:
    store.objects.write_text("_schema.pg", "text")
    root = Path(store.root)
    try:
        with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
            kinds = pool.submit(look_without_permission, store.root).result(timeout=60)
    finally:
        root.chmod(0o700)
    assert kinds == ["permanent"] * 5


@pytest.mark.long
def test_a_server_that_cannot_be_reached_is_transient() -> None:
    objects = ObjectStore("s3://bucket/graph", options=NOWHERE)
    with pytest.raises(StorageError) as caught:
        objects.read_text("_schema.pg")
    assert caught.value.kind == "transient"
    with pytest.raises(StorageError) as caught:
        TableStore("s3://bucket/graph", storage_options=NOWHERE).open(PEOPLE)
    assert caught.value.kind == "transient"


def test_an_unknown_failure_keeps_its_first_line_and_its_cause(store: TableStore, table: TableHandle) -> None:
    with pytest.raises(StorageError) as caught:
        table.scan(["no_such_column"])
    assert caught.value.kind == "unknown"
    assert "no_such_column" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "/rust/" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_our_own_errors_pass_through_unchanged() -> None:
    ours = InputError("a reason")
    with pytest.raises(InputError) as caught, translated("doing something"):
        raise ours
    assert caught.value is ours
    assert classify_lance_error(ours, "x") is ours
    assert issubclass(StorageError, GraphError)


def test_an_option_no_store_knows_is_a_matter_of_configuration() -> None:
    with pytest.raises(StorageError) as caught:
        ObjectStore("s3://bucket/graph", options=NOWHERE | {"aws_no_such_thing": "1"})
    assert caught.value.kind == "configuration"


def _stopped_by(stop: BaseException) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": [1]})
    raise stop


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), KeyboardInterrupt("now"), SystemExit(3), SystemExit()])
def test_an_interrupt_inside_lance_leaves_as_what_it_is(tmp_path: Path, stop: BaseException) -> None:
    batches = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), _stopped_by(stop))
    with pytest.raises(type(stop)) as left, translated("writing"):
        lance.write_dataset(batches, str(tmp_path / "table"))
    assert left.value.args == stop.args or (left.value.args, stop.args) == ((None,), ())
    assert isinstance(left.value.__cause__, OSError), "Lance no longer hides an interrupt: the translation may go"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("External error: KeyboardInterrupt: ", KeyboardInterrupt),
        ("LanceError(Arrow): External error: KeyboardInterrupt: , /rust/core/poll.rs:291:44", KeyboardInterrupt),
        ("External error: SystemExit: 7", SystemExit),
    ],
)
def test_an_interrupt_is_known_by_its_words(text: str, kind: type[BaseException]) -> None:
    with pytest.raises(kind):
        classify_lance_error(pa.ArrowInvalid(text), "reading")


def test_text_of_a_user_that_speaks_of_interrupts_is_no_interrupt() -> None:
    for text in ("no column KeyboardInterrupt: here", "External error: KeyboardInterrupted by nobody", "SystemExit: 1"):
        assert isinstance(classify_lance_error(OSError(text), "reading"), StorageError)
