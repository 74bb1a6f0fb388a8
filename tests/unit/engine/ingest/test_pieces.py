"""An Arrow table is converted in pieces that are bounded in bytes and not too small to be written quickly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.ingest import inputs
from omnigraph.engine.ingest.inputs import read_input
from omnigraph.errors import ConstraintError

CATALOG = compile_schema("node N { k: I64 @key }  edge E: N -> N")
ROWS = 100_000


def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read, found = inputs._read_piece, []

    def noted(*given: object) -> object:
        found.append(given[2].num_rows)  # type: ignore[attr-defined]
        return read(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(inputs, "_read_piece", noted)
        rows = read_input({"N": pa.table({"k": pa.array(np.arange(ROWS))})}, CATALOG)
    assert rows.tables["node:N"].num_rows == ROWS
    return found


def test_narrow_rows_are_one_piece_and_wide_ones_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pieces(monkeypatch) == [ROWS]
    monkeypatch.setattr(inputs, "BYTES_AT_ONCE", 8 * 40_000)
    assert pieces(monkeypatch) == [40_000, 40_000, 20_000]
    monkeypatch.setattr(inputs, "BYTES_AT_ONCE", 8)
    assert pieces(monkeypatch) == [32_768, 32_768, 32_768, 1_696]


def test_an_edge_without_an_end_is_named_by_its_place_in_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BYTES_AT_ONCE", 8)
    ends = np.arange(ROWS)
    edges = pa.table({"from": pa.array(ends), "to": pa.array(ends, mask=ends == 70_000)})
    with pytest.raises(ConstraintError, match=r"^record 70001: E: the column 'to' must not hold nulls$"):
        read_input({"E": edges}, CATALOG)
