"""The set questions answered in memory: rows of a write as Arrow, what is committed through a `CommittedView`.

Only what the write touches is looked at, so the cost is that of the write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog import wide, zeros
from omnigraph.engine.rules.questions import NONE, SHOWN_MAX, Answers
from omnigraph.engine.rules.statement import NOWHERE, Answer, Degree, End, Identity, Unique
from omnigraph.engine.values.entities import Entity
from omnigraph.ids import TableKey, node_key

NO_IDS: pa.Array = pa.array([], pa.string())

Rows = npt.NDArray[np.int64]
FEW_PAIRS = 64
"""Up to so many comparisons are made one by one."""
ASKED_ONCE_ROWS = 64
"""From so many edges on the nodes at both ends are asked for together, each once."""
SAMPLE_ROWS = 64
"""Of so many edges it is seen whether they join nodes that come with them."""


class CommittedView(Protocol):
    """What was published before the write began, asked only for what the write touches."""

    def contains(self, table_key: TableKey, ids: pa.Array) -> pa.Array:
        """For each id, whether the table has it."""

    def rows_where_in(self, table_key: TableKey, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows whose `column` is one of `values`."""

    def all_rows(self, table_key: TableKey, columns: Sequence[str]) -> pa.Table:
        """Every row; asked only when a write replaces a whole table."""


class TableChange(Struct):
    """What a write does to one table.

    `rows` are final images, one per id. `replaces_table` means that nothing committed survives. `taken` marks the rows
    whose id a committed entity has although it must be new; None where that is allowed. `removed` are committed ids
    that go away without a new image, and `removed_sources` the sources of removed or replaced edges; `edges_follow`
    says that the edges of removed nodes are among the removed.
    """

    entity: Entity
    rows: pa.Table
    replaces_table: bool = False
    values_checked: bool = False
    edges_follow: bool = False
    taken: npt.NDArray[np.bool_] | None = None
    removed: pa.Array = field(default_factory=lambda: NO_IDS)
    removed_sources: pa.Array = field(default_factory=lambda: NO_IDS)

    @property
    def ids(self) -> pa.Array:
        """The ids of the final images."""
        return wide.one_array(self.rows.column("id"))

    @property
    def superseded(self) -> pa.Array:
        """The committed ids whose rows do not stay as they are."""
        return wide.concat([self.ids, self.removed])


ChangeSet = Mapping[TableKey, TableChange]


