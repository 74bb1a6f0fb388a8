"""A shorter proof that the rules across rows hold, where the ids to compare fit into memory.

Joins answer at any size but cost a shuffle. Where the ids of the node types involved fit into memory, streaming the
staged columns past them proves the same in a fraction of the time. Only "it holds" counts here: whatever cannot be
proved, because it is too large, too involved or not true, is left to the joins, which also find out who is to blame.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.engine.storage.fragments import read_fragment
from omnigraph.ids import TableKey, node_key
from omnigraph.pipeline.check import Staged, unique_groups
from omnigraph.pipeline.frames import TableAt
from omnigraph.pipeline.stage import StagedFragment

IDS_MAX = 8_000_000
"""Ids held in memory at once; some hundred megabytes."""
GROUP_ROWS = 4_000_000
ROWS_MAX = 60_000_000
"""Rows streamed past them; beyond that a cluster does it sooner."""


class QuickChecks:
    """Proofs about one load on one snapshot."""

    def __init__(
        self,
        catalog: Catalog,
        staged: Mapping[TableKey, Staged],
        committed: Mapping[TableKey, tuple[TableAt, int]],
        mode: str,
    ) -> None:
        self._catalog = catalog
        self._staged = staged
        self._committed = committed
        self._mode = mode
        self._ids: dict[TableKey, pa.Array] = {}
        self.read: set[TableKey] = set()
        """Tables of the snapshot a proof depends on."""

    def holds(self, kind: str) -> bool:
        """True when a kind of rules certainly holds."""
        proofs: dict[str, Callable[[Staged], bool]] = {
            "uniqueness": self._unique,
            "references": self._referenced,
            "cardinality": self._counted,
        }
        return all(proofs[kind](staged) for staged in self._staged.values())

    def has_distinct_ids(self, staged: Staged) -> bool:
        """True when no id certainly comes twice."""
        if not staged.ids_given:
            return True
        ids = self._pending_ids(staged) if staged.rows <= IDS_MAX else None
        return ids is not None and bool(pc.count_distinct(ids).as_py() == len(ids))

    # --- uniqueness --------------------------------------------------------------------------------------------------

    def _unique(self, staged: Staged) -> bool:
        if not staged.rows:
            return True
        groups = unique_groups(staged.entity)
        if staged.ids_given and not self._ids_fit(staged):
            return False
        if staged.ids_given and (staged.keyed or self._mode != "merge"):
            ids = self._pending_ids(staged)
            if pc.count_distinct(ids).as_py() < len(ids):
                return False
            if self._mode == "append" and staged.committed_rows and self._any_known(ids, staged):
                return False
        return all(self._distinct(staged, group) for group in groups)

    def _any_known(self, ids: pa.Array, staged: Staged) -> bool:
        known = self._committed_ids(staged.entity.table_key)
        return bool(pc.any(pc.is_in(ids, value_set=known)).as_py())

    def _distinct(self, staged: Staged, group: tuple[str, ...]) -> bool:
        """One column without repeats, and nothing committed to compare it with."""
        if len(group) != 1 or staged.rows > IDS_MAX or (staged.committed_rows and self._mode != "overwrite"):
            return False
        values = pa.chunked_array(list(self._columns(staged, group)))
        return bool(pc.count_distinct(values).as_py() == len(values) - values.null_count)

    # --- references --------------------------------------------------------------------------------------------------

    def _referenced(self, staged: Staged) -> bool:
        edge = staged.entity
        if not isinstance(edge, EdgeType):
            return self._mode != "overwrite" or not self._keeps_edges(staged)
        if not staged.rows:
            return True
        if staged.rows > ROWS_MAX or not all(self._nodes_fit(name) for name in {edge.source, edge.target}):
            return False
        ends = [("src", self._nodes(edge.source)), ("dst", self._nodes(edge.target))]
        return all(_in_threads(lambda group: _all_known(staged, group, ends), _groups(staged.fragments)))

    def _keeps_edges(self, staged: Staged) -> bool:
        """Whether edges stay that may need nodes of a replaced table."""
        touching = self._catalog.edges_touching(staged.entity.name)
        return any(edge.table_key not in self._staged and self._committed[edge.table_key][1] for edge in touching)

    def _nodes_fit(self, type_name: str) -> bool:
        key = node_key(type_name)
        staged = self._staged.get(key)
        return (staged.rows if staged else 0) + self._committed[key][1] <= IDS_MAX

    def _nodes(self, type_name: str) -> pa.Array:
        """The ids of a node type once the load is done."""
        key = node_key(type_name)
        staged = self._staged.get(key)
        parts = [] if staged is None else [self._pending_ids(staged)]
        if staged is None or self._mode != "overwrite":
            parts.append(self._committed_ids(key))
        return pa.concat_arrays(
            [part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part for part in parts]
        )

    # --- cardinality -------------------------------------------------------------------------------------------------

    def _counted(self, staged: Staged) -> bool:
        edge = staged.entity
        if not isinstance(edge, EdgeType) or edge.cardinality.is_default or not staged.rows:
            return True
        may_lose_rows = self._mode == "merge" and staged.ids_given
        if may_lose_rows or staged.rows > IDS_MAX or (staged.committed_rows and self._mode != "overwrite"):
            return False
        counts = pc.value_counts(pa.chunked_array(list(self._columns(staged, ("src",))))).field("counts")
        low, high = edge.cardinality.low, edge.cardinality.high
        least, most = pc.min_max(counts).as_py().values()
        return bool(least >= low and (high is None or most <= high))

    # --- columns -----------------------------------------------------------------------------------------------------

    def _ids_fit(self, staged: Staged) -> bool:
        return staged.rows + (0 if self._mode == "overwrite" else staged.committed_rows) <= IDS_MAX

    def _pending_ids(self, staged: Staged) -> pa.ChunkedArray:
        return pa.chunked_array(list(self._columns(staged, ("id",))), pa.string())

    def _committed_ids(self, key: TableKey) -> pa.Array:
        if key not in self._ids:
            table, rows = self._committed[key]
            self.read.add(key)
            found = table.open().scan(["id"])["id"].combine_chunks() if rows else pa.array([], pa.string())
            self._ids[key] = found
        return self._ids[key]

    @staticmethod
    def _columns(staged: Staged, columns: Sequence[str]) -> Iterator[pa.Array]:
        for fragment in staged.fragments:
            for batch in read_fragment(staged.target.uri, fragment.text, columns):
                yield batch.column(0)


def _all_known(staged: Staged, group: Sequence[StagedFragment], ends: Sequence[tuple[str, pa.Array]]) -> bool:
    """Whether every end of the edges of some fragments is among the ids for it."""
    columns = [name for name, _ in ends]
    rows = pa.Table.from_batches(
        [batch for each in group for batch in read_fragment(staged.target.uri, each.text, columns)]
    )
    return all(bool(pc.all(pc.is_in(rows[name], value_set=known)).as_py()) for name, known in ends)


def _groups(fragments: Sequence[StagedFragment]) -> list[list[StagedFragment]]:
    """Fragments gathered by rows: every lookup builds the table of ids anew, so few large ones cost least."""
    groups: list[list[StagedFragment]] = []
    filled = GROUP_ROWS
    for fragment in fragments:
        if filled + fragment.rows > GROUP_ROWS:
            groups.append([])
            filled = 0
        groups[-1].append(fragment)
        filled += fragment.rows
    return groups


def _in_threads(act: Callable[[list[StagedFragment]], bool], groups: Sequence[list[StagedFragment]]) -> Iterator[bool]:
    """Arrow and Lance leave the interpreter while they work, so threads use every core."""
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        yield from pool.map(act, groups)
