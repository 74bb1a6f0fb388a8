"""A load that updates changes what it gives and nothing else: every type, every way in, a few rows of many columns."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.property import doors

from omnigraph import create

ROWS = 60
NAMES = [name for name in doors.COLUMNS if name != "key"]


def changes(draw: random.Random, *, by_row: bool) -> tuple[list[doors.Row], list[doors.Row], list[doors.Row]]:
    """Rows, records that change some columns of some of them, and the rows afterwards."""
    before, drawn = doors.random_rows(ROWS, seed=draw.randrange(100)), doors.random_rows(ROWS, seed=draw.randrange(100))
    columns = draw.sample(NAMES, draw.randint(1, len(NAMES)))
    patches, after = [], []
    for old, new in zip(before, drawn, strict=True):
        if draw.random() < 0.3:
            after.append(old)
            continue
        given = [name for name in columns if not by_row or draw.random() < 0.5]
        patch = {"key": old["key"], **{name: new[name] for name in given}}
        patches.append(patch)
        after.append({**old, **patch})
    draw.shuffle(patches)
    return before, patches, after


def source_of(door: str, patches: list[doors.Row], folder: Path, draw: random.Random) -> Any:
    """The records as a load takes them; tables have the columns of the first."""
    if door == "records":
        return [{"type": "Thing", "data": patch} for patch in patches]
    if door == "json lines":
        lines = [{name: doors.json_value(value, draw) for name, value in patch.items()} for patch in patches]
        text = "\n".join(json.dumps({"type": "Thing", "data": data}) for data in lines)
        (folder / "rows.jsonl").write_text(text)
        return folder / "rows.jsonl"
    whole = [{**dict.fromkeys(doors.COLUMNS), **patch} for patch in patches]
    table = doors.arrow_table(whole, draw).select(list(patches[0]))
    if door == "arrow":
        return {"Thing": table}
    pq.write_table(table, folder / "rows.parquet", row_group_size=7)
    return {"Thing": str(folder / "rows.parquet")}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("door", ["records", "json lines", "arrow", "parquet"])
def test_what_is_given_changes_and_the_rest_stays(door: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{door} {seed}")
    before, patches, after = changes(draw, by_row=door in ("records", "json lines"))
    graph = create(tmp_path / "graph", doors.SCHEMA)
    doors.LOADS["arrow"](graph, before, tmp_path, draw)
    graph.load(source_of(door, patches, tmp_path, draw), mode="update", engine="local")
    doors.check_same(graph.query(doors.READ).to_arrow().to_pylist(), after)
