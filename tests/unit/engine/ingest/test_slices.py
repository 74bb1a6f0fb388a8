"""Slices and Arrow in memory answer the same questions alike, whatever the size of a slice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.ingest import slices
from omnigraph.engine.ingest.slices import SlicedQuestions
from omnigraph.engine.ingest.stage import StagedFragment, Target
from omnigraph.engine.ingest.staged import POSITION, ROW_ADDRESS, Staged, StagedLoad, StagedQuestions
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.rules.arrow import ArrowQuestions, TableChange
from omnigraph.engine.rules.questions import ACROSS_ROWS, Findings, broken
from omnigraph.engine.rules.statement import NOWHERE
from omnigraph.engine.values.entities import Entity
from omnigraph.ids import TableKey

CATALOG = compile_schema(
    "node Person { name: String @key  size: I64?  mark: String?  @unique(size, mark) }\n"
    "edge Knows: Person -> Person @card(1..2) { since: I64? @unique }\n"
)
PERSON, KNOWS = CATALOG.tables[TableKey("node:Person")], CATALOG.tables[TableKey("edge:Knows")]


class InMemory(SlicedQuestions):
    """Slices of tables that are held here instead of on a disk."""

    def __init__(self, load: StagedLoad, incoming: pa.Table, committed: dict[TableKey, pa.Table]) -> None:
        super().__init__(load)
        self._incoming_rows, self._committed_rows = incoming, committed

    def _pending(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        rows = self._incoming_rows.select(list(columns))
        yield rows.append_column(POSITION, pa.array(np.arange(rows.num_rows)))

    def _published(self, key: TableKey, columns: Sequence[str]) -> Iterator[pa.Table]:
        rows = self._committed_rows[key].select(list(columns))
        yield rows.append_column(ROW_ADDRESS, pa.array(np.arange(rows.num_rows)))

    def _id_at(self, position: int) -> str:
        return str(self._incoming_rows["id"][position].as_py())


class Tables:
    """A `CommittedView` of tables in memory."""

    def __init__(self, tables: dict[TableKey, pa.Table]) -> None:
        self._tables = tables

    def contains(self, table_key: TableKey, ids: pa.Array) -> pa.Array:
        return pc.is_in(ids, value_set=self._tables[table_key]["id"].combine_chunks())

    def rows_where_in(self, table_key: TableKey, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        rows = self._tables[table_key]
        return rows.filter(pc.is_in(rows[column], value_set=values, skip_nulls=True)).select(list(columns))

    def all_rows(self, table_key: TableKey, columns: Sequence[str]) -> pa.Table:
        return self._tables[table_key].select(list(columns))


def people(ids: Sequence[str], chance: random.Random) -> pa.Table:
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.string()),
        "size": pa.array([chance.choice([None, 1, 2, 3]) for _ in ids], pa.int64()),
        "mark": pa.array([chance.choice([None, "a", "b", "c"]) for _ in ids], pa.string()),
    }
    return pa.table(columns)


def edges(ids: Sequence[str], nodes: Sequence[str], chance: random.Random) -> pa.Table:
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.string()),
        "src": pa.array([chance.choice(nodes) for _ in ids], pa.string()),
        "dst": pa.array([chance.choice(nodes) for _ in ids], pa.string()),
        "since": pa.array([chance.choice([None, *range(12)]) for _ in ids], pa.int64()),
    }
    return pa.table(columns)


def found_by_slices(
    entity: Entity, mode: str, incoming: pa.Table, committed: dict[TableKey, pa.Table]
) -> list[Findings]:
    key = entity.table_key
    fragment = StagedFragment("", incoming.num_rows, 0, (), supplied_ids=True)
    at = {each: (TableAt("", each, None, 1), rows.num_rows) for each, rows in committed.items()}
    staged = Staged(entity, Target("", incoming.schema), (fragment,), *at[key])
    load = StagedLoad({key: staged}, at, mode)
    asked = StagedQuestions(load, InMemory(load, incoming, committed))
    return [broken(kind, CATALOG, asked) for kind in ACROSS_ROWS]


def found_in_memory(
    entity: Entity, mode: str, incoming: pa.Table, committed: dict[TableKey, pa.Table]
) -> list[Findings]:
    key = entity.table_key
    own = committed[key]
    replaced = own.filter(pc.is_in(own["id"], value_set=incoming["id"].combine_chunks()))
    change = TableChange(entity, incoming, replaces_table=mode == "overwrite")
    if mode == "merge" and "src" in own.column_names:
        change.removed_sources = replaced["src"].combine_chunks()
    asked = ArrowQuestions({key: change}, Tables(committed))
    return [broken(kind, CATALOG, asked) for kind in ACROSS_ROWS]


def told(findings: Findings) -> list[tuple[int, str]]:
    return sorted((each.position, each.message) for each in findings.shown)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("rows", [2, 1_000_000])
@pytest.mark.parametrize("entity", [PERSON, KNOWS], ids=["nodes", "edges"])
def test_slices_find_what_arrow_finds(entity: Entity, rows: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_ROWS", rows)
    for seed in range(12):
        chance = random.Random(seed)
        names = [f"n{number}" for number in range(8)]
        committed = {
            PERSON.table_key: people(names[:6], chance),
            KNOWS.table_key: edges([f"e{number}" for number in range(6)], names[:6], chance),
        }
        # Ids that come in twice are told by slices alone, so here each comes once; some are there already.
        fresh = chance.sample(range(4 if mode == "merge" else 6, 14), 6)
        if entity is PERSON:
            incoming = people([f"n{number}" for number in fresh], chance)
        else:
            incoming = edges([f"e{number}" for number in fresh], names[:7], chance)
        by_slices = found_by_slices(entity, mode, incoming, committed)
        in_memory = found_in_memory(entity, mode, incoming, committed)
        for sliced, plain in zip(by_slices, in_memory, strict=True):
            # An edge that misses both of its nodes is told once by slices, and once for each end in memory.
            seen = {position for position, text in told(sliced) if "not found in" in text and "dst" not in text}
            wanted = [each for each in told(plain) if not (": dst " in each[1] and each[0] in seen)]
            assert told(sliced) == wanted, (seed, mode)


def test_a_source_that_only_loses_edges_is_found_and_no_row_is_blamed() -> None:
    committed = {
        PERSON.table_key: people(["a", "b"], random.Random(0)),
        KNOWS.table_key: pa.table({"id": ["e"], "src": ["a"], "dst": ["b"], "since": pa.array([None], pa.int64())}),
    }
    moved = pa.table({"id": ["e"], "src": ["b"], "dst": ["b"], "since": pa.array([None], pa.int64())})
    *_, cardinality = found_by_slices(KNOWS, "merge", moved, committed)
    assert told(cardinality) == [(NOWHERE, "@card violation: Person 'a' has 0 Knows edges, outside @card(1..2)")]


def test_rules_are_tried_until_an_id_is_taken() -> None:
    committed = {PERSON.table_key: people(["a"], random.Random(0)), KNOWS.table_key: edges([], ["a"], random.Random(0))}
    incoming = people(["b", "a"], random.Random(0))
    first, *_ = found_by_slices(PERSON, "append", incoming, committed)
    assert first.conflict is not None
    assert (first.conflict.row_id, first.conflict.position) == ("a", 1)
