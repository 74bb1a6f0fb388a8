"""The one validator of every write: does the graph still hold all rules of its schema afterwards?

It looks at a `ChangeSet`, the final image of everything one write adds, changes and removes, and at the committed state
through a `CommittedView`. Only what the write touches is checked. Rules are tried in the order of their kinds (values,
uniqueness, references, cardinality), and the first kind that is broken is reported with all its violations. Mutations,
loads and merges use it alike; Spark answers the same questions with joins and words its answers with `wording`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.engine.staging import wording
from omnigraph.engine.staging.checks import Violation, check_rows
from omnigraph.engine.staging.entities import LINE, RECORD, SOURCE, Entity
from omnigraph.errors import ConstraintError, KeyConflictError
from omnigraph.ids import TableKey, node_key

VIOLATIONS_MAX = 20
NO_IDS: pa.Array = pa.array([], pa.string())


class CommittedView(Protocol):
    """What was published before the write began, asked only for what the write touches."""

    def contains(self, table_key: TableKey, ids: pa.Array) -> pa.Array:
        """For each id, whether the table has it."""

    def rows_where_in(self, table_key: TableKey, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows whose `column` is one of `values`."""

    def all_rows(self, table_key: TableKey, columns: Sequence[str]) -> pa.Table:
        """Every row; asked only when a write replaces a whole table."""


@dataclass
class TableChange:
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
        return _flat(self.rows.column("id"))


ChangeSet = Mapping[TableKey, TableChange]


def validate(catalog: Catalog, changes: ChangeSet, view: CommittedView) -> None:
    """Check every rule the changes can break.

    Raises:
        ConstraintError: a rule of the schema would be broken; `violations` lists up to twenty.
        KeyConflictError: an id that must be new is taken.
    """
    ordered = [changes[key] for key in sorted(changes)]
    checker = _Checker(catalog, changes, view)
    _raise_first([found for change in ordered for found in checker.values(change)])
    _raise_first([found for change in ordered for found in checker.uniqueness(change)])
    _raise_first([found for change in ordered for found in checker.references(change)])
    _raise_first([found for change in ordered for found in checker.cardinality(change)])


def check_duplicate_ids(entity: Entity, rows: pa.Table, *, keep_last: bool) -> None:
    """Refuse input that names one id twice, where the last one does not count.

    Raises:
        ConstraintError: two records of one key, or of one explicit id outside a merge.
    """
    is_keyed = isinstance(entity, NodeType) and bool(entity.key)
    if keep_last and not is_keyed:
        return
    ids = _flat(rows.column("id"))
    repeats = repeated_rows(ids)
    if len(repeats):
        word = wording.duplicate_key if is_keyed else wording.duplicate_id
        _raise_first(
            [_Found.at(rows, int(row), word(entity, ids[int(row)].as_py())) for row in repeats[:VIOLATIONS_MAX]]
        )


def check_unique_input(entity: Entity, rows: pa.Table) -> None:
    """Refuse input in which two records share a `@unique` tuple, even if one of them would replace the other.

    Raises:
        ConstraintError: which tuple, and the second record that has it.
    """
    found = [hit for group in _unique_groups(entity) for hit in _repeats_of(entity, group, rows)]
    _raise_first(found)


@dataclass(frozen=True, order=True)
class _Found:
    """A violation with where it stands in the input; rows that came from no input are at record 0."""

    source: str
    record: int
    line: int
    message: str

    @classmethod
    def at(cls, rows: pa.Table, row: int, message: str) -> _Found:
        if RECORD not in rows.column_names:
            return cls.nowhere(message)
        record, line = rows.column(RECORD)[row].as_py(), rows.column(LINE)[row].as_py()
        source = rows.column(SOURCE)[row].as_py() if SOURCE in rows.column_names else ""
        prefix = f"{source}: " if source else ""
        return cls(source, record, line, f"{prefix}{wording.place(record, line)}: {message}")

    @classmethod
    def nowhere(cls, message: str) -> _Found:
        return cls("", 0, 0, message)


def _raise_first(found: Sequence[_Found]) -> None:
    if found:
        ordered = [each.message for each in sorted(found, key=lambda each: (each.source, each.record, each.line))]
        raise ConstraintError(ordered[0], violations=ordered[:VIOLATIONS_MAX])


