"""Every value that a column can hold is found by a filter that spells it, with an index and without one."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.engine.storage.literals import literal

VALUES = [
    (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    (pa.int64(), [-(2**63), -(2**63) + 1, -1, 2**53 + 1, 2**63 - 1]),
    (pa.uint32(), [0, 2**31, 2**32 - 1]),
    (pa.uint64(), [0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]),
    (pa.string(), ["", "it's", "''", 'a"b', "a\\b", "%", "_", "`", "--", "é\n", "\0", "\U0001f600", "1", "NULL"]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_a_filter_finds_the_value_it_spells(tmp_path: Path, kind: pa.DataType, values: list[str | int]) -> None:
    dataset = lance.write_dataset(pa.table({"v": pa.array(values, kind)}), tmp_path / "t.lance")
    for indexed in (False, True):
        if indexed:
            dataset.create_scalar_index("v", "BTREE")
        for value in values:
            assert dataset.to_table(filter=f"`v` = {literal(value)}")["v"].to_pylist() == [value]
        several = ", ".join(map(literal, values))
        assert dataset.count_rows(f"`v` IN ({several})") == len(values)
