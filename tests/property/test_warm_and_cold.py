"""Long-lived readers, lagging ones, fresh processes and a plain reading of the same data give the same answers.

The thresholds of derived state are lowered by one switch, so that graphs of some ten rows take all its ways; a second
set of programs runs at the sizes where the real thresholds are. A failure names its seed: `run` with it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.amounts import EXHAUSTIVE_FIRST, always_first
from tests.property.differential.large import LargeMachine
from tests.property.differential.machine import Counts, Machine
from tests.property.differential.witnesses import Child, forget_everything

from omnigraph.testing.thresholds import lowered_thresholds

STEPS = 120
PROGRAMS = 2
"""Programs of one test."""


@pytest.fixture
def small() -> Iterator[None]:
    """All thresholds lowered, here and in the processes of the machine."""
    with lowered_thresholds():
        forget_everything()
        yield
    forget_everything()


@pytest.fixture
def counts(record_property: Callable[[str, object], None]) -> Iterator[Counts]:
    """What was done and compared, kept with the report of the test."""
    made = Counts()
    yield made
    record_property("differential machine", list(made.told().items()))


def run(root: Path, seed: int, counts: Counts, *, steps: int = STEPS, size: int = 0, edges: int = 0) -> None:
    """One program on one graph."""
    path = root / f"graph{seed}"
    children = [Child(str(path), lowered=not size) for _ in range(2)]
    try:
        Machine(path, seed, children, counts=counts, size=size, edges=edges).run(steps)
    finally:
        for child in children:
            child.close()


@pytest.mark.long
@pytest.mark.parametrize("block", always_first(1, range(6)))
def test_all_readers_agree_after_every_step(tmp_path: Path, small: None, counts: Counts, block: int) -> None:
    for seed in range(block * PROGRAMS, (block + 1) * PROGRAMS):
        run(tmp_path, seed, counts)
    assert counts.comparisons.total() > counts.steps.total() >= PROGRAMS * STEPS


@EXHAUSTIVE_FIRST
def test_all_readers_agree_in_long_programs(tmp_path: Path, small: None, counts: Counts, program: int) -> None:
    """As many programs as `--programs` says, each with another seed; `make soak` runs hundreds."""
    run(tmp_path, 10_000 + program, counts, steps=300)


@pytest.mark.long
@pytest.mark.parametrize("size", [505, 511, 2045])
def test_all_readers_agree_where_small_tables_become_large(tmp_path: Path, counts: Counts, size: int) -> None:
    run(tmp_path, size, counts, steps=20, size=size, edges=size * 2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "edges"),
    always_first(3, [(512, 600), (513, 5_000), (2_048, 4_000), (2_049, 9_000), (4_095, 4_096), (20_001, 60_000)]),
)
def test_all_readers_agree_across_the_real_thresholds(tmp_path: Path, counts: Counts, size: int, edges: int) -> None:
    run(tmp_path, size + edges, counts, steps=20, size=size, edges=edges)


@pytest.mark.long
@pytest.mark.parametrize(("people", "edges"), always_first(1, [(5_000, 200_020), (20_000, 199_990), (199_999, 30_000)]))
def test_all_readers_agree_where_tables_are_kept_on_disk(
    tmp_path: Path, counts: Counts, people: int, edges: int
) -> None:
    """On both sides of 200,000 rows, where adjacency is left for the next process and single rows are fetched."""
    children = [Child(str(tmp_path / "graph"), lowered=False) for _ in range(2)]
    try:
        machine = LargeMachine(tmp_path / "graph", people + edges, children, counts, people, edges)
        machine.run(20)
        assert min(machine.sides[False], machine.sides[True]) > 3
    finally:
        for child in children:
            child.close()