class _Checker:
    """One validation; holds what its checks share."""

    def __init__(self, catalog: Catalog, changes: ChangeSet, view: CommittedView) -> None:
        self.catalog, self.changes, self.view = catalog, changes, view

    def values(self, change: TableChange) -> list[_Found]:
        if change.values_checked:
            return []
        return [_Found.at(change.rows, hit.row, hit.message) for hit in check_rows(change.entity, change.rows)]

    # --- uniqueness --------------------------------------------------------------------------------------------------

    def uniqueness(self, change: TableChange) -> list[_Found]:
        if not change.rows.num_rows:
            return []
        _require_new(change)
        found: list[_Found] = []
        for group in _unique_groups(change.entity):
            found += _repeats_of(change.entity, group, change.rows)
            if not change.replaces_table:
                found += self._taken(change, group)
        return found

    def _taken(self, change: TableChange, group: tuple[str, ...]) -> list[_Found]:
        """Rows whose tuple a different entity holds that stays as it is."""
        rows = change.rows.select(group).append_column("__row", pa.array(np.arange(change.rows.num_rows)))
        rows = rows.filter(_complete(rows, group))
        if not rows.num_rows:
            return []
        wanted = pc.unique(_flat(rows.column(group[0])))
        holders = self.view.rows_where_in(change.entity.table_key, group[0], wanted, ["id", *_others(group)])
        if not holders.num_rows:
            return []
        stays = pc.invert(pc.is_in(holders.column("id"), value_set=_joined_ids(change.ids, change.removed)))
        holders = holders.filter(stays).filter(_complete(holders.filter(stays), group))
        holders = holders.select(group).append_column("__held", pa.nulls(holders.num_rows, pa.bool_()))
        clashes = rows.join(holders, keys=list(group), join_type="left semi")
        return [
            _Found.at(change.rows, row, wording.unique(change.entity, group, _tuple(change.rows, group, row)))
            for row in sorted(clashes.column("__row").to_pylist())[:VIOLATIONS_MAX]
        ]

    # --- references --------------------------------------------------------------------------------------------------

    def references(self, change: TableChange) -> list[_Found]:
        if isinstance(change.entity, NodeType):
            return self._orphans(change.entity, change) if change.replaces_table else self._dangling(change)
        found: list[_Found] = []
        if change.rows.num_rows:
            for end, type_name in (("src", change.entity.source), ("dst", change.entity.target)):
                column = _flat(change.rows.column(end))
                missing = np.flatnonzero(~self._exists(type_name, column))
                for row in missing[:VIOLATIONS_MAX]:
                    text = wording.missing_end(change.entity, end, column[int(row)].as_py(), type_name)
                    found.append(_Found.at(change.rows, int(row), text))
        return found

    def _exists(self, type_name: str, ids: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether each id is a node of the type once the write is done."""
        key = node_key(type_name)
        change = self.changes.get(key)
        here = np.zeros(len(ids), dtype=np.bool_)
        if change is not None and change.rows.num_rows:
            here |= np.asarray(pc.is_in(ids, value_set=change.ids))
        if here.all() or (change is not None and change.replaces_table):
            return here
        committed: npt.NDArray[np.bool_] = np.asarray(self.view.contains(key, ids))
        if change is not None and len(change.removed):
            committed = committed & ~np.asarray(pc.is_in(ids, value_set=change.removed))
        return here | committed

    def _orphans(self, node: NodeType, change: TableChange) -> list[_Found]:
        """Edges that stay while the node they name disappears with the old content of its table."""
        found: list[_Found] = []
        for edge in self.catalog.edges_touching(node.name):
            other = self.changes.get(edge.table_key)
            if other is not None and other.replaces_table:
                continue
            kept = self._surviving(edge, self.view.all_rows(edge.table_key, ["id", "src", "dst"]))
            for end, type_name in (("src", edge.source), ("dst", edge.target)):
                if type_name == node.name and kept.num_rows:
                    gone = pc.invert(pc.is_in(kept.column(end), value_set=change.ids))
                    found += _orphaned(edge, end, node.name, kept.filter(gone))
        return found

    def _dangling(self, change: TableChange) -> list[_Found]:
        """Edges that stay although the write removes the node they name; a cascade leaves none."""
        gone = change.removed
        if not len(gone) or change.edges_follow or not isinstance(change.entity, NodeType):
            return []
        found: list[_Found] = []
        for edge in self.catalog.edges_touching(change.entity.name):
            other = self.changes.get(edge.table_key)
            if other is not None and other.replaces_table:
                continue
            for end, type_name in (("src", edge.source), ("dst", edge.target)):
                if type_name == change.entity.name:
                    rows = self.view.rows_where_in(edge.table_key, end, gone, ["id", "src", "dst"])
                    found += _orphaned(edge, end, type_name, self._surviving(edge, rows))
        return found

    def _surviving(self, edge: EdgeType, rows: pa.Table) -> pa.Table:
        change = self.changes.get(edge.table_key)
        if change is None or not rows.num_rows:
            return rows
        superseded = pc.is_in(rows.column("id"), value_set=_joined_ids(change.ids, change.removed))
        return rows.filter(pc.invert(superseded))

    # --- cardinality -------------------------------------------------------------------------------------------------

    def cardinality(self, change: TableChange) -> list[_Found]:
        edge = change.entity
        if not isinstance(edge, EdgeType) or edge.cardinality.is_default:
            return []
        incoming = _flat(change.rows.column("src"))
        touched = pc.unique(_joined_ids(incoming, change.removed_sources))
        sources = pc.unique(incoming) if change.replaces_table else self._not_removed(edge.source, touched)
        if not len(sources):
            return []
        counts = _counts(incoming, sources)
        if not change.replaces_table:
            kept = self._surviving(edge, self.view.rows_where_in(edge.table_key, "src", sources, ["id", "src"]))
            counts = counts + _counts(_flat(kept.column("src")), sources)
        low, high = edge.cardinality.low, edge.cardinality.high
        bad = counts < low
        if high is not None:
            bad |= counts > high
        found: list[_Found] = []
        for position in np.flatnonzero(bad)[:VIOLATIONS_MAX]:
            source = sources[int(position)].as_py()
            text = wording.cardinality(edge, source, int(counts[position]))
            row = pc.index(incoming, source).as_py()
            found.append(_Found.nowhere(text) if row < 0 else _Found.at(change.rows, row, text))
        return found

    def _not_removed(self, type_name: str, sources: pa.Array) -> pa.Array:
        change = self.changes.get(node_key(type_name))
        if change is None or not len(change.removed):
            return sources
        return sources.filter(pc.invert(pc.is_in(sources, value_set=change.removed)))


def _require_new(change: TableChange) -> None:
    if change.taken is not None and change.taken.any():
        row = int(np.argmax(change.taken))
        place = _Found.at(change.rows, row, "").message.removesuffix(": ")
        raise KeyConflictError(table_key=change.entity.table_key, entity_id=change.ids[row].as_py(), detail=place)


# --- small set operations --------------------------------------------------------------------------------------------


def repeated_rows(values: pa.Array) -> npt.NDArray[np.int64]:
    """Positions whose value occurred at an earlier position, ascending."""
    codes = np.asarray(values.dictionary_encode().indices)
    first = np.zeros(len(codes), dtype=np.bool_)
    first[np.unique(codes, return_index=True)[1]] = True
    return np.flatnonzero(~first)


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _joined_ids(*parts: pa.Array) -> pa.Array:
    return pa.concat_arrays([part.cast(pa.string()) for part in parts])


def _unique_groups(entity: Entity) -> list[tuple[str, ...]]:
    key = entity.key if isinstance(entity, NodeType) else ()
    return [group for group in entity.unique if tuple(sorted(group)) != tuple(sorted(key))]


def _others(group: tuple[str, ...]) -> list[str]:
    return [name for name in group if name != "id"]


def _complete(rows: pa.Table, group: tuple[str, ...]) -> pa.ChunkedArray:
    """Rows without a null in the group: a tuple with a null is exempt."""
    mask = pc.is_valid(rows.column(group[0]))
    for name in group[1:]:
        mask = pc.and_(mask, pc.is_valid(rows.column(name)))
    return mask


def _repeats_of(entity: Entity, group: tuple[str, ...], rows: pa.Table) -> list[_Found]:
    """Rows whose complete tuple an earlier row has."""
    complete = np.flatnonzero(np.asarray(_complete(rows, group)))
    if len(complete) < 2:
        return []
    chosen = rows.select(group).take(pa.array(complete)) if len(complete) < rows.num_rows else rows.select(group)
    codes = np.zeros(len(complete), dtype=np.int64)
    for name in group:
        column = _flat(chosen.column(name)).dictionary_encode()
        codes = codes * (len(column.dictionary) + 1) + np.asarray(column.indices, dtype=np.int64)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    first = np.zeros(len(codes), dtype=np.bool_)
    first[np.unique(codes, return_index=True)[1]] = True
    return [
        _Found.at(rows, int(row), wording.unique(entity, group, _tuple(rows, group, int(row))))
        for row in complete[~first][:VIOLATIONS_MAX]
    ]


def _tuple(rows: pa.Table, group: tuple[str, ...], row: int) -> tuple[object, ...]:
    return tuple(rows.column(name)[row].as_py() for name in group)


def _orphaned(edge: EdgeType, end: str, type_name: str, rows: pa.Table) -> list[_Found]:
    shown = rows.slice(0, VIOLATIONS_MAX).to_pylist()
    return [_Found.nowhere(wording.orphan(edge, row["id"], end, row[end], type_name)) for row in shown]


def _counts(values: pa.Array, sources: pa.Array) -> npt.NDArray[np.int64]:
    """How often each source occurs among the values."""
    places = pc.index_in(values, value_set=sources)
    known = np.asarray(places.drop_null(), dtype=np.int64)
    return np.bincount(known, minlength=len(sources)).astype(np.int64)


__all__ = ["ChangeSet", "CommittedView", "TableChange", "Violation", "validate"]
