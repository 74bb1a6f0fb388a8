"""Compare one effect of an intent with its table as it is now.

Files of the formats 1 and 2 say only version numbers, and are judged by arithmetic under one of three modes. From
format 3 on every commit carries its operation id, and is judged by identity: whose commits lie between the published
version and the head, and whether they are all that was planned. Everything here is pure; `sweep` does the reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from omnigraph.engine.coordination.intent import CONFIRMATION_FLOOR, IDENTITY_FLOOR, Effect, WriterKind
from omnigraph.engine.storage.transactions import COMPENSATES, OPERATION_ID, RESTORES, STEP, TransactionInfo
from omnigraph.ids import OperationId


class Mode(StrEnum):
    """How numbers are read: `STRICT` one commit a table; `LOOSE` several whose part is derived state; `CONFIRMED`
    several of distinct rows, finished only when the file says so."""

    STRICT = "strict"
    LOOSE = "loose"
    CONFIRMED = "confirmed"


class TableState(StrEnum):
    """What became of one effect."""

    NO_MOVEMENT = "NoMovement"
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    INCOMPLETE_PHASE_B = "IncompletePhaseB"
    INVARIANT_VIOLATION = "InvariantViolation"
    COMPENSATED = "Compensated"
    FOREIGN_MIXED = "ForeignMixed"


# A writer kind without a row here fails a test, and cannot be classified.
MODES: dict[WriterKind, tuple[Mode, Mode]] = {
    WriterKind.MUTATION: (Mode.STRICT, Mode.STRICT),
    WriterKind.LOAD: (Mode.STRICT, Mode.STRICT),
    WriterKind.SCHEMA_APPLY: (Mode.LOOSE, Mode.LOOSE),
    WriterKind.ENSURE_INDICES: (Mode.LOOSE, Mode.LOOSE),
    WriterKind.OPTIMIZE: (Mode.LOOSE, Mode.LOOSE),
    WriterKind.BRANCH_MERGE: (Mode.LOOSE, Mode.CONFIRMED),
}

# Kinds whose commits may lack properties because Lance makes them itself, and of which any part is complete.
_MAINTENANCE_KINDS = frozenset({WriterKind.ENSURE_INDICES, WriterKind.OPTIMIZE})
MAINTENANCE_OPERATIONS = frozenset({"Rewrite", "ReserveFragments", "CreateIndex", "BaseOperation"})


class Observation(Struct, frozen=True):
    """One effect and its table: the head on the effect's branch, and the version the graph branch publishes.

    `commits` are the transactions of the versions above the lower of expected and published, up to the head; `kin`
    are operations whose leftovers may be undone together with this one, because nobody is behind them any more.
    """

    effect: Effect
    head: int
    pinned: int
    commits: Sequence[TransactionInfo] = ()
    kin: frozenset[str] = frozenset()

    @property
    def drift(self) -> list[TransactionInfo]:
        """The transactions above the published version."""
        return [commit for commit in self.commits if commit.version > self.pinned]


def mode_of(kind: WriterKind, schema_version: int) -> Mode:
    """The mode of a kind in a format that is judged by numbers, or the confirmation rule of a later one."""
    return MODES[kind][0 if schema_version < CONFIRMATION_FLOOR else 1]


def classify(observation: Observation, kind: WriterKind, schema_version: int, operation_id: OperationId) -> TableState:
    """What became of one effect, under the rules its file was written with."""
    if observation.head < observation.pinned:
        return TableState.INVARIANT_VIOLATION
    if observation.head == observation.pinned:
        return TableState.NO_MOVEMENT
    if schema_version >= IDENTITY_FLOOR:
        return _by_identity(observation, kind, schema_version, operation_id)
    return _by_numbers(observation, mode_of(kind, schema_version))


def _by_numbers(seen: Observation, mode: Mode) -> TableState:
    effect, one_ahead = seen.effect, seen.head == seen.pinned + 1
    based_on_pin = effect.expected_version == seen.pinned
    if mode is Mode.CONFIRMED:
        if effect.confirmed_version is None:
            return TableState.INCOMPLETE_PHASE_B
        if based_on_pin and effect.confirmed_version == seen.head:
            return TableState.ROLLED_PAST_EXPECTED
        return TableState.UNEXPECTED_MULTISTEP
    if based_on_pin and (mode is Mode.LOOSE or (one_ahead and effect.post_commit_pin == seen.head)):
        return TableState.ROLLED_PAST_EXPECTED
    return TableState.UNEXPECTED_AT_P1 if one_ahead else TableState.UNEXPECTED_MULTISTEP


def _by_identity(seen: Observation, kind: WriterKind, schema_version: int, operation_id: OperationId) -> TableState:
    drift = seen.drift
    owned = [_is_ours(commit, kind, operation_id) for commit in drift]
    if not any(owned):
        return TableState.NO_MOVEMENT
    strangers = [commit for commit, own in zip(drift, owned, strict=True) if not own]
    if any(commit.properties.get(OPERATION_ID) not in seen.kin for commit in strangers):
        return TableState.FOREIGN_MIXED
    last = drift[-1]
    if COMPENSATES in last.properties:
        undone = last.properties.get(RESTORES) == str(seen.pinned)
        return TableState.COMPENSATED if undone else TableState.INCOMPLETE_PHASE_B
    if not all(owned) or any(COMPENSATES in commit.properties for commit in drift):
        return TableState.INCOMPLETE_PHASE_B
    return TableState.ROLLED_PAST_EXPECTED if _complete(seen, kind, schema_version) else TableState.INCOMPLETE_PHASE_B


def _is_ours(commit: TransactionInfo, kind: WriterKind, operation_id: OperationId) -> bool:
    owner = commit.properties.get(OPERATION_ID)
    if owner is None:
        return kind in _MAINTENANCE_KINDS and commit.operation in MAINTENANCE_OPERATIONS
    return owner == operation_id


def _complete(seen: Observation, kind: WriterKind, schema_version: int) -> bool:
    """True when every planned commit is there, in order, right on top of the version the writer started from."""
    if seen.effect.expected_version != seen.pinned:
        return False
    if kind in _MAINTENANCE_KINDS:
        return True
    if mode_of(kind, schema_version) is Mode.CONFIRMED:
        return seen.effect.confirmed_version == seen.head
    steps = [commit.properties.get(STEP) for commit in seen.drift]
    return steps == [str(step + 1) for step in range(seen.effect.steps)]


def was_undone(observation: Observation, operation_id: OperationId) -> bool:
    """True when a published version of the table is this operation's own restore: it was rolled back and shown."""
    return any(
        commit.version <= observation.pinned and commit.properties.get(COMPENSATES) == operation_id
        for commit in observation.commits
    )