class ArrowQuestions:
    """The questions about one change set; `shown_max` bounds what each of them shows."""

    def __init__(self, changes: ChangeSet, view: CommittedView, shown_max: int | None = SHOWN_MAX) -> None:
        self._changes, self._view, self._shown_max = changes, view, shown_max

    @property
    def changed(self) -> Sequence[TableKey]:
        """The tables of the change set."""
        return sorted(self._changes)

    def repeated(self, rule: Unique) -> Answers:
        """Of ids there is one image each; of other tuples the holders are looked up by the first column."""
        change = self._changes[rule.entity.table_key]
        if isinstance(rule, Identity) or not change.rows.num_rows:
            return NONE
        found = repeated_in(rule, change.rows, self._shown_max)
        return found if change.replaces_table else found + self._held(rule, change)

    def taken(self, rule: Identity) -> Answer | None:
        """What the change marks as taken."""
        change = self._changes[rule.entity.table_key]
        if change.taken is None or not change.taken.any():
            return None
        row = int(np.argmax(change.taken))
        return Answer(row, (change.ids[row].as_py(),))

    def _held(self, rule: Unique, change: TableChange) -> Answers:
        group = rule.columns
        rows = _compared(change.rows, group).append_column("row", pa.array(np.arange(change.rows.num_rows)))
        rows = rows.drop_null()
        if not rows.num_rows:
            return NONE
        wanted = zeros.both_zeros(pc.unique(wide.one_array(rows.column(0))))
        others = [name for name in group if name != "id"]
        holders = self._view.rows_where_in(rule.entity.table_key, group[0], wanted, ["id", *others])
        if not holders.num_rows:
            return NONE
        kept = holders.filter(pc.invert(pc.is_in(holders.column("id"), value_set=change.superseded)))
        compared = _compared(kept, group)
        owned = compared.append_column("holder", kept.column("id")).drop_null()
        clashes = rows.join(owned, keys=compared.column_names, join_type="inner")
        pairs = dict(zip(clashes.column("row").to_pylist(), clashes.column("holder").to_pylist(), strict=True))
        shown = [_of_tuple(rule, change.rows, row, pairs[row]) for row in sorted(pairs)[: self._shown_max]]
        return Answers(shown, len(pairs))

    def missing(self, ends: Sequence[End]) -> Answers:
        """Each end of each edge on its own."""
        change = self._changes[ends[0].edge.table_key]
        if not change.rows.num_rows:
            return NONE
        ids, count = change.ids, 0
        found: list[Answer] = []
        columns = [wide.one_array(change.rows.column(end.column)) for end in ends]
        for number, (column, exist) in enumerate(zip(columns, self._all_exist(ends, columns), strict=True)):
            if exist.all():
                continue
            rows = np.flatnonzero(~exist)
            count += len(rows)
            found += [
                Answer(row, (number, column[row].as_py()), ids[row].as_py()) for row in rows[: self._shown_max].tolist()
            ]
        return Answers(found, count)

    def _all_exist(self, ends: Sequence[End], columns: Sequence[pa.Array]) -> list[npt.NDArray[np.bool_]]:
        """Whether each node that is named at some ends exists; of many names each is asked for once."""
        is_alike = len({end.node_type for end in ends}) == 1 and not any(column.null_count for column in columns)
        if not is_alike or len(columns[0]) < ASKED_ONCE_ROWS:
            return [self._exists(end.node_type, column) for end, column in zip(ends, columns, strict=True)]
        come = self._changes.get(node_key(ends[0].node_type))
        if come is not None and all(_among(column.slice(0, SAMPLE_ROWS), come.ids).all() for column in columns):
            # Nodes that come with their edges are mostly all that these name, and are found without coding the names.
            here = [_among(column, come.ids) for column in columns]
            if all(each.all() for each in here):
                return here
        coded = wide.concat(columns).dictionary_encode()
        exist = self._exists(ends[0].node_type, coded.dictionary)[np.asarray(coded.indices)]
        return np.split(exist, np.cumsum([len(column) for column in columns])[:-1])

    def _exists(self, type_name: str, ids: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether each id is a node of the type once the write is done."""
        key = node_key(type_name)
        change = self._changes.get(key)
        here = _among(ids, NO_IDS if change is None else change.ids)
        if here.all() or (change is not None and change.replaces_table):
            return here
        committed: npt.NDArray[np.bool_] = np.asarray(self._view.contains(key, ids))
        if change is not None and len(change.removed):
            committed = committed & ~_among(ids, change.removed)
        return here | committed

    def orphaned(self, end: End) -> Answers:
        """The old nodes of a replaced table go, and those that a write removes; a cascade leaves no edge of theirs."""
        change, edges = self._changes[node_key(end.node_type)], self._changes.get(end.edge.table_key)
        if edges is not None and edges.replaces_table:
            return NONE
        key, columns = end.edge.table_key, ["id", "src", "dst"]
        if change.replaces_table:
            kept = self._view.all_rows(key, columns)
            kept = kept.filter(pc.invert(pc.is_in(kept.column(end.column), value_set=change.ids)))
        elif len(change.removed) and not change.edges_follow:
            kept = self._view.rows_where_in(key, end.column, change.removed, columns)
        else:
            return NONE
        gone = _surviving(edges, kept).select(["id", end.column])
        shown = zip(*(column.to_pylist() for column in gone.slice(0, self._shown_max).columns), strict=True)
        return Answers([Answer(NOWHERE, pair) for pair in shown], gone.num_rows)

    def miscounted(self, rule: Degree) -> Answers:
        """Counts what comes in and what stays, of the sources that get or lose an edge."""
        change, edge = self._changes[rule.edge.table_key], rule.edge
        incoming = wide.one_array(change.rows.column("src"))
        if change.replaces_table:
            sources = pc.unique(incoming)
        else:
            sources = self._not_removed(edge.source, pc.unique(wide.concat([incoming, change.removed_sources])))
        if not len(sources):
            return NONE
        counts = _counts(incoming, sources)
        if not change.replaces_table:
            kept = self._view.rows_where_in(edge.table_key, "src", sources, ["id", "src"])
            counts = counts + _counts(wide.one_array(_surviving(change, kept).column("src")), sources)
        wrong = np.flatnonzero(rule.is_broken(counts))
        pairs = [(sources[at].as_py(), int(counts[at])) for at in wrong[: self._shown_max].tolist()]
        return Answers([Answer(pc.index(incoming, pair[0]).as_py(), pair) for pair in pairs], len(wrong))

    def _not_removed(self, type_name: str, sources: pa.Array) -> pa.Array:
        change = self._changes.get(node_key(type_name))
        if change is None or not len(change.removed):
            return sources
        return sources.filter(pc.invert(pc.is_in(sources, value_set=change.removed)))


def repeated_in(rule: Unique, rows: pa.Table, shown_max: int | None = SHOWN_MAX) -> Answers:
    """Rows whose complete tuple an earlier row has."""
    found = repeated_tuples(rows.select(rule.columns))
    return Answers([_of_tuple(rule, rows, row) for row in found[:shown_max].tolist()], len(found))


def repeated_rows(values: pa.Array) -> Rows:
    """Positions whose value occurred at an earlier position, ascending."""
    return _later(np.asarray(values.dictionary_encode().indices))


def repeated_tuples(rows: pa.Table) -> Rows:
    """The positions of rows without a null that are equal to an earlier one, ascending."""
    mask = np.ones(rows.num_rows, dtype=np.bool_)
    for column in rows.columns:
        mask &= np.asarray(pc.is_valid(column))
    complete = np.flatnonzero(mask)
    if len(complete) < 2:
        return complete[:0]
    chosen = wide.take_rows(rows, complete) if len(complete) < rows.num_rows else rows
    codes = np.zeros(len(complete), dtype=np.int64)
    for column in chosen.columns:
        coded = zeros.one_zero(wide.one_array(column)).dictionary_encode()
        codes = codes * (len(coded.dictionary) + 1) + np.asarray(coded.indices, dtype=np.int64)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return complete[_later(codes)]


def _later(codes: Rows) -> Rows:
    first = np.zeros(len(codes), dtype=np.bool_)
    first[np.unique(codes, return_index=True)[1]] = True
    return np.flatnonzero(~first)


def _of_tuple(rule: Unique, rows: pa.Table, row: int, holder: str | None = None) -> Answer:
    values: tuple[Any, ...] = tuple(rows.column(name)[row].as_py() for name in rule.columns)
    return Answer(row, values, rows.column("id")[row].as_py(), holder)


def _compared(rows: pa.Table, group: tuple[str, ...]) -> pa.Table:
    """The columns of a group as they are compared, by number, because a property may have any name."""
    columns = [zeros.one_zero(rows.column(name)) for name in group]
    return pa.Table.from_arrays(columns, names=[str(number) for number in range(len(group))])


def _among(ids: pa.Array, known: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each id is one of those known; a missing id is known where one is missing among them."""
    if not len(known):
        return np.zeros(len(ids), dtype=np.bool_)
    if len(ids) * len(known) <= FEW_PAIRS:
        # As in most writes: comparing the texts takes less than calling upon Arrow to do it.
        held = known.to_pylist()
        return np.array([each in held for each in ids.to_pylist()], dtype=np.bool_)
    return np.asarray(pc.is_in(ids, value_set=known))


def _surviving(change: TableChange | None, rows: pa.Table) -> pa.Table:
    """The committed rows that a change leaves as they are."""
    if change is None or not rows.num_rows:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=change.superseded)))


def _counts(values: pa.Array, sources: pa.Array) -> Rows:
    """How often each source occurs among the values."""
    places = pc.index_in(values, value_set=sources)
    known = np.asarray(places.drop_null(), dtype=np.int64)
    return np.bincount(known, minlength=len(sources)).astype(np.int64)
