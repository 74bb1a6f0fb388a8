"""One bad line among a million is found and named, and nothing of the rest becomes visible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph import create
from omnigraph.errors import ConstraintError
from omnigraph.pipeline import run_job

pytestmark = [pytest.mark.spark, pytest.mark.long]

LINES = 1_000_000
BROKEN = 734_112


def test_a_broken_line_in_a_million_is_named_by_its_number(disk_path: Path, spark: Any) -> None:
    graph = create(disk_path / "graph", "node Person { name: String @key  age: I32? }")
    before = graph.snapshot().version
    lines = [f'{{"type":"Person","data":{{"name":"p{number}"}}}}' for number in range(1, LINES + 1)]
    lines[BROKEN - 1] = '{"type":"Person","data":{"name":"p", "age": 1'
    path = disk_path / "million.jsonl"
    path.write_text("\n".join(lines))
    expected = rf"million\.jsonl: record {BROKEN} \(line {BROKEN}\): not JSON"
    with pytest.raises(ConstraintError, match=expected):
        run_job(graph.context, path, mode="append", spark=spark)

    lines[BROKEN - 1] = lines[0]
    path.write_text("\n".join(lines))
    with pytest.raises(ConstraintError, match=rf"record {BROKEN} \(line {BROKEN}\): @unique violation.*'p1' twice"):
        run_job(graph.context, path, mode="append", spark=spark)
    assert graph.snapshot().version == before
    assert not list(Path(graph.uri).glob("*/*/data/*"))

    path.write_text("\n".join([*lines[: BROKEN - 1], *lines[BROKEN:]]))
    assert run_job(graph.context, path, mode="append", spark=spark).rows == {"node:Person": LINES - 1}
