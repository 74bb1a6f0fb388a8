"""Row versions stay exact while they are few and are rounded to the safe side when they are many."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.storage.people import PEOPLE, SCHEMA, identities, insert, people, update

from omnigraph.engine.storage import folding
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.lance_internals import row_versions
from omnigraph.engine.storage.lance_internals.files import version_file
from omnigraph.engine.storage.lance_internals.row_versions import RUNS_MAX, round_down, round_up
from omnigraph.engine.storage.maintenance import stage_compaction
from omnigraph.engine.storage.tables import TableStore


def _runs(values: np.ndarray) -> int:
    return 1 + int(np.count_nonzero(values[1:] != values[:-1]))


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=600))
@settings(max_examples=60, deadline=None)
def test_rounding_leaves_few_runs_and_errs_on_the_safe_side(values: list[int]) -> None:
    versions = np.array(values, dtype=np.uint64)
    newest = int(versions.max())
    down, up = round_down(versions), round_up(versions, newest)
    assert _runs(down) <= RUNS_MAX
    assert _runs(up) <= RUNS_MAX
    assert (down <= versions).all()
    assert (down >= 1).all()
    assert (up >= versions).all()
    assert (up <= newest).all()
    if _runs(versions) <= RUNS_MAX:
        assert (down == versions).all()
        assert (up == versions).all()


@given(st.lists(st.integers(1, 5000), min_size=300, max_size=500), st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_rounding_again_and_again_does_not_drift(values: list[int], rounds: int) -> None:
    versions = np.array(sorted(values), dtype=np.uint64)
    once = round_up(versions, 5000)
    again = once
    for _ in range(rounds):
        again = round_up(again, 5000)
    assert (again == once).all()
    assert (round_down(round_down(versions)) == round_down(versions)).all()


def test_folds_of_many_writes_round_little_and_keep_versions_small(
    store: TableStore, table: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_versions, "RUNS_MAX", 8)
    expected = {}
    for number in range(150):
        table = insert(store, table, f"p{number}")
        expected[f"p{number}"] = table.version
    table = update(store, table, "p7", "p100", age=5)
    for number in range(folding.FOLD_FRAGMENTS + 1):
        table = insert(store, table, f"q{number}")
    found = identities(table)
    assert table.fragments()[0].physical_rows > 100
    for name, version in expected.items():
        row_id, created, updated = found[name]
        assert row_id == int(name[1:])
        assert version - 64 <= created <= version
        assert updated <= table.version
        assert updated >= (version if name not in ("p7", "p100") else 152)
        if name not in ("p7", "p100"):
            assert updated <= version + 64
    size = (Path(store.root) / PEOPLE / version_file(table.version)).stat().st_size
    assert size < 20_000
    table.dataset.validate()
    staged = stage_compaction(table)
    assert staged is not None
    compacted = store.commit(table, staged, {})
    assert {key: row[0] for key, row in identities(compacted).items()} == {key: row[0] for key, row in found.items()}


def test_a_fragment_with_few_runs_keeps_its_versions_to_the_row(store: TableStore) -> None:
    table = store.create(PEOPLE, SCHEMA, people([f"a{number}" for number in range(300)]))
    for number in range(3):
        table = insert(store, table, *[f"b{number}-{i}" for i in range(100)])
    table = update(store, table, "a5", "b1-50", age=9)
    before = identities(table)
    staged = stage_compaction(table)
    assert staged is not None
    assert identities(store.commit(table, staged, {})) == before
