"""A shorter proof that the rules across rows hold, where the ids to compare fit into memory.

Joins answer at any size but cost a shuffle. Where the ids of the node types involved fit into memory, streaming the
staged columns past them proves the same in a fraction of the time. Only "it holds" counts here: whatever cannot be
proved, because it is too large, too involved or not true, is left to the joins, which also find out who is to blame.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import wide, zeros
from omnigraph.engine.ingest.stage import StagedFragment
from omnigraph.engine.ingest.staged import Staged, StagedLoad, StagedQuestions
from omnigraph.engine.rules.questions import NONE, Answers, Questions
from omnigraph.engine.rules.statement import Answer, Degree, End, Identity, Unique
from omnigraph.engine.storage.fragments import read_fragment
from omnigraph.engine.storage.packing import packs
from omnigraph.ids import TableKey, node_key

IDS_MAX = 8_000_000
"""Ids held in memory at once; some hundred megabytes."""
GROUP_ROWS = 4_000_000
ROWS_MAX = 60_000_000
"""Rows streamed past them; beyond that a cluster does it sooner."""


class QuickQuestions(StagedQuestions):
    """The questions about one load: a proof where there is one, and otherwise what the joins say."""

    def __init__(self, load: StagedLoad, joins: Questions) -> None:
        super().__init__(load, joins)
        self._ids: dict[TableKey, pa.Array] = {}
        self.read: set[TableKey] = set()
        """Tables of the snapshot a proof depends on."""

    def repeated(self, rule: Unique) -> Answers:
        """One column without repeats, and nothing committed to compare it with."""
        staged = self.load.staged[rule.entity.table_key]
        if isinstance(rule, Identity):
            is_proved = self.has_distinct_ids(staged)
        else:
            is_single = len(rule.columns) == 1 and not self.load.stays(rule.entity.table_key)
            is_proved = is_single and self._is_distinct(staged, rule.columns)
        return NONE if is_proved else super().repeated(rule)

    def has_distinct_ids(self, staged: Staged) -> bool:
        """True when no id certainly comes twice."""
        return not staged.ids_given or self._is_distinct(staged, ("id",))

    def _is_distinct(self, staged: Staged, columns: Sequence[str]) -> bool:
        if staged.rows > IDS_MAX:
            return False
        values = zeros.one_zero(_column(staged, columns))
        return bool(pc.count_distinct(values).as_py() == len(values) - values.null_count)

    def taken(self, rule: Identity) -> Answer | None:
        """No id is among those that are there."""
        key = rule.entity.table_key
        staged = self.load.staged[key]
        if self.load.mode == "append" and staged.ids_given and staged.rows + staged.committed_rows <= IDS_MAX:
            known = pc.is_in(_column(staged, ("id",)), value_set=self._committed_ids(key))
            if not pc.any(known).as_py():
                return None
        return super().taken(rule)

    def missing(self, ends: Sequence[End]) -> Answers:
        """Every end is among the ids of its node type."""
        staged = self.load.staged[ends[0].edge.table_key]
        if staged.rows > ROWS_MAX or not all(self._nodes_fit(end.node_type) for end in ends):
            return super().missing(ends)
        nodes = [(end.column, self._nodes(end.node_type)) for end in ends]
        # Every lookup builds the table of ids anew, so few large groups cost least.
        groups = packs(staged.fragments, lambda fragment: fragment.rows, GROUP_ROWS)
        is_proved = all(_in_threads(lambda group: _all_known(staged, group, nodes), groups))
        return NONE if is_proved else super().missing(ends)

    def _nodes_fit(self, type_name: str) -> bool:
        key = node_key(type_name)
        return self.load.staged_rows(key) + self.load.committed[key][1] <= IDS_MAX

    def _nodes(self, type_name: str) -> pa.Array:
        """The ids of a node type once the load is done."""
        key = node_key(type_name)
        staged = self.load.staged.get(key)
        parts = [] if staged is None else [_column(staged, ("id",))]
        if staged is None or self.load.mode != "overwrite":
            parts.append(self._committed_ids(key))
        return wide.concat([wide.one_array(part) for part in parts])

    def miscounted(self, rule: Degree) -> Answers:
        """Counts what comes in, where nothing stays and no record replaces another."""
        key = rule.edge.table_key
        staged = self.load.staged[key]
        may_lose_rows = self.load.replaces and staged.ids_given
        if not (may_lose_rows or staged.rows > IDS_MAX or self.load.stays(key)):
            counts = pc.value_counts(_column(staged, ("src",))).field("counts")
            if not rule.is_broken(counts.to_numpy(zero_copy_only=False)).any():
                return NONE
        return super().miscounted(rule)

    def _committed_ids(self, key: TableKey) -> pa.Array:
        if key not in self._ids:
            table, rows = self.load.committed[key]
            self.read.add(key)
            found = wide.one_array(table.open().scan(["id"])["id"]) if rows else pa.array([], pa.string())
            self._ids[key] = found
        return self._ids[key]


def _column(staged: Staged, columns: Sequence[str]) -> pa.ChunkedArray:
    parts = (read_fragment(staged.target.uri, fragment.text, columns) for fragment in staged.fragments)
    field = staged.target.schema.field(columns[0])
    return pa.chunked_array([batch.column(0) for batches in parts for batch in batches], field.type)


def _all_known(staged: Staged, group: Sequence[StagedFragment], ends: Sequence[tuple[str, pa.Array]]) -> bool:
    """Whether every end of the edges of some fragments is among the ids for it."""
    columns = [name for name, _ in ends]
    rows = pa.Table.from_batches(
        [batch for each in group for batch in read_fragment(staged.target.uri, each.text, columns)]
    )
    return all(bool(pc.all(pc.is_in(rows[name], value_set=known)).as_py()) for name, known in ends)


def _in_threads(act: Callable[[list[StagedFragment]], bool], groups: Sequence[list[StagedFragment]]) -> Iterator[bool]:
    """Arrow and Lance leave the interpreter while they work, so threads use every core."""
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        yield from pool.map(act, groups)
