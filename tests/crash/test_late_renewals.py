"""Whoever stood still between looking at a small file of his and storing it again does not bring it back.

The others have settled his write, or taken his lock away, and may have a file of that name by now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.standing import Standing

from omnigraph.engine.coordination import intents as intents_of
from omnigraph.engine.coordination import lock as lock_of
from omnigraph.engine.coordination.branch_lock import _path, _read
from omnigraph.engine.coordination.intent import Effect, WriterKind, new_intent
from omnigraph.engine.coordination.intents import Claim, IntentStore
from omnigraph.engine.coordination.lease import Lease
from omnigraph.engine.coordination.lock import HeldLock, parse_lock
from omnigraph.engine.storage import durability, steps
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import ConflictError
from omnigraph.ids import OperationId, TableKey, new_ulid

EFFECT = Effect.on(TableKey("node:Person"), "nodes/1", 1)


@pytest.fixture
def intents(tmp_path: Path) -> IntentStore:
    return IntentStore(ObjectStore(str(tmp_path)))


def meanwhile(body: Callable[[], object], happens: Callable[[], object], step: str = "write_text") -> None:
    """Run `body`, before whose next step of this name something happens elsewhere."""

    def unseen() -> None:
        steps.observe(previous)
        happens()

    standing = Standing(1, (step,), unseen)
    previous = steps.observe(standing)
    try:
        body()
    finally:
        steps.observe(previous)
    assert standing.met


def armed(intents: IntentStore) -> tuple[OperationId, Lease]:
    intent = intents.arm(new_intent(WriterKind.BRANCH_MERGE, None, (EFFECT,)))
    lease = intents_of._LIVE.lease(intent.operation_id)
    assert lease is not None
    return intent.operation_id, lease


@pytest.mark.parametrize("last_moment", [False, True])
def test_an_intent_that_was_settled_is_not_renewed(
    intents: IntentStore, last_moment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation, lease = armed(intents)
    exchanged = durability._exchanged

    def settle() -> None:
        intents.remove(Claim(operation, 1)) if not last_moment else None

    def late(one: str, other: str) -> bool:
        Path(other).unlink()
        return exchanged(one, other)

    if last_moment:
        monkeypatch.setattr(durability, "_exchanged", late)
    # The lock of the lease is what keeps threads of one process apart; others know nothing of it.
    monkeypatch.setattr(intents_of._LIVE, "lease", lambda operation_id: None)
    meanwhile(lambda: lease.renew(below=2.0), settle)
    monkeypatch.undo()
    assert not intents.exists(operation)
    assert lease.ended, "it would be tried again"
    assert list(Path(intents.objects.root, "__recovery").iterdir()) == []
    intents.forget(operation)


def test_a_write_that_was_settled_is_not_confirmed(intents: IntentStore) -> None:
    operation, _ = armed(intents)
    intent = intents.read(operation)
    assert intent is not None
    intents.objects.delete(f"__recovery/{operation}.json")
    with pytest.raises(ConflictError, match="settled by another process"):
        intents.confirm(intent, {EFFECT.table_key: 2})
    assert not intents.exists(operation)
    intents.forget(operation)


def test_a_claim_that_was_taken_over_is_not_renewed(intents: IntentStore) -> None:
    operation = OperationId(new_ulid())
    path = intents._claim_path(operation, 1)
    leases: list[Lease] = []

    def settle(claim: Claim) -> None:
        [lease] = [each for each in intents_of.KEEPER._kept if each not in before]
        leases.append(lease)
        meanwhile(lambda: lease.renew(below=2.0), lambda: intents.objects.delete(path))

    before = set(intents_of.KEEPER._kept)
    intents.claimed(operation, settle)
    assert not intents.objects.has(path)
    assert leases[0].ended


def lock_at(intents: IntentStore) -> tuple[HeldLock, str]:
    path = _path("topic")
    return HeldLock(intents, path, lambda: _read(intents, path)), path


def replaced(intents: IntentStore, path: str) -> HeldLock:
    """The lock of somebody else, who has taken the first one away."""
    intents.objects.delete(path)
    other, _ = lock_at(intents)
    assert other.take()
    return other


def test_a_lock_that_others_have_by_now_is_not_renewed(intents: IntentStore) -> None:
    mine, path = lock_at(intents)
    assert mine.take()
    others: list[HeldLock] = []
    meanwhile(lambda: mine._lease.renew(below=2.0), lambda: others.append(replaced(intents, path)))
    assert others[0].is_held
    assert not mine.is_held
    mine.give_back()
    assert others[0].is_held
    others[0].give_back()
    assert not intents.objects.has(path)


def test_a_lock_that_others_have_by_now_is_not_given_back(intents: IntentStore) -> None:
    mine, path = lock_at(intents)
    assert mine.take()
    others: list[HeldLock] = []
    meanwhile(mine.give_back, lambda: others.append(replaced(intents, path)), step="delete")
    assert others[0].is_held
    others[0].give_back()


def test_the_successor_of_a_lock_whose_owner_is_gone_is_not_removed(intents: IntentStore) -> None:
    gone, path = lock_at(intents)
    assert gone.take()
    gone._lease.end()
    intents.note_lock(gone.record.operation_id, held=False)
    others: list[HeldLock] = []

    def clear() -> None:
        record = parse_lock(intents.objects.read_text(path))
        assert not lock_of.remove_if_same(intents, path, record, lambda: _read(intents, path))

    meanwhile(clear, lambda: others.append(replaced(intents, path)), step="delete")
    assert others[0].is_held
    others[0].give_back()
