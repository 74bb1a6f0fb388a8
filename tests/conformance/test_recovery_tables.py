"""The tables of recovery, executed row by row."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.engine.coordination.intent import Effect, WriterKind
from omnigraph.engine.recovery.classify import MODES, Mode, Observation, TableState, classify, mode_of
from omnigraph.engine.recovery.decide import Situation, decide
from omnigraph.engine.storage.transactions import TransactionInfo
from omnigraph.ids import OperationId, TableKey

HERE = Path(__file__).parent
OURS, KIN = OperationId("01OURS"), "01KIN"
KINDS = {
    "strict": (WriterKind.LOAD, 2),
    "loose": (WriterKind.BRANCH_MERGE, 1),
    "confirmed": (WriterKind.BRANCH_MERGE, 2),
}
STATES = {
    "N": TableState.NO_MOVEMENT,
    "R": TableState.ROLLED_PAST_EXPECTED,
    "1": TableState.UNEXPECTED_AT_P1,
    "M": TableState.UNEXPECTED_MULTISTEP,
    "I": TableState.INCOMPLETE_PHASE_B,
    "V": TableState.INVARIANT_VIOLATION,
    "C": TableState.COMPENSATED,
    "F": TableState.FOREIGN_MIXED,
}


def table(name: str) -> list[tuple[str, ...]]:
    lines = [line for line in (HERE / name).read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]


def number(cell: str) -> int | None:
    return None if cell == "-" else int(cell)


@pytest.mark.parametrize("row", table("recovery_classify.txt"), ids=" ".join)
def test_an_effect_is_judged_by_numbers(row: tuple[str, ...]) -> None:
    mode, m, h, e, p, c, expected = row
    kind, version = KINDS[mode]
    effect = Effect(TableKey("node:A"), "nodes/a", int(e), int(p), None, number(c))
    assert mode_of(kind, version) is Mode(mode)
    assert classify(Observation(effect, int(h), int(m)), kind, version, OURS) is TableState(expected)


def commit(token: str, version: int) -> TransactionInfo:
    def ours(**facts: str) -> TransactionInfo:
        return TransactionInfo(version, "u", "Update", {f"omnigraph.{name}": value for name, value in facts.items()})

    if token.startswith("kr"):
        return ours(operation_id=KIN, compensates=KIN, restores=token[2:])
    if token.startswith("s"):
        return ours(operation_id=OURS, step=token[1:])
    if token.startswith("r"):
        return ours(operation_id=OURS, compensates=OURS, restores=token[1:])
    if token == "k":
        return ours(operation_id=KIN, step="1")
    return TransactionInfo(version, "u", {"x": "Append", "w": "Rewrite", "i": "CreateIndex"}[token], {})


@pytest.mark.parametrize("row", table("recovery_identity.txt"), ids=" ".join)
def test_an_effect_is_judged_by_identity(row: tuple[str, ...]) -> None:
    kind, m, e, steps, c, tokens, expected = row
    commits = [commit(token, int(m) + 1 + i) for i, token in enumerate(tokens.split())]
    effect = Effect(TableKey("node:A"), "nodes/a", int(e), int(e) + 1, None, number(c), int(steps))
    seen = Observation(effect, int(m) + len(commits), int(m), commits, frozenset({KIN}))
    assert classify(seen, WriterKind(kind), 3, OURS) is TableState(expected)


@pytest.mark.parametrize("row", table("recovery_decide.txt"), ids=" ".join)
@pytest.mark.parametrize("sweeping", [True, False], ids=["open", "heal"])
def test_a_decision(row: tuple[str, ...], sweeping: bool) -> None:
    letters, text, at_open, at_heal = row
    facts = set(text.split())
    known = {"published": True, "unpublished": False}
    situation = Situation(
        states=[STATES[letter] for letter in letters.split() if letter != "-"],
        branch_exists="no-branch" not in facts,
        advanced="advanced" in facts,
        published=next((value for name, value in known.items() if name in facts), None),
        undone="undone" in facts,
        aborted="aborted" in facts,
        read_set_holds="read-set-changed" not in facts,
        schema_ready="schema-not-ready" not in facts,
        sweeping=sweeping,
        may_restore=sweeping or "may-restore" in facts,
    )
    decision = decide(situation)
    words = [decision.action.value, *([decision.outcome.value] if decision.outcome else [])]
    assert " ".join(words) == (at_open if sweeping else at_heal)


def test_every_writer_kind_has_a_mode() -> None:
    assert set(MODES) == set(WriterKind)
