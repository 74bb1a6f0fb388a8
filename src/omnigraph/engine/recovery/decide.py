"""Choose what becomes of a write that a crash cut short.

One decision for all effects, because a write is visible whole or not at all. Pure: `sweep` reads the world into a
`Situation` and carries the decision out.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from omnigraph.engine.recovery.classify import TableState


class Action(StrEnum):
    """What recovery does with an intent.

    `DISCARD` its branch is gone; `ABORT` refuse loudly and keep it; `DEFER` keep it for a read-write open; `STALE`
    the outcome is published already, record and remove it; `ROLL_BACK` restore and publish; `ROLL_FORWARD` publish.
    """

    DISCARD = "discard"
    ABORT = "abort"
    DEFER = "defer"
    STALE = "stale"
    ROLL_BACK = "roll back"
    ROLL_FORWARD = "roll forward"


class RecoveryKind(StrEnum):
    """The outcome an audit row records."""

    ROLLED_FORWARD = "RolledForward"
    ROLLED_BACK = "RolledBack"
    ORPHANED_BRANCH_DISCARDED = "OrphanedBranchDiscarded"


class Situation(Struct, frozen=True):
    """Everything a decision depends on.

    `published` says whether the intent's own commit is in the history (None for formats without a commit id),
    `undone` that a rollback of it was published, `advanced` that some table is published above its expected version.
    `sweeping` is true at a read-write open. `may_restore` is true when nobody else can be committing to these tables:
    at a read-write open, and in a living process once the writer's death or silence is established.
    """

    states: Sequence[TableState]
    branch_exists: bool = True
    advanced: bool = False
    published: bool | None = None
    undone: bool = False
    aborted: bool = False
    read_set_holds: bool = True
    schema_ready: bool = True
    sweeping: bool = False
    may_restore: bool = False


class Decision(Struct, frozen=True):
    """An action, and the outcome its audit row records (None where nothing is recorded)."""

    action: Action
    outcome: RecoveryKind | None = None


_REFUSED = frozenset({TableState.INVARIANT_VIOLATION, TableState.FOREIGN_MIXED})
_DEFER = Decision(Action.DEFER)


def decide(situation: Situation) -> Decision:
    """The first rule that fits; the order is the order of the table in the specification."""
    states = situation.states
    if not situation.branch_exists:
        return Decision(Action.DISCARD, RecoveryKind.ORPHANED_BRANCH_DISCARDED)
    if _REFUSED.intersection(states):
        return Decision(Action.ABORT) if situation.sweeping else _DEFER
    unmoved = all(state is TableState.NO_MOVEMENT for state in states)
    if situation.published is not None:
        settled = _by_commit(situation, unmoved)
        if settled is not None:
            return settled
    elif states and unmoved and situation.advanced:
        return Decision(Action.STALE, RecoveryKind.ROLLED_FORWARD)
    finished = all(state is TableState.ROLLED_PAST_EXPECTED for state in states)
    if finished and situation.schema_ready and situation.read_set_holds and not situation.aborted:
        return Decision(Action.ROLL_FORWARD, RecoveryKind.ROLLED_FORWARD)
    return _undo(situation, RecoveryKind.ROLLED_BACK)


def _by_commit(situation: Situation, unmoved: bool) -> Decision | None:
    """What the commit id alone settles: a published write is never undone, an undone one never finished."""
    if situation.published:
        if unmoved:
            return Decision(Action.STALE, RecoveryKind.ROLLED_FORWARD)
        # What lies above the published versions came too late; taking it away again shows the published state.
        return _undo(situation, RecoveryKind.ROLLED_FORWARD)
    if situation.undone and unmoved:
        return Decision(Action.STALE, RecoveryKind.ROLLED_BACK)
    return None


def _undo(situation: Situation, outcome: RecoveryKind) -> Decision:
    """Undo, if that is allowed here; where nothing moved there is nothing to restore, and it always is."""
    nothing_moved = bool(situation.states) and all(state is TableState.NO_MOVEMENT for state in situation.states)
    if situation.may_restore or nothing_moved:
        return Decision(Action.ROLL_BACK, outcome)
    return _DEFER
