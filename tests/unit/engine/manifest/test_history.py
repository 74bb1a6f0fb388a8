"""No commit is lost and none is there twice, however many processes publish and wherever one dies."""

import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.unit.engine.manifest.publishers import (
    KILLED,
    advance,
    advance_many,
    advance_until_archived_and_die,
    assert_linear,
    commit_table_ids,
    lineage,
    manifest_at,
)

from omnigraph.engine.manifest import history as history_module
from omnigraph.engine.manifest import publish as publish_module
from omnigraph.engine.manifest import records
from omnigraph.engine.manifest.commit_rows import COMMITS_SCHEMA
from omnigraph.engine.manifest.publish import ARCHIVE_EVERY, COMMIT_WINDOW, COMMITS_KEPT, Manifest
from omnigraph.engine.storage import layout
from omnigraph.errors import CommitNotFoundError, FormatError

SPAWN = multiprocessing.get_context("spawn")


def _publish(manifest: Manifest, times: int) -> None:
    for _ in range(times):
        manifest.publish("main", [], lineage=lineage())


def _projections(root: Path) -> list[Path]:
    return [root / layout.GRAPH_COMMITS, root / layout.COMMIT_ACTORS]


def test_the_manifest_holds_a_bounded_window_and_the_history_is_whole(manifest: Manifest) -> None:
    for _ in range(4):
        _publish(manifest, COMMITS_KEPT)
        assert len(manifest.snapshot().state.commits) <= COMMIT_WINDOW
    assert manifest.store.open(layout.MANIFEST).count_rows() <= COMMIT_WINDOW + 3 * 2 + 1
    assert_linear(manifest.history, 4 * COMMITS_KEPT + 1)
    archived = commit_table_ids(manifest)
    assert len(archived) == len(set(archived))


def test_a_limited_list_has_the_newest_commits_first(manifest: Manifest) -> None:
    _publish(manifest, COMMIT_WINDOW + 10)
    whole = manifest.history.list()
    for limit in (1, 5, COMMIT_WINDOW + 5, 1000):
        assert manifest.history.list(limit=limit) == whole[:limit]


def test_clocks_that_disagree_hide_no_commit_of_a_time(manifest: Manifest) -> None:
    """Of two writers the one that took the time first may publish last, and their clocks may be minutes apart."""
    start = manifest.history.newest().created_at
    seconds = [10, 20, 20, 15, 30]
    for second in seconds:
        manifest.publish("main", [], lineage=replace(lineage(), created_at=start + second * 1_000_000))
    for bound in range(5, 35, 5):
        listed = manifest.history.list(since=start + bound * 1_000_000)
        assert sorted((commit.created_at - start) // 1_000_000 for commit in listed) == sorted(
            second for second in seconds if second >= bound
        )


def test_an_archived_commit_keeps_its_parents_actor_and_time(manifest: Manifest) -> None:
    snapshot = advance(manifest, actor="act-bob")
    assert snapshot.head is not None
    before = manifest.history.find(snapshot.head)
    _publish(manifest, 2 * COMMIT_WINDOW)
    assert snapshot.head not in manifest.snapshot().state.commits
    assert manifest.history.find(snapshot.head) == before
    assert manifest.history.snapshot_at(snapshot.head).state.version == snapshot.version
    with pytest.raises(CommitNotFoundError):
        manifest.history.find("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_the_properties_of_a_commit_outlive_the_window_and_the_loss_of_its_table(
    root: Path, manifest: Manifest
) -> None:
    facts = {"source": "crane \u2013 7", "batch": "12"}
    told = manifest.publish("main", [], lineage=replace(lineage(), properties=facts)).head
    assert told is not None
    _publish(manifest, 2 * COMMIT_WINDOW)
    assert told not in manifest.snapshot().state.commits
    assert manifest.history.find(told).properties == facts
    assert [c.properties for c in manifest.history.list() if c.properties] == [facts]
    for path in _projections(root):
        shutil.rmtree(path)
    assert manifest_at(root).history.find(told).properties == facts
    _publish(manifest_at(root), COMMIT_WINDOW)
    healed = manifest_at(root)
    manifest_versions = healed.store.versions(layout.MANIFEST)
    healed.store.residual.cleanup_versions(layout.MANIFEST, versions=manifest_versions[:-1])
    assert healed.history.find(told).properties == facts, "the commit table alone tells them again"


