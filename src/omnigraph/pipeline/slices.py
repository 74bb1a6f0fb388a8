"""What must hold across the rows of one write, checked slice by slice where no Spark session is at hand.

Rows are compared by the values of one column at a time. A slice is a range of those values, so whatever could be equal
lies in the same slice; memory holds a few columns of one slice, and never all the ids of a table. The questions, their
order and the words are those of `check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.engine.staging import wording
from omnigraph.engine.storage.fragments import read_fragment
from omnigraph.ids import TableKey, node_key
from omnigraph.pipeline.check import SHOWN_MAX, Findings, Found, Staged, unique_groups
from omnigraph.pipeline.frames import OFFSET_BITS, POSITION, ROW_ADDRESS, TableAt

SLICE_ROWS = 4_000_000
_SAMPLES_PER_SLICE = 256

Numbers = npt.NDArray[np.int64]
Word = Callable[[dict[str, Any]], str]
Tables = Iterator[pa.Table]
Reading = tuple[Callable[[], Tables], str]
"""Something to read as often as one likes, and its column that is compared."""


def _none() -> Numbers:
    return np.empty(0, dtype=np.int64)


@dataclass
class Replacing:
    """What a merge found: staged rows that a later one replaces, and those that replace what, by position."""

    dropped: Numbers = field(default_factory=_none)
    positions: Numbers = field(default_factory=_none)
    addresses: Numbers = field(default_factory=_none)


class SliceChecks:
    """The checks of one write to one table; `committed` has every table of the snapshot."""

    def __init__(
        self,
        catalog: Catalog,
        staged: Staged,
        committed: Mapping[TableKey, tuple[TableAt, int]],
        mode: str,
    ) -> None:
        self._catalog, self._staged, self._committed, self._mode = catalog, staged, committed, mode
        self.replacing = Replacing()
        self.read: set[TableKey] = set()
        """Tables of the snapshot the verdict depends on."""

    def kinds(self) -> Iterator[Callable[[], Findings]]:
        """The kinds of rules in the order in which they are reported."""
        yield self._uniqueness
        yield self._references
        yield self._cardinality

    # --- uniqueness --------------------------------------------------------------------------------------------------

    def _uniqueness(self) -> Findings:
        findings = Findings()
        if not self._staged.rows:
            return findings
        if self._staged.ids_given:
            self._compare_ids(findings)
        if findings.conflict is None:
            for group in unique_groups(self._staged.entity):
                self._compare_group(findings, group)
        return findings

    def _compare_ids(self, findings: Findings) -> None:
        staged, merges = self._staged, self._mode == "merge"
        key, known = staged.entity.table_key, self._staged.committed_rows > 0 and self._mode != "overwrite"
        last_counts = merges and not staged.keyed
        word = wording.duplicate_key if staged.keyed else wording.duplicate_id
        parts: list[Replacing] = []
        pending: Reading = (lambda: self._pending(["id"]), "id")
        published: Reading = (lambda: self._published(key, ["id"]), "id")
        for incoming, *others in self._slices(pending, *([published] if known else [])):
            spread = _spread(incoming, ["id"])
            dropped = _numbers(spread.filter(pc.less(spread[POSITION], spread["last"])), POSITION)
            if not last_counts:
                later = spread.filter(pc.greater(spread[POSITION], spread["first"]))
                self._add(findings, key, later, lambda row: word(staged.entity, row["id"]))
                dropped = _none()
            if others:
                at = pc.index_in(incoming["id"], value_set=others[0]["id"].combine_chunks())
                matched = np.asarray(at.is_valid())
                positions = _numbers(incoming, POSITION)[matched]
                addresses = _numbers(others[0].take(at.drop_null()), ROW_ADDRESS)
                stays = ~np.isin(positions, dropped)
                parts.append(Replacing(dropped, positions[stays], addresses[stays]))
            else:
                parts.append(Replacing(dropped))
        found = _joined(parts)
        if merges:
            self.replacing = found
        elif len(found.positions) and not findings.count:
            findings.conflict = Found(key, int(found.positions[0]), self._id_at(int(found.positions[0])))

    def _compare_group(self, findings: Findings, group: tuple[str, ...]) -> None:
        staged = self._staged
        key, names = staged.entity.table_key, list(group)
        known = staged.committed_rows > 0 and self._mode != "overwrite"
        replaced = np.sort(self.replacing.addresses)

        def holders() -> Tables:
            for table in self._published(key, names):
                stays = ~np.isin(_numbers(table, ROW_ADDRESS), replaced)
                yield table.filter(pa.array(stays)).drop_columns([ROW_ADDRESS])

        def word(row: dict[str, Any]) -> str:
            return wording.unique(staged.entity, group, tuple(row[name] for name in group))

        pending: Reading = (lambda: self._pending(names), names[0])
        for incoming, *others in self._slices(pending, *([(holders, names[0])] if known else [])):
            complete = incoming.drop_null()
            spread = _spread(complete, names)
            self._add(findings, key, spread.filter(pc.greater(spread[POSITION], spread["first"])), word)
            for taken in others:
                self._add(findings, key, complete.join(taken.drop_null(), keys=names, join_type="left semi"), word)

    # --- references --------------------------------------------------------------------------------------------------

    def _references(self) -> Findings:
        findings, entity = Findings(), self._staged.entity
        if isinstance(entity, EdgeType):
            if self._staged.rows:
                self._find_missing_ends(findings, entity)
        elif self._mode == "overwrite":
            for edge in self._catalog.edges_touching(entity.name):
                if self._committed[edge.table_key][1]:
                    self._find_orphans(findings, entity, edge)
        return findings

    def _find_missing_ends(self, findings: Findings, edge: EdgeType) -> None:
        without_source = _none()
        for end, type_name in (("src", edge.source), ("dst", edge.target)):
            pending: Reading = (lambda end=end: self._pending([end]), end)  # type: ignore[misc]
            nodes: Reading = (lambda name=type_name: self._published(node_key(name), ["id"]), "id")  # type: ignore[misc]
            for incoming, known in self._slices(pending, nodes):
                missing = incoming.filter(pc.invert(pc.is_in(incoming[end], value_set=known["id"].combine_chunks())))
                if end == "src":
                    without_source = np.concatenate([without_source, _numbers(missing, POSITION)])
                else:
                    missing = missing.filter(pa.array(~np.isin(_numbers(missing, POSITION), without_source)))
                self._add(findings, edge.table_key, missing, _missing_word(edge, end, type_name))

    def _find_orphans(self, findings: Findings, node: NodeType, edge: EdgeType) -> None:
        for end, type_name in (("src", edge.source), ("dst", edge.target)):
            if type_name != node.name:
                continue
            kept: Reading = (lambda end=end: self._published(edge.table_key, ["id", end]), end)  # type: ignore[misc]
            for edges, nodes in self._slices(kept, (lambda: self._pending(["id"]), "id")):
                gone = edges.filter(pc.invert(pc.is_in(edges[end], value_set=nodes["id"].combine_chunks())))
                nowhere = pa.array(np.full(gone.num_rows, -1, dtype=np.int64))
                self._add(
                    findings, edge.table_key, gone.append_column(POSITION, nowhere), _orphan_word(edge, end, node)
                )

    # --- cardinality -------------------------------------------------------------------------------------------------

    def _cardinality(self) -> Findings:
        findings, edge = Findings(), self._staged.entity
        if not isinstance(edge, EdgeType) or edge.cardinality.is_default or not self._staged.rows:
            return findings
        known = self._staged.committed_rows > 0 and self._mode != "overwrite"
        pending: Reading = (lambda: self._pending(["src"]), "src")
        published: Reading = (lambda: self._published(edge.table_key, ["src"]), "src")
        replaced = np.sort(self.replacing.addresses)
        for incoming, *others in self._slices(pending, *([published] if known else [])):
            stays = ~np.isin(_numbers(incoming, POSITION), self.replacing.dropped)
            parts = [_counting(incoming["src"], stays, np.ones(len(stays), np.bool_), _numbers(incoming, POSITION))]
            for committed in others:
                gone = np.isin(_numbers(committed, ROW_ADDRESS), replaced)
                nowhere = np.full(len(gone), np.iinfo(np.int64).max)
                parts.append(_counting(committed["src"], ~gone, gone, nowhere))
            counts = pa.concat_tables(parts).group_by("src")
            counts = counts.aggregate([("edges", "sum"), ("touched", "max"), (POSITION, "min")])
            counts = counts.rename_columns(["src", "edges", "touched", POSITION])
            self._add(findings, edge.table_key, counts.filter(_is_wrong(edge, counts)), _count_word(edge))
        return findings

    # --- slices ------------------------------------------------------------------------------------------------------

    def _slices(self, *readings: Reading) -> Iterator[list[pa.Table]]:
        """The rows of several readings whose compared values lie in one range, range after range."""
        for low, high in _bounds(readings):
            yield [_gathered(read, column, low, high) for read, column in readings]

    def _pending(self, columns: Sequence[str]) -> Tables:
        """Staged rows with their positions."""
        staged = self._staged
        schema = pa.schema([staged.target.schema.field(name).remove_metadata() for name in columns])
        for number, fragment in enumerate(staged.fragments):
            position = number << OFFSET_BITS
            for batch in read_fragment(staged.target.uri, fragment.text, columns):
                places = pa.array(np.arange(position, position + batch.num_rows, dtype=np.int64))
                position += batch.num_rows
                table = pa.Table.from_batches([batch.select(list(columns)).cast(schema)])
                yield table.append_column(POSITION, places)
        yield schema.append(pa.field(POSITION, pa.int64())).empty_table()

    def _published(self, key: TableKey, columns: Sequence[str]) -> Tables:
        """Committed rows with their addresses."""
        self.read.add(key)
        handle = self._committed[key][0].open()
        fields = [handle.schema.field(name).remove_metadata() for name in columns]
        schema = pa.schema([*fields, pa.field(ROW_ADDRESS, pa.int64())])
        for batch in handle.scan_batches(list(columns), with_row_address=True):
            yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)
        yield schema.empty_table()

    def _id_at(self, position: int) -> str:
        text = self._staged.fragments[position >> OFFSET_BITS].text
        offset = position & ((1 << OFFSET_BITS) - 1)
        for batch in read_fragment(self._staged.target.uri, text, ["id"]):
            if offset < batch.num_rows:
                return str(batch.column(0)[offset].as_py())
            offset -= batch.num_rows
        return ""

    def _add(self, findings: Findings, key: TableKey, bad: pa.Table, word: Word) -> None:
        """Take over violations; the first ones by position stay, the others are counted."""
        if bad.num_rows:
            first = bad.take(pc.sort_indices(bad[POSITION])[:SHOWN_MAX]).to_pylist()
            findings.add([Found(key, row[POSITION], word(row)) for row in first], bad.num_rows)
            findings.shown = sorted(findings.shown, key=lambda found: found.position)[:SHOWN_MAX]


def _bounds(readings: Sequence[Reading]) -> list[tuple[Any, Any]]:
    """Ranges of values that together hold every row, each about a slice full."""
    total = 0
    samples: list[pa.Array] = []
    step = max(1, SLICE_ROWS // _SAMPLES_PER_SLICE)
    for read, column in readings:
        for table in read():
            total += table.num_rows
            samples += [chunk[::step].drop_null() for chunk in table[column].chunks]
    if total <= SLICE_ROWS or not any(len(sample) for sample in samples):
        return [(None, None)]
    values = pa.concat_arrays(samples)
    values = values.take(pc.sort_indices(values))
    count = -(-total // SLICE_ROWS)
    cuts = [values[len(values) * number // count].as_py() for number in range(1, count)]
    cuts = list(dict.fromkeys(cuts))
    return list(zip([None, *cuts], [*cuts, None], strict=True))


def _gathered(read: Callable[[], Tables], column: str, low: Any, high: Any) -> pa.Table:
    """The rows of one range; rows without a value equal nothing and are left out."""
    parts = []
    for table in read():
        inside = pc.is_valid(table[column])
        if low is not None:
            inside = pc.and_(inside, pc.greater_equal(table[column], low))
        if high is not None:
            inside = pc.and_(inside, pc.less(table[column], high))
        parts.append(table.filter(inside))
    return pa.concat_tables(parts).combine_chunks()


def _spread(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows whose tuple comes more than once, with the first and last position of that tuple."""
    groups = rows.group_by(list(columns)).aggregate([(POSITION, "min"), (POSITION, "max")])
    groups = groups.rename_columns([*columns, "first", "last"])
    return rows.join(groups.filter(pc.less(groups["first"], groups["last"])), keys=list(columns), join_type="inner")


