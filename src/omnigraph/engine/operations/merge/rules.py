"""Rules between entities, checked on the merged state before anything is written, and what settles a broken one.

Both branches obey every rule, so only a change of one with a change of the other can break one. The check reads ids,
ends and unique columns of what the target gets, never a vector; the values of rows that are on no branch are checked
besides. A resolution of a broken rule says for single entities whose state shall count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.engine.changes.located import Located, same
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.merge.compose import with_properties
from omnigraph.engine.operations.merge.conflicts import ConflictKind, MergeConflict, of_rule
from omnigraph.engine.operations.merge.decided import TableMerge, Written
from omnigraph.engine.operations.merge.plan import Strategy
from omnigraph.engine.operations.merge.resolutions import Resolution, Resolving, Take
from omnigraph.engine.rules.checks import check_rows
from omnigraph.engine.rules.validate import NO_IDS, Finding, Rule, TableChange, findings
from omnigraph.engine.values.entities import Entity, row_schema
from omnigraph.engine.write.committed import SnapshotView, read_rows
from omnigraph.ids import TableKey, node_key


def broken_rules(catalog: Catalog, tables: Sequence[TableMerge], view: SnapshotView) -> list[MergeConflict]:
    """What the merged state would break."""
    changes = {table.key: _change(table) for table in tables if table.changes}
    found = [finding for table in tables for finding in _values(table)]
    found += findings(catalog, changes, view)
    edges = _ends([finding for finding in found if finding.rule is Rule.REFERENCE], changes, view)
    return [of_rule(finding, edges.get((finding.table_key, finding.row_id))) for finding in found]


def _ends(
    found: Iterable[Finding], changes: Mapping[TableKey, TableChange], view: SnapshotView
) -> dict[tuple[TableKey, str | None], tuple[str, str]]:
    """From where to where the edges go that name a node which is not there: the id of an edge tells nobody."""
    asked: dict[TableKey, list[str]] = {}
    for finding in found:
        if finding.row_id is not None:
            asked.setdefault(finding.table_key, []).append(finding.row_id)
    ends: dict[tuple[TableKey, str | None], tuple[str, str]] = {}
    for key, ids in asked.items():
        wanted, columns = pa.array(ids, pa.string()), ["id", "src", "dst"]
        tables = [view.rows_where_in(key, "id", wanted, columns)]
        if key in changes:
            rows = changes[key].rows.select(columns)
            tables.append(rows.filter(pc.is_in(rows["id"], wanted)))
        ends |= {(key, row["id"]): (row["src"], row["dst"]) for table in tables for row in table.to_pylist()}
    return ends


def _values(table: TableMerge) -> Iterator[Finding]:
    """The rules that rows of no branch break by themselves."""
    for part in table.written:
        ids = part.ids
        for hit in check_rows(table.entity, part.rows):
            yield Finding(Rule.VALUE, table.key, ids[hit.row].as_py(), (), None, hit.message)


def _change(table: TableMerge) -> TableChange:
    """What happens to one table, in the columns that rules between entities are about.

    Of two rows that break a rule together the later one is named. So rows that a resolution has made come first and
    those of the source last, whose rows are named where they meet ours too.
    """
    names = _narrow(table.entity)
    schema = pa.schema([row_schema(table.entity).field(name) for name in names])
    made = [part.rows.select(names) for part in table.written]
    parts = [pa.concat_tables(made).sort_by("id")] if made else []
    parts += [mixed.read(table.entity, names) for mixed in table.mixed]
    # What was taken of the base came last, and no two rows of the source break a rule by themselves.
    taken = reversed(table.taken)
    parts += [part.rows.read(lambda handle, at: handle.take_addresses(at, names), schema) for part in taken]
    rows = pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts if part.num_rows)])
    removed = wide.concat([part.ids.cast(pa.string()) for part in table.removed]) if table.removed else NO_IDS
    return TableChange(table.entity, rows, values_checked=True, removed=removed, removed_sources=_lost_sources(table))


def _narrow(entity: Entity) -> list[str]:
    ends = ("src", "dst") if isinstance(entity, EdgeType) else ()
    return list(dict.fromkeys(["id", *ends, *(name for group in entity.unique for name in group)]))


def _lost_sources(table: TableMerge) -> pa.Array:
    """The nodes that lose an edge of the target, or get it changed."""
    if not isinstance(table.entity, EdgeType) or table.entity.cardinality.is_default:
        return NO_IDS
    lost = [*(p.over for p in table.removed), *(p.over for p in table.taken), *(p.ours for p in table.mixed)]
    lost += [part.over for part in table.written]
    found = [
        wide.one_array(handle.take_addresses(over.at[mine], ["src"]).column("src"))
        for over in lost
        for handle, mine in over.groups()
    ]
    return wide.concat(found) if found else NO_IDS


# --- settling --------------------------------------------------------------------------------------------------------


class _Whose(StrEnum):
    """What one entity becomes by the resolution of a rule."""

    OURS = "ours"
    THEIRS = "theirs"
    ABSENT = "absent"


class Settlement(Struct):
    """What the resolutions of broken rules make of single entities."""

    whose: dict[tuple[TableKey, str], _Whose]
    properties: dict[tuple[TableKey, str], Mapping[str, Any]]
    counts: dict[str, int]

    def __bool__(self) -> bool:
        return bool(self.whose or self.properties)


class RuleSettler:
    """Applies strategies and resolutions to the broken rules of one merge."""

    def __init__(
        self, catalog: Catalog, ours: SnapshotView, theirs: Snapshot, strategies: Mapping[TableKey, Strategy | None]
    ) -> None:
        self._catalog, self._ours, self._theirs, self._strategies = catalog, ours, SnapshotView(theirs), strategies

    def settle(
        self, broken: Iterable[MergeConflict], tables: Mapping[TableKey, TableMerge], resolving: Resolving
    ) -> Settlement:
        """What counts for the entities of broken rules that somebody has decided."""
        made = Settlement({}, {}, {})
        for conflict in broken:
            if conflict.kind is ConflictKind.VALUE_CONSTRAINT_VIOLATION:
                continue  # A resolution has brought it, and nothing is resolved twice.
            resolution = resolving.resolve(conflict) or self._by_strategy(conflict)
            if resolution is not None:
                made.counts[str(resolution.take)] = made.counts.get(str(resolution.take), 0) + 1
                self._decide(made, conflict, resolution, tables)
        return made

    def _by_strategy(self, conflict: MergeConflict) -> Resolution | None:
        """A side that counts in general counts for edges too; a node that others may name cannot simply go."""
        strategy = self._strategies.get(conflict.table_key)
        if strategy not in (Strategy.OURS, Strategy.THEIRS) or not conflict.table_key.startswith("edge:"):
            return None
        return Resolution(Take.OURS if strategy is Strategy.OURS else Take.THEIRS)

    def _decide(
        self,
        made: Settlement,
        conflict: MergeConflict,
        resolution: Resolution,
        tables: Mapping[TableKey, TableMerge],
    ) -> None:
        key, row, related = conflict.table_key, conflict.row_id or "", conflict.related or ""
        if resolution.take is Take.SET:
            made.properties[(key, row)] = {**made.properties.get((key, row), {}), **(resolution.properties or {})}
        elif conflict.kind is ConflictKind.ORPHAN_EDGE:
            node = self._node(key, conflict.columns)
            whose = self._holder(node, related, edge_is_theirs=key in tables and _gets(tables[key], row))
            if resolution.take is Take.KEEP_NODE or str(resolution.take) == str(whose):
                made.whose[(node, related)] = whose
            else:
                made.whose[(key, row)] = _Whose.ABSENT
        elif conflict.kind is ConflictKind.UNIQUE_VIOLATION:
            if resolution.take is Take.OURS:
                made.whose[(key, row)] = _Whose.OURS
            elif related:
                made.whose[(key, related)] = _Whose.THEIRS
        else:
            whose = _Whose.OURS if resolution.take is Take.OURS else _Whose.THEIRS
            made.whose.update({(key, edge): whose for edge in self._edges_of(key, related)})

    def _node(self, edge_key: TableKey, columns: tuple[str, ...]) -> TableKey:
        edge = self._catalog.tables[edge_key]
        if not isinstance(edge, EdgeType):
            return edge_key
        return node_key(edge.source if columns == ("from",) else edge.target)

    def _holder(self, key: TableKey, node: str, *, edge_is_theirs: bool) -> _Whose:
        """The side that a node without which an edge cannot be comes back from.

        As a rule the other side has deleted it. The edge tells less: a resolution may have made it, of either side's.
        """
        wanted = pa.array([node], pa.string())
        ours, theirs = (bool(view.locate(key, wanted)[1][0]) for view in (self._ours, self._theirs))
        return _Whose.THEIRS if (edge_is_theirs if ours == theirs else theirs) else _Whose.OURS

    def _edges_of(self, key: TableKey, node: str) -> list[str]:
        """The edges that leave a node on either side."""
        wanted = pa.array([node], pa.string())
        found: set[str] = set()
        for view in (self._ours, self._theirs):
            found.update(view.rows_where_in(key, "src", wanted, ["id"]).column("id").to_pylist())
        return sorted(found)

    def apply(self, made: Settlement, tables: dict[TableKey, TableMerge]) -> None:
        """Let the tables be as was settled."""
        for key in sorted({key for key, _ in (*made.whose, *made.properties)}):
            table = tables.get(key)
            if table is None:
                entity = self._catalog.tables[key]
                table = tables[key] = TableMerge(
                    key, entity, self._theirs.snapshot.open(key), self._ours.snapshot.open(key)
                )
            for row, properties in [(row, each) for (of, row), each in made.properties.items() if of == key]:
                self._set(table, row, properties)
            ids = {row: whose for (of, row), whose in made.whose.items() if of == key}
            if ids:
                self._override(table, ids)

    def _override(self, table: TableMerge, ids: Mapping[str, _Whose]) -> None:
        names = sorted(ids)
        wanted = pa.array(names, pa.string())
        table.at_base = False
        table.without(wanted.cast(pa.large_string()))
        over = Located.of(table.ours, *self._ours.locate(table.key, wanted))
        theirs = Located.of(table.theirs, *self._theirs.locate(table.key, wanted))
        whose = np.array([str(ids[name]) for name in names])
        takes = (whose == _Whose.THEIRS) & ~same(theirs, over)
        chosen = wanted.filter(pa.array(takes)).cast(pa.large_string())
        table.take(chosen, theirs.where(takes), over.where(takes))
        gone = whose == _Whose.ABSENT
        nothing = Located.of(table.theirs, np.zeros(int(gone.sum()), dtype=np.uint64), np.zeros(int(gone.sum()), bool))
        table.take(wanted.filter(pa.array(gone)).cast(pa.large_string()), nothing, over.where(gone))

    def _set(self, table: TableMerge, row: str, properties: Mapping[str, Any]) -> None:
        """One entity as it would be, with some properties."""
        wanted = pa.array([row], pa.string())
        over = Located.of(table.ours, *self._ours.locate(table.key, wanted))
        rows = _row(table, row)
        if rows is None:
            rows = over.read(lambda handle, at: read_rows(handle, table.entity, at), row_schema(table.entity))
        table.at_base = False
        table.without(wanted.cast(pa.large_string()))
        table.written.append(Written(with_properties(table.entity, rows, properties), over))


def _gets(table: TableMerge, row: str) -> bool:
    """Whether the target gets an entity, or a change of it."""
    ids = [*(p.ids for p in table.taken), *(p.ids for p in table.mixed), *(p.ids for p in table.written)]
    return any(pc.index(part.cast(pa.large_string()), pa.scalar(row, pa.large_string())).as_py() >= 0 for part in ids)


def _row(table: TableMerge, row: str) -> pa.Table | None:
    """The row of an entity as the target would get it."""
    wanted = pa.scalar(row, pa.large_string())

    def place(ids: pa.Array) -> int:
        return int(pc.index(ids.cast(pa.large_string()), wanted).as_py())

    for taken in table.taken:
        if (at := place(taken.ids)) >= 0:
            chosen = taken.rows.where(np.array([at]))
            return chosen.read(lambda handle, at: read_rows(handle, table.entity, at), row_schema(table.entity))
    for mixed in table.mixed:
        if (at := place(mixed.ids)) >= 0:
            return mixed.where(np.array([at])).read(table.entity)
    for written in table.written:
        if (at := place(written.ids)) >= 0:
            return wide.take_rows(written.rows, np.array([at]))
    return None