def test_a_lost_table_of_actors_costs_no_actor(root: Path, manifest: Manifest) -> None:
    _publish(manifest, 2 * COMMIT_WINDOW)
    before = manifest.history.list()
    shutil.rmtree(root / layout.COMMIT_ACTORS)
    assert manifest_at(root).history.list() == before


def test_a_commit_table_of_six_columns_gets_the_others_when_it_is_next_written(root: Path, manifest: Manifest) -> None:
    place = str(root / layout.GRAPH_COMMITS)
    narrow = lance.dataset(place).to_table().select(COMMITS_SCHEMA.names[:6])
    shutil.rmtree(place)
    lance.write_dataset(narrow, place, enable_stable_row_ids=True, data_storage_version="2.2")
    facts = {"batch": "12"}
    told = manifest.publish("main", [], lineage=replace(lineage(), properties=facts)).head
    assert told is not None
    assert len(manifest.history.list()) == 2
    _publish(manifest, 2 * COMMIT_WINDOW)
    assert lance.dataset(place).schema.names == COMMITS_SCHEMA.names
    assert manifest_at(root).history.find(told).properties == facts
    assert_linear(manifest_at(root).history, 2 * COMMIT_WINDOW + 2)


def test_a_limited_list_reads_a_page_of_the_commit_table(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    _publish(manifest, 5 * COMMIT_WINDOW)
    whole = manifest.history.list()
    read: list[int] = []
    real = history_module.read_commits
    monkeypatch.setattr(
        history_module, "read_commits", lambda rows, actors: read.append(rows.num_rows) or real(rows, actors)
    )
    assert manifest.history.list(limit=COMMIT_WINDOW + 10) == whole[: COMMIT_WINDOW + 10]
    assert sum(read) <= 2 * (COMMIT_WINDOW + 10)


def test_deleted_commit_tables_cost_no_answer_and_come_back(root: Path, manifest: Manifest) -> None:
    _publish(manifest, 3 * COMMIT_WINDOW)
    before = manifest.history.list()
    for path in _projections(root):
        shutil.rmtree(path)
    reader = manifest_at(root)
    assert reader.history.list() == before
    assert reader.history.find(before[-1].graph_commit_id) == before[-1]
    assert not any(path.exists() for path in _projections(root)), "reading must not write"
    _publish(manifest_at(root), COMMIT_WINDOW)
    healed = manifest_at(root)
    archived = commit_table_ids(healed)
    assert len(archived) == len(set(archived))
    assert {commit.graph_commit_id for commit in before} <= set(archived)
    assert_linear(healed.history, 4 * COMMIT_WINDOW + 1)


def test_history_that_is_really_gone_is_reported_and_does_not_stop_writes(root: Path, manifest: Manifest) -> None:
    _publish(manifest, 2 * COMMIT_WINDOW)
    for path in _projections(root):
        shutil.rmtree(path)
    versions = manifest.store.versions(layout.MANIFEST)
    manifest.store.residual.cleanup_versions(layout.MANIFEST, versions=versions[:-1])
    survivor = manifest_at(root)
    with pytest.raises(FormatError, match="recorded nowhere"):
        survivor.history.list()
    assert len(survivor.history.list(limit=5)) == 5
    _publish(survivor, COMMIT_WINDOW)


@pytest.mark.long
def test_a_commit_table_that_cannot_be_written_keeps_commits_in_the_manifest(root: Path, manifest: Manifest) -> None:
    shutil.rmtree(root / layout.GRAPH_COMMITS)
    (root / layout.GRAPH_COMMITS).write_text("in the way")
    _publish(manifest, COMMIT_WINDOW + 1)
    assert len(manifest.snapshot().state.commits) == COMMIT_WINDOW + 2
    (root / layout.GRAPH_COMMITS).unlink()
    _publish(manifest, ARCHIVE_EVERY)
    assert len(manifest.snapshot().state.commits) <= COMMITS_KEPT + ARCHIVE_EVERY
    assert_linear(manifest.history, COMMIT_WINDOW + 2 + ARCHIVE_EVERY)


@pytest.mark.parametrize("archives", [1, 2])
def test_a_publisher_killed_between_archiving_and_publishing_loses_and_doubles_nothing(
    root: Path, archives: int
) -> None:
    process = SPAWN.Process(target=advance_until_archived_and_die, args=(str(root), archives))
    process.start()
    process.join(90)
    assert process.exitcode == KILLED
    manifest = manifest_at(root)
    published = manifest.snapshot().version
    assert_linear(manifest.history, published - 1)
    _publish(manifest, COMMIT_WINDOW)
    assert_linear(manifest.history, published - 1 + COMMIT_WINDOW)
    archived = commit_table_ids(manifest)
    assert len(archived) == len(set(archived))


@pytest.mark.long
def test_four_processes_publish_five_hundred_commits_into_one_linear_history(root: Path) -> None:
    doomed = SPAWN.Process(target=advance_until_archived_and_die, args=(str(root), 2))
    doomed.start()
    with ProcessPoolExecutor(4, mp_context=SPAWN) as pool:
        jobs = [pool.submit(advance_many, str(root), 125, f"act-{number}") for number in range(4)]
        acknowledged = [commit for job in jobs for commit in job.result(timeout=240)[0]]
    doomed.join(60)
    if doomed.is_alive():
        doomed.kill()
        doomed.join()
    manifest = manifest_at(root)
    commits = manifest.history.list()
    by_id = {commit.graph_commit_id: commit for commit in commits}
    assert len(set(acknowledged)) == len(acknowledged) == 500
    assert set(acknowledged) <= set(by_id)
    theirs = [commit for commit in commits if commit.actor_id == "act-doomed"]
    assert len(commits) == 501 + len(theirs)
    assert_linear(manifest.history, len(commits))
    archived = commit_table_ids(manifest)
    assert len(archived) == len(set(archived))
    object_ids = manifest.store.open(layout.MANIFEST).scan(["object_id"])["object_id"].to_pylist()
    assert len(object_ids) == len(set(object_ids))


def _write_raw(root: Path, rows: pa.Table) -> None:
    lance.write_dataset(rows, str(root / layout.MANIFEST), mode="overwrite")


def test_rows_and_columns_of_a_newer_release_survive_a_publish(root: Path) -> None:
    table = lance.dataset(str(root / layout.MANIFEST)).to_table()
    strange = dict.fromkeys(records.MANIFEST_SCHEMA.names) | {
        "object_id": "policy:1",
        "object_type": "graph_policy",
        "table_key": "",
        "metadata": "not even json",
    }
    _write_raw(root, pa.concat_tables([table, pa.Table.from_pylist([strange], schema=table.schema)]))
    advance(manifest_at(root))
    rows = lance.dataset(str(root / layout.MANIFEST)).to_table().to_pylist()
    assert strange in rows


@pytest.mark.parametrize(("stamp", "complaint"), [(b"5", "newer than"), (b"x", "unreadable")])
def test_a_manifest_of_another_format_is_neither_read_nor_written(root: Path, stamp: bytes, complaint: str) -> None:
    table = lance.dataset(str(root / layout.MANIFEST)).to_table()
    _write_raw(root, table.replace_schema_metadata({records.STAMP_KEY: stamp}))
    version = lance.dataset(str(root / layout.MANIFEST)).version
    manifest = manifest_at(root)
    with pytest.raises(FormatError, match=complaint):
        manifest.snapshot()
    with pytest.raises(FormatError, match=complaint):
        manifest.publish("main", [], lineage=lineage())
    assert lance.dataset(str(root / layout.MANIFEST)).version == version


def test_a_publish_keeps_annotation_stamp_and_configuration(root: Path, manifest: Manifest) -> None:
    for _ in range(3):
        advance(manifest)
    found = lance.dataset(str(root / layout.MANIFEST))
    assert found.schema.field("object_id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    assert found.schema.metadata[records.STAMP_KEY] == b"4"
    assert found.config() == {"table_version_management": "true"}
    assert found.has_stable_row_ids
    assert len(found.get_fragments()) == 1


def test_a_warm_look_opens_and_lists_nothing(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    _publish(manifest, 3)
    seen = manifest.snapshot()

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a warm look must not open a table")

    monkeypatch.setattr(manifest.store, "open", refuse)
    assert manifest.snapshot().version == seen.version
    assert publish_module.PROBE_SECONDS > 1
