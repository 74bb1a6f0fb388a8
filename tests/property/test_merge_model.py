"""Random histories with merges in every direction, against a graph of plain dictionaries with a brute-force merge."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.amounts import EXHAUSTIVE, always_first
from tests.merge_workers import InProcess
from tests.property.merge_programs import OFTEN, SELDOM, run

from omnigraph.engine.changes import rows as changed_rows
from omnigraph.engine.operations import forget
from omnigraph.engine.operations.merge import compose, decided, stage, writing
from omnigraph.engine.operations.merge import workers as elsewhere
from omnigraph.engine.storage import adopting, folding
from omnigraph.engine.storage.lance_internals import row_versions


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folding, rounding of versions and comparing in pieces happen with a handful of rows; no state is too young."""
    monkeypatch.setattr(folding, "FOLD_FRAGMENTS", 4)
    monkeypatch.setattr(folding, "FOLD_RUN", 2)
    monkeypatch.setattr(row_versions, "RUNS_MAX", 3)
    monkeypatch.setattr(changed_rows, "COMPARED_ROWS", 3)
    monkeypatch.setattr(compose, "COMPOSED_ROWS", 2)
    monkeypatch.setattr(decided, "DESCRIBED_AT_ONCE", 2)
    monkeypatch.setattr(stage, "CHUNK_ROWS_MAX", 2)
    monkeypatch.setattr(adopting, "APPENDED_ROWS_MIN", 1)
    monkeypatch.setattr(elsewhere, "GROUP_ROWS", 2)
    monkeypatch.setattr(elsewhere, "READ_ROWS", 3)
    monkeypatch.setattr(writing, "TASK_BYTES", 1)
    monkeypatch.setattr(forget, "YOUNG", timedelta(0))


@pytest.mark.long
@pytest.mark.usefixtures("lowered")
@pytest.mark.parametrize("part", always_first(1, range(5)))
def test_merging_does_what_the_model_does(tmp_path: Path, part: int) -> None:
    total = run(tmp_path, range(part * 20, part * 20 + 20), 12)
    assert min(total[name] for name in OFTEN) > 0, total


@pytest.mark.long
@pytest.mark.usefixtures("lowered")
def test_workers_merge_as_the_model_does(tmp_path: Path) -> None:
    workers = InProcess()
    total = run(tmp_path, range(100, 110), 12, workers)
    assert min(total[name] for name in ("merged", "conflicts", "adopted", "rewritten")) > 0, total
    assert workers.groups > 100
    assert {"decide", "write", "delete"} <= workers.acts


@EXHAUSTIVE
@pytest.mark.usefixtures("lowered")
def test_workers_merge_as_the_model_does_for_long(tmp_path: Path, thorough: bool) -> None:
    total = run(tmp_path, range(2_000, 2_020 if thorough else 2_006), 60, InProcess())
    assert min(total[name] for name in (*OFTEN, *SELDOM) if thorough or name in OFTEN) > 0, total


@EXHAUSTIVE
@pytest.mark.usefixtures("lowered")
def test_merging_does_what_the_model_does_for_long(tmp_path: Path, thorough: bool) -> None:
    total = run(tmp_path, range(1_000, 3_000 if thorough else 1_006), 60)
    assert min(total[name] for name in (*OFTEN, *SELDOM) if thorough or name in OFTEN) > 0, total