def _joined(parts: Iterable[Replacing]) -> Replacing:
    """What all slices found, by position."""
    found = list(parts)
    positions = np.concatenate([_none(), *(part.positions for part in found)])
    order = np.argsort(positions)
    addresses = np.concatenate([_none(), *(part.addresses for part in found)])
    dropped = np.sort(np.concatenate([_none(), *(part.dropped for part in found)]))
    return Replacing(dropped, positions[order], addresses[order])


def _counting(sources: pa.ChunkedArray, stays: Any, touched: Any, positions: Numbers) -> pa.Table:
    columns = {"edges": pa.array(stays.astype(np.int64)), "touched": pa.array(touched), POSITION: pa.array(positions)}
    return pa.table({"src": sources, **columns})


def _is_wrong(edge: EdgeType, counts: pa.Table) -> Any:
    wrong = pc.less(counts["edges"], edge.cardinality.low)
    if edge.cardinality.high is not None:
        wrong = pc.or_(wrong, pc.greater(counts["edges"], edge.cardinality.high))
    return pc.and_(counts["touched"], wrong)


def _numbers(rows: pa.Table, column: str) -> Numbers:
    return np.asarray(rows[column], dtype=np.int64)


def _missing_word(edge: EdgeType, end: str, type_name: str) -> Word:
    return lambda row: wording.missing_end(edge, end, row[end], type_name)


def _orphan_word(edge: EdgeType, end: str, node: NodeType) -> Word:
    return lambda row: wording.orphan(edge, row["id"], end, row[end], node.name)


def _count_word(edge: EdgeType) -> Word:
    return lambda row: wording.cardinality(edge, row["src"], row["edges"])
