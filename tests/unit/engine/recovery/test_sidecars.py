"""Arming, renewing, claiming and removing intents."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from omnigraph.engine.coordination.intent import (
    Adoption,
    Effect,
    Intent,
    Registration,
    TableTombstone,
    WriterKind,
    new_intent,
    parse_intent,
    render_intent,
)
from omnigraph.engine.coordination.intents import Claim, IntentStore
from omnigraph.engine.coordination.owner import Liveness, this_process
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import FormatError, InternalError, StorageError
from omnigraph.ids import CommitId, TableKey, now_micros
from omnigraph.testing.failpoints import InjectedFailure, configured
from omnigraph.testing.faults import Fault, FaultyStore

PERSON, COMPANY = TableKey("node:Person"), TableKey("node:Company")


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path))


@pytest.fixture
def intents(objects: ObjectStore) -> IntentStore:
    return IntentStore(objects)


def an_intent(**facts: object) -> Intent:
    effects = (Effect.on(PERSON, "nodes/p", 4), Effect.on(COMPANY, "nodes/c", 7, steps=2))
    return new_intent(WriterKind.LOAD, None, effects, actor_id="act-alice", **facts)  # type: ignore[arg-type]


keys = st.builds(lambda name: TableKey(f"node:{name}"), st.text("abcXYZ", min_size=1, max_size=4))
numbers = st.integers(0, 2**53)
branches = st.none() | st.sampled_from(["feature", "a/b"])


@given(
    st.builds(
        new_intent,
        st.sampled_from(WriterKind),
        branches,
        st.lists(
            st.builds(Effect, keys, st.just("nodes/a"), numbers, numbers, branches, st.none() | numbers, numbers),
            max_size=3,
        ).map(tuple),
        actor_id=st.none() | st.text(max_size=5),
        read_set=st.dictionaries(keys, numbers, max_size=2),
        aborted=st.booleans(),
        merge_source_commit_id=st.none() | st.just(CommitId("01X")),
        registrations=st.lists(st.builds(Registration, keys, st.just("nodes/b"), branches, numbers)).map(tuple),
        tombstones=st.lists(st.builds(TableTombstone, keys, numbers), max_size=2).map(tuple),
        adoptions=st.lists(st.builds(Adoption, keys, st.just("nodes/c"), numbers, branches, numbers)).map(tuple),
        owner=st.none() | st.just(this_process().leased(1)),
        target_schema_hash=st.none() | st.just("sha256:00"),
    )
)
def test_an_intent_survives_its_file(intent: Intent) -> None:
    assert parse_intent(render_intent(intent), "x") == intent


@given(st.text(max_size=40) | st.sampled_from(['{"schema_version": 2}', "[]", '{"schema_version": "x"}', "null"]))
def test_any_other_text_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError):
        parse_intent(text, "x")


def test_effects_are_named_in_table_order() -> None:
    assert [effect.table_key for effect in an_intent().effects] == [COMPANY, PERSON]


def test_confirmation_needs_every_effect() -> None:
    with pytest.raises(InternalError, match="node:Person"):
        an_intent().confirmed({COMPANY: 9})
    confirmed = an_intent().confirmed({COMPANY: 9, PERSON: 5})
    assert [effect.confirmed_version for effect in confirmed.effects] == [9, 5]


def test_an_armed_intent_is_live_until_it_is_disarmed(intents: IntentStore) -> None:
    intent = intents.arm(an_intent())
    assert intents.list() == [intent.operation_id]
    assert intents.read(intent.operation_id) == intent
    assert intents.liveness(intent) is Liveness.LIVE
    assert intents.disarm(intent.operation_id)
    assert intents.list() == []
    assert intents.read(intent.operation_id) is None
    assert intents.liveness(intent) is Liveness.DEAD


@pytest.mark.parametrize("fault", [Fault.RAISE_BEFORE, Fault.RAISE_AFTER])
def test_an_intent_that_cannot_be_written_leaves_nothing(intents: IntentStore, fault: Fault) -> None:
    intent = an_intent()
    with FaultyStore(fault, 1), pytest.raises(StorageError):
        intents.arm(intent)
    assert intents.list() == []
    assert intents.liveness(replace(intent, owner=this_process())) is Liveness.DEAD


def test_a_failed_removal_is_logged_and_not_raised(intents: IntentStore, caplog: pytest.LogCaptureFixture) -> None:
    intent = intents.arm(an_intent())
    with configured("recovery.sidecar_delete=return"):
        assert not intents.disarm(intent.operation_id)
    assert "could not remove" in caplog.text
    assert intents.liveness(intent) is Liveness.DEAD


def test_a_failed_listing_is_raised(intents: IntentStore) -> None:
    with configured("recovery.sidecar_list=return"), pytest.raises(InjectedFailure):
        intents.list()


def test_aborting_and_confirming_rewrite_the_file(intents: IntentStore) -> None:
    intent = intents.arm(an_intent())
    confirmed = intents.confirm(intent, {COMPANY: 9, PERSON: 5})
    assert intents.read(intent.operation_id) == confirmed
    assert intents.mark_aborted(confirmed).aborted
    read = intents.read(intent.operation_id)
    assert read is not None
    assert read.aborted
    intents.disarm(intent.operation_id)


def test_a_confirmation_that_cannot_be_written_leaves_the_intent_unconfirmed(intents: IntentStore) -> None:
    intent = intents.arm(an_intent())
    with configured("recovery.sidecar_confirm=return"), pytest.raises(InjectedFailure):
        intents.confirm(intent, {COMPANY: 9, PERSON: 5})
    assert intents.read(intent.operation_id) == intent
    intents.disarm(intent.operation_id)


def test_a_long_operation_keeps_its_lease(objects: ObjectStore) -> None:
    intents = IntentStore(objects, lease_seconds=0.6)
    intent = intents.arm(an_intent())
    deadline = time.monotonic() + 20
    read: Intent | None = intent
    while time.monotonic() < deadline:
        time.sleep(0.1)
        read = intents.read(intent.operation_id)
        assert read is not None
        assert read.owner is not None
        assert intent.owner is not None
        if read.owner.lease_until > intent.owner.lease_until:
            break
    else:
        pytest.fail("the lease was never renewed")
    intents.disarm(intent.operation_id)
    time.sleep(0.3)
    assert intents.list() == [], "a renewal after the removal must not bring the file back"


def test_one_claim_at_a_time(intents: IntentStore, objects: ObjectStore) -> None:
    intent = intents.arm(an_intent())
    intents.abandon(intent.operation_id)

    def resolve(claim: Claim) -> bool:
        joined = intents.claimed(intent.operation_id, lambda _: True)
        assert joined is None, "another thread of this process must not join in"
        return True

    assert intents.claimed(intent.operation_id, resolve)
    assert objects.list_dir("__recovery") == [f"{intent.operation_id}.json"]


def test_a_living_holder_elsewhere_keeps_its_claim_and_a_silent_one_loses_it(
    intents: IntentStore, objects: ObjectStore
) -> None:
    intent = intents.arm(an_intent())
    intents.abandon(intent.operation_id)
    holder = replace(this_process(), host="elsewhere", lease_until=now_micros() + 60_000_000)
    path = f"__recovery/{intent.operation_id}.claim-000001"
    objects.write_text(path, json.dumps(holder.to_json()))
    assert intents.claimed(intent.operation_id, lambda _: True) is None
    objects.write_text(path, json.dumps(replace(holder, lease_until=0).to_json()))

    def resolve(claim: Claim) -> int:
        intents.remove(claim)
        return claim.number

    assert intents.claimed(intent.operation_id, resolve) == 2
    assert objects.list_dir("__recovery") == []


def test_leftover_claims_are_dropped(intents: IntentStore, objects: ObjectStore) -> None:
    intent = intents.arm(an_intent())
    intents.abandon(intent.operation_id)

    def resolve(claim: Claim) -> str:
        intents.remove(claim)
        intents.drop_leftover_claims()
        (name,) = objects.list_dir("__recovery")
        return name

    left = intents.claimed(intent.operation_id, resolve)
    assert left is not None, "it was still being worked on"
    objects.write_text(f"__recovery/{left}", json.dumps(this_process().to_json()))
    intents.drop_leftover_claims()
    assert objects.list_dir("__recovery") == []
