"""One lease for everything that is kept in the name of a process, renewed by one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from omnigraph.engine.coordination import branch_lock
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.intents import IntentStore
from omnigraph.engine.coordination.lease import Lease, LeaseKeeper
from omnigraph.engine.coordination.lock import parse_lock
from omnigraph.engine.coordination.owner import Owner
from omnigraph.engine.storage.layout import RECOVERY_DIR
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import StorageError
from omnigraph.ids import now_micros

SHORT = 0.3


def _until(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    limit = time.monotonic() + seconds
    while not true() and time.monotonic() < limit:
        time.sleep(0.01)
    return true()


def test_a_lease_is_renewed_before_it_runs_out_and_not_before_that_is_needed() -> None:
    stored: list[Owner] = []

    def store(owner: Owner) -> bool:
        stored.append(owner)
        return True

    lease = Lease(store, 60.0)
    began = lease.begin()
    lease.renew()
    assert stored == []
    lease.renew(below=2.0)
    assert stored == [lease.owner]
    assert lease.owner.lease_until > began.lease_until
    lease.ended = True
    lease.renew(below=2.0)
    assert len(stored) == 1


def test_what_somebody_removed_is_not_stored_again() -> None:
    asked: list[Owner] = []

    def gone(owner: Owner) -> bool:
        asked.append(owner)
        return False

    lease = Lease(gone, 0.0)
    lease.begin()
    lease.renew()
    lease.renew()
    assert len(asked) == 1
    assert lease.ended


def test_trouble_with_one_lease_does_not_end_the_others() -> None:
    keeper = LeaseKeeper()
    stored: list[Owner] = []

    def fail(owner: Owner) -> bool:
        raise StorageError("no answer", kind="unavailable")

    def store(owner: Owner) -> bool:
        stored.append(owner)
        return True

    leases = [Lease(fail, SHORT), Lease(store, SHORT)]
    for lease in leases:
        lease.begin()
        keeper.keep(lease)
    assert _until(lambda: len(stored) >= 3)
    for lease in leases:
        keeper.drop(lease)
    keeper.rest()
    assert keeper._thread is None


def test_the_lock_of_a_branch_is_held_for_as_long_as_its_holder_lives(tmp_path: Path) -> None:
    intents = IntentStore(ObjectStore(str(tmp_path)), lease_seconds=SHORT)
    path = f"{RECOVERY_DIR}/branch-review.lock"
    seen: list[int] = []

    def look(lock: branch_lock.BranchLock) -> None:
        def renewed() -> bool:
            text = intents.objects.read_text_if_exists(path)
            assert text is not None
            seen.append(parse_lock(text).owner.lease_until)
            return len(set(seen)) > 3

        assert _until(renewed)
        assert seen[-1] > now_micros()
        lock.check()

    branch_lock.locked_branch(intents, "review", look)
    assert intents.objects.read_text_if_exists(path) is None
    time.sleep(SHORT)
    assert intents.objects.read_text_if_exists(path) is None


def test_a_heartbeat_covers_without_a_gap_while_it_is_renewed(tmp_path: Path) -> None:
    heartbeat = Heartbeat(ObjectStore(str(tmp_path)))
    heartbeat.lease.seconds = SHORT

    def work() -> bool:
        began = now_micros()
        time.sleep(3 * SHORT)
        return heartbeat.covers(began)

    assert heartbeat.staging(work)
    ended = now_micros()
    assert _until(lambda: heartbeat.lease.is_over), "nobody stages, so nobody renews it"
    assert not heartbeat.covers(ended)
    heartbeat._end()
