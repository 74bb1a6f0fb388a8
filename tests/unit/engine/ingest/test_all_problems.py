"""Asked for every problem, a file tells every problem, whatever its format, and however many there are."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.ingest import files, shape
from omnigraph.engine.ingest.shape import Feed

CATALOG = compile_schema("node P { k: I64 @key  born: Date?  e: enum(a, b)?  n: I32 @range(n, 0..10) }")
ROWS = 1_000


def _rows() -> list[dict[str, object]]:
    """Every fourth row has a date that is none, the next one breaks the range, the next one the enum."""
    return [
        {
            "k": row,
            "born": "1999-99-99" if row % 4 == 0 else "1999-09-09",
            "e": "z" if row % 4 == 2 else "a",
            "n": 99 if row % 4 == 1 else row % 10,
        }
        for row in range(ROWS)
    ]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_every_problem_of_a_file_is_told(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"p.{kind}"
    table = pa.Table.from_pylist(_rows())
    if kind == "jsonl":
        path.write_text("".join(json.dumps({"type": "P", "data": row}) + "\n" for row in _rows()))
    elif kind == "csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    told: dict[str, list[int]] = {}
    (file,) = files.find_files(path)
    for piece in files.cut(file):
        feed = Feed(piece, None if kind == "jsonl" else "node:P")
        for shaped in shape.shape_feed(feed, CATALOG, thorough=True):
            for problem in shaped.problems:
                told.setdefault(problem.message, []).append(problem.record)
    assert told == {
        "P.born: '1999-99-99' is not a Date (YYYY-MM-DD)": list(range(1, ROWS + 1, 4)),
        "@range violation: P.n 99 is not within 0..10": list(range(2, ROWS + 1, 4)),
        "enum violation: P.e 'z' is not one of a, b": list(range(3, ROWS + 1, 4)),
    }
