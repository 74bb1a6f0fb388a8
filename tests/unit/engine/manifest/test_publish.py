"""A publish lands only if every expectation holds at the moment it lands."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.engine.manifest.publishers import (
    COMPANY,
    KNOWS,
    PERSON,
    advance,
    assert_linear,
    lineage,
    manifest_at,
)

from omnigraph import failpoints
from omnigraph.engine.manifest import publish as publish_module
from omnigraph.engine.manifest.delta import Change, RegisterTable, TombstoneTable, UpdateTable
from omnigraph.engine.manifest.publish import RETRY_BUDGET, Manifest
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage import layout
from omnigraph.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    ConflictError,
    ExpectedVersionMismatchError,
    GraphError,
    InternalError,
    PublishContentionError,
    ReadSetChangedError,
    VersionReclaimedError,
)
from omnigraph.ids import CommitId, TableKey
from omnigraph.testing.failpoints import configured

PRECHECKED = failpoints.PUBLISH_AFTER_PRECHECK


def _next(key: TableKey, version: int = 2) -> list[Change]:
    return [UpdateTable(key, version, None, 0)]


def _race(root: Path, *publishes: Callable[[Manifest], Snapshot]) -> list[Snapshot | GraphError]:
    """Run publishes on manifests of their own, all held between their check and their swap until each is there."""
    results: list[Snapshot | GraphError | None] = [None] * len(publishes)
    arrived = threading.Barrier(len(publishes))
    first_time = threading.local()

    def plan(name: str) -> None:
        if name == PRECHECKED and not getattr(first_time, "passed", False):
            first_time.passed = True
            arrived.wait(30)

    def run(number: int) -> None:
        try:
            results[number] = publishes[number](manifest_at(root))
        except GraphError as exc:
            results[number] = exc

    previous = failpoints.install(plan)
    try:
        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(publishes))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        failpoints.install(previous)
    return [result for result in results if result is not None]


def test_of_publishers_that_checked_together_one_lands_and_the_others_learn_why(root: Path) -> None:
    results = _race(
        root, *[lambda m: m.publish("main", _next(PERSON), lineage=lineage(), expected={PERSON: 1}) for _ in range(4)]
    )
    won = [result for result in results if isinstance(result, Snapshot)]
    lost = [result for result in results if isinstance(result, ExpectedVersionMismatchError)]
    assert (len(won), len(lost)) == (1, 3)
    assert {(exc.table_key, exc.expected, exc.actual) for exc in lost} == {(PERSON, 1, 2)}
    assert manifest_at(root).snapshot().head == won[0].head
    assert_linear(manifest_at(root).history, 2)


def test_a_table_that_was_only_read_is_guarded_like_one_that_is_written(root: Path) -> None:
    writer, reader = _race(
        root,
        lambda m: m.publish("main", _next(PERSON), lineage=lineage(), expected={PERSON: 1}),
        lambda m: m.publish("main", _next(KNOWS), lineage=lineage(), expected={KNOWS: 1, PERSON: 1}),
    )
    snapshot = manifest_at(root).snapshot()
    if isinstance(reader, Snapshot):
        # The reader won; then the writer was not disturbed by it.
        assert isinstance(writer, Snapshot)
        assert snapshot.entry(KNOWS).version == 2
    else:
        assert isinstance(reader, ExpectedVersionMismatchError)
        assert reader.table_key == PERSON
        assert snapshot.entry(KNOWS).version == 1
    assert snapshot.entry(PERSON).version == 2


def test_publishers_of_different_tables_both_land_one_after_the_other(root: Path) -> None:
    results = _race(
        root,
        lambda m: m.publish("main", _next(PERSON), lineage=lineage(), expected={PERSON: 1}),
        lambda m: m.publish("main", _next(COMPANY), lineage=lineage(), expected={COMPANY: 1}),
        lambda m: m.publish("main", _next(KNOWS), lineage=lineage(), expected={KNOWS: 1}),
    )
    assert all(isinstance(result, Snapshot) for result in results)
    assert {entry.version for entry in manifest_at(root).snapshot().entries.values()} == {2}
    assert_linear(manifest_at(root).history, 4)


def test_a_demanded_head_admits_one_of_the_publishers_that_saw_it(root: Path) -> None:
    head = manifest_at(root).snapshot().head
    results = _race(
        root,
        lambda m: m.publish("main", _next(PERSON), lineage=lineage(), expected_head=head),
        lambda m: m.publish("main", _next(COMPANY), lineage=lineage(), expected_head=head),
    )
    refused = [result for result in results if isinstance(result, ReadSetChangedError)]
    assert len(refused) == 1
    assert refused[0].facts() == {
        "read_set_conflict": {
            "member": "head of main",
            "expected": head,
            "actual": manifest_at(root).snapshot().head,
        }
    }


def test_a_refusal_names_the_first_stale_table_in_key_order(manifest: Manifest) -> None:
    before = manifest.snapshot()
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        manifest.publish("main", _next(PERSON), lineage=lineage(), expected={PERSON: 9, KNOWS: 7, COMPANY: 8})
    assert str(caught.value) == (
        "stale view of 'edge:Knows': expected manifest table version 7 but current is 1 — refresh and retry"
    )
    assert caught.value.code == "conflict"
    assert caught.value.facts() == {"manifest_conflict": {"table_key": "edge:Knows", "expected": 7, "actual": 1}}
    assert manifest_at(manifest.store.root).snapshot().state == before.state


def test_an_unknown_table_is_expected_at_version_zero_and_a_dropped_one_at_its_tombstone(manifest: Manifest) -> None:
    ghost = TableKey("node:Ghost")
    manifest.publish("main", [], lineage=lineage(), expected={ghost: 0})
    manifest.publish("main", [TombstoneTable(COMPANY, 1)], lineage=lineage(), expected={COMPANY: 1})
    assert COMPANY not in manifest.snapshot().entries
    manifest.publish("main", [], lineage=lineage(), expected={COMPANY: 1})
    with pytest.raises(ExpectedVersionMismatchError):
        manifest.publish("main", [], lineage=lineage(), expected={COMPANY: 0})


def test_a_publisher_that_loses_every_race_gives_up_after_its_budget(root: Path, manifest: Manifest) -> None:
    rival = manifest_at(root)
    rounds = 0

    def overtake(name: str) -> None:
        nonlocal rounds
        if name == PRECHECKED:
            failpoints.install(None)
            rounds += 1
            advance(rival, COMPANY)
            failpoints.install(overtake)

    previous = failpoints.install(overtake)
    try:
        with pytest.raises(PublishContentionError):
            manifest.publish("main", _next(PERSON), lineage=lineage(), expected={PERSON: 1})
    finally:
        failpoints.install(previous)
    assert rounds == RETRY_BUDGET + 1 == 6
    snapshot = manifest_at(root).snapshot()
    assert (snapshot.entry(PERSON).version, snapshot.entry(COMPANY).version) == (1, 7)
    assert_linear(manifest_at(root).history, 7)


def test_a_publisher_that_loses_some_races_lands_within_its_budget(root: Path, manifest: Manifest) -> None:
    rival = manifest_at(root)
    left = RETRY_BUDGET

    def overtake(name: str) -> None:
        nonlocal left
        if name == PRECHECKED and left:
            left -= 1
            failpoints.install(None)
            advance(rival, COMPANY)
            failpoints.install(overtake)

    previous = failpoints.install(overtake)
    try:
        manifest.publish("main", _next(PERSON), lineage=lineage(), expected={PERSON: 1})
    finally:
        failpoints.install(previous)
    assert manifest_at(root).snapshot().entry(PERSON).version == 2
    assert_linear(manifest_at(root).history, 7)


def test_a_failure_after_the_check_publishes_nothing(root: Path, manifest: Manifest) -> None:
    before = manifest.snapshot()
    with configured(f"{PRECHECKED}=return"), pytest.raises(GraphError):
        advance(manifest)
    assert manifest_at(root).snapshot().state == before.state
    assert advance(manifest).entry(PERSON).version == 2


def test_two_handles_that_alternate_build_one_chain(root: Path) -> None:
    handles = [manifest_at(root), manifest_at(root)]
    for turn in range(12):
        advance(handles[turn % 2], [PERSON, COMPANY][turn % 2])
    assert_linear(manifest_at(root).history, 13)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ([UpdateTable(PERSON, 1, None, 5)], "back to 1"),
        ([UpdateTable(PERSON, 3, None, 0), UpdateTable(PERSON, 4, None, 0)], "twice"),
        ([UpdateTable(TableKey("node:Ghost"), 1, None, 0)], "not registered"),
        ([TombstoneTable(TableKey("node:Ghost"), 1)], "not registered"),
        ([RegisterTable(PERSON, "nodes/elsewhere")], "already registered"),
    ],
)
def test_a_change_that_breaks_a_rule_publishes_nothing_of_its_request(
    manifest: Manifest, changes: list[Change], complaint: str
) -> None:
    before = manifest.snapshot()
    with pytest.raises(InternalError, match=complaint):
        manifest.publish("main", [UpdateTable(COMPANY, 2, None, 0), *changes], lineage=lineage())
    assert manifest_at(manifest.store.root).snapshot().state == before.state


def test_visible_versions_only_grow_except_when_the_owner_changes(manifest: Manifest) -> None:
    manifest.publish("main", [UpdateTable(PERSON, 5, "review", 3)], lineage=lineage())
    with pytest.raises(InternalError):
        manifest.publish("main", [UpdateTable(PERSON, 4, None, 3)], lineage=lineage())
    handed = manifest.publish("main", [UpdateTable(PERSON, 5, None, 3)], lineage=lineage())
    assert (handed.entry(PERSON).version, handed.entry(PERSON).branch) == (5, None)


def test_the_same_commit_is_never_published_twice(manifest: Manifest) -> None:
    first = lineage()
    manifest.publish("main", _next(PERSON), lineage=first)
    with pytest.raises(InternalError, match="published already"):
        manifest.publish("main", _next(PERSON, 3), lineage=first)
    assert manifest.snapshot().entry(PERSON).version == 2


def test_a_dropped_type_can_come_back_under_its_name(manifest: Manifest) -> None:
    manifest.publish("main", [UpdateTable(PERSON, 7, None, 3)], lineage=lineage())
    manifest.publish("main", [TombstoneTable(PERSON, 7)], lineage=lineage())
    again = [RegisterTable(PERSON, layout.table_path(PERSON, 2), 2), UpdateTable(PERSON, 1, None, 0)]
    manifest.publish("main", again, lineage=lineage(), expected={PERSON: 7})
    entry = manifest_at(manifest.store.root).snapshot().entry(PERSON)
    assert (entry.path, entry.version, entry.incarnation) == ("nodes/40d76f1f51639ec0-2", 1, 2)


def test_a_snapshot_stays_what_it_was(root: Path, manifest: Manifest) -> None:
    old = manifest.snapshot()
    advance(manifest_at(root))
    assert old.entry(PERSON).version == 1
    assert manifest.snapshot().entry(PERSON).version == 2
    assert manifest.snapshot(version=old.version) == old
    assert manifest.history.snapshot_at(old.id) == old


def test_names_of_nothing_are_typed(manifest: Manifest) -> None:
    with pytest.raises(BranchNotFoundError):
        manifest.snapshot("nowhere")
    with pytest.raises(CommitNotFoundError):
        manifest.snapshot(version=99)
    for name in ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "manifest:main", "manifest:main:v99"):
        with pytest.raises(CommitNotFoundError):
            manifest.history.snapshot_at(name)


def test_a_reclaimed_table_version_says_so(manifest: Manifest) -> None:
    manifest.publish("main", [UpdateTable(PERSON, 40, None, 0)], lineage=lineage())
    with pytest.raises(VersionReclaimedError) as caught:
        manifest.snapshot().open(PERSON)
    assert caught.value.facts() == {"historical_version_reclaimed": {"table_key": PERSON, "version": 40}}


def test_a_gap_in_the_versions_does_not_hide_the_head_from_an_idle_process(
    root: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = manifest_at(root)
    seen = idle.snapshot().version
    for _ in range(3):
        advance(manifest)
    manifest.store.residual.cleanup_versions(layout.MANIFEST, versions=[seen + 1, seen + 2])
    monkeypatch.setattr(publish_module, "PROBE_SECONDS", 0.0)
    assert idle.snapshot().version == seen + 3


def test_a_publisher_that_stood_still_does_not_trust_what_it_saw(
    root: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = manifest.snapshot().version

    def sleep_through(name: str) -> None:
        if name == PRECHECKED and manifest_at(root).snapshot().version == seen:
            failpoints.install(None)
            rival = manifest_at(root)
            for _ in range(3):
                advance(rival, COMPANY)
            rival.store.residual.cleanup_versions(layout.MANIFEST, versions=[seen + 1, seen + 2])
            monkeypatch.setattr(publish_module, "PROBE_SECONDS", 0.0)
            failpoints.install(wake)

    def wake(name: str) -> None:
        if name == PRECHECKED:
            monkeypatch.setattr(publish_module, "PROBE_SECONDS", 60.0)

    previous = failpoints.install(sleep_through)
    try:
        manifest.publish("main", _next(PERSON), lineage=lineage(), expected={PERSON: 1})
    finally:
        failpoints.install(previous)
    snapshot = manifest_at(root).snapshot()
    assert snapshot.version == seen + 4
    assert (snapshot.entry(PERSON).version, snapshot.entry(COMPANY).version) == (2, 4)


def test_a_conflict_is_an_error_that_may_be_retried() -> None:
    assert issubclass(ExpectedVersionMismatchError, ConflictError)
    assert issubclass(PublishContentionError, ConflictError)
    assert ReadSetChangedError(member="m", expected=CommitId("a"), actual=None).code == "conflict"
