"""The set questions about one write to one table, answered slice by slice where no Spark session is at hand.

Rows are compared by the values of one column at a time. A slice is a range of those values, so whatever could be equal
lies in the same slice; memory holds a few columns of one slice, and never all the ids of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog import wide, zeros
from omnigraph.engine.ingest.staged import OFFSET_BITS, POSITION, ROW_ADDRESS, StagedLoad
from omnigraph.engine.rules.arrow import repeated_tuples
from omnigraph.engine.rules.questions import NONE, SHOWN_MAX, Answers
from omnigraph.engine.rules.statement import NOWHERE, Answer, Degree, End, Identity, Unique
from omnigraph.engine.storage.fragments import read_fragment
from omnigraph.ids import TableKey, node_key

SLICE_ROWS = 4_000_000
_SAMPLES_PER_SLICE = 256

Numbers = npt.NDArray[np.int64]
Tables = Iterator[pa.Table]
Reading = tuple[Callable[[], Tables], str]
"""Something to read as often as one likes, and its column that is compared."""


def _none() -> Numbers:
    return np.empty(0, dtype=np.int64)


class Replacing(Struct):
    """What comparing ids found, by position: rows that a later one repeats, and those that meet what is committed."""

    dropped: Numbers = field(default_factory=_none)
    positions: Numbers = field(default_factory=_none)
    addresses: Numbers = field(default_factory=_none)


class SlicedQuestions:
    """The questions about the one table that a load has staged."""

    def __init__(self, load: StagedLoad) -> None:
        self._load = load
        [self._staged] = load.staged.values()
        self._key = self._staged.entity.table_key
        self.read: set[TableKey] = set()
        """Tables of the snapshot the verdict depends on."""

    @property
    def changed(self) -> Sequence[TableKey]:
        """The one table."""
        return [self._key]

    @property
    def replacing(self) -> Replacing:
        """What a merge replaces, and which of its rows a later one replaces."""
        return self._ids[0] if self._load.mode == "merge" else Replacing()

    def repeated(self, rule: Unique) -> Answers:
        """In one slice are the tuples that come in and those that stay."""
        if isinstance(rule, Identity):
            return self._ids[1]
        names, replaced = [str(number) for number in range(len(rule.columns))], np.sort(self.replacing.addresses)

        def values() -> Tables:
            for table in self._pending(rule.columns):
                yield _numbered(table, [*names, POSITION])

        def holders() -> Tables:
            for table in self._published(self._key, rule.columns):
                stays = ~np.isin(_numbers(table, ROW_ADDRESS), replaced)
                yield _numbered(table.filter(pa.array(stays)).drop_columns([ROW_ADDRESS]), names)

        again, held = _Gathered(), _Gathered()
        known: list[Reading] = [(holders, names[0])] if self._load.stays(self._key) else []
        for incoming, *others in self._slices((values, names[0]), *known):
            again.add(incoming.take(repeated_tuples(incoming.select(names))), names)
            for taken in others:
                held.add(incoming.drop_null().join(taken.drop_null(), keys=names, join_type="left semi"), names)
        return again.answers + held.answers

    def taken(self, rule: Identity) -> Answer | None:
        """The first of those that meet what is committed."""
        met = self._ids[0].positions
        return Answer(int(met[0]), (self._id_at(int(met[0])),)) if len(met) else None

    @cached_property
    def _ids(self) -> tuple[Replacing, Answers]:
        """Every id compared with the others and with what is committed, in one pass, and the ids that are repeated."""
        if not self._staged.ids_given or not self._staged.rows:
            return Replacing(), NONE
        last_counts = self._load.mode == "merge" and not self._staged.keyed
        parts: list[Replacing] = []
        repeated = _Gathered()
        readings: list[Reading] = [(lambda: self._pending(["id"]), "id")]
        if self._load.stays(self._key):
            readings.append((lambda: self._published(self._key, ["id"]), "id"))
        for incoming, *others in self._slices(*readings):
            ids, dropped = incoming.select(["id"]), _none()
            if last_counts:
                before = incoming.num_rows - 1 - repeated_tuples(ids[::-1])
                dropped = np.sort(_numbers(incoming, POSITION)[before])
            else:
                repeated.add(incoming.take(repeated_tuples(ids)), ["id"])
            part = Replacing(dropped)
            for committed in others:
                at = pc.index_in(incoming["id"], value_set=wide.one_array(committed["id"]))
                positions = _numbers(incoming, POSITION)[np.asarray(at.is_valid())]
                addresses = _numbers(committed.take(at.drop_null()), ROW_ADDRESS)
                stays = ~np.isin(positions, dropped)
                part = Replacing(dropped, positions[stays], addresses[stays])
            parts.append(part)
        return _joined(parts), repeated.answers

    def missing(self, ends: Sequence[End]) -> Answers:
        """One end after the other; of an edge that misses both, the first is told."""
        found, told = _Gathered(), _none()
        for number, end in enumerate(ends):
            for incoming, known in self._slices(self._incoming(end.column), self._nodes(end)):
                wrong = _absent(incoming, end.column, known["id"])
                wrong = wrong.filter(pa.array(~np.isin(_numbers(wrong, POSITION), told)))
                wrong = wrong.append_column("end", pa.array(np.full(wrong.num_rows, number)))
                found.add(wrong, ["end", end.column])
                told = np.concatenate([told, _numbers(wrong, POSITION)])
        return found.answers

    def _nodes(self, end: End) -> Reading:
        return lambda: self._published(node_key(end.node_type), ["id"]), "id"

    def _incoming(self, column: str) -> Reading:
        return lambda: self._pending([column]), column

    def orphaned(self, end: End) -> Answers:
        """In one slice are the ends of edges that stay and the ids of the nodes that come in."""
        found, column = _Gathered(), end.column
        kept: Reading = (lambda: self._published(end.edge.table_key, ["id", column]), column)
        for edges, nodes in self._slices(kept, self._incoming("id")):
            gone = _absent(edges, column, nodes["id"])
            nowhere = pa.array(np.full(gone.num_rows, NOWHERE, dtype=np.int64))
            found.add(gone.append_column(POSITION, nowhere), ["id", column])
        return found.answers

    def miscounted(self, rule: Degree) -> Answers:
        """In one slice are all edges of a source: those that stay count, those that are replaced make it touched."""
        found, replacing = _Gathered(), self.replacing
        replaced = np.sort(replacing.addresses)
        readings = [self._incoming("src")]
        if self._load.stays(self._key):
            readings.append((lambda: self._published(self._key, ["src"]), "src"))
        for incoming, *others in self._slices(*readings):
            positions = _numbers(incoming, POSITION)
            stays = ~np.isin(positions, replacing.dropped)
            parts = [_counting(incoming["src"], stays, np.ones(len(stays), np.bool_), positions)]
            for committed in others:
                gone = np.isin(_numbers(committed, ROW_ADDRESS), replaced)
                parts.append(_counting(committed["src"], ~gone, gone, np.full(len(gone), _LAST)))
            counts = pa.concat_tables(parts).group_by("src")
            counts = counts.aggregate([("edges", "sum"), ("touched", "max"), (POSITION, "min")])
            counts = counts.rename_columns(["src", "edges", "touched", POSITION])
            wrong = np.asarray(counts["touched"]) & rule.is_broken(_numbers(counts, "edges"))
            found.add(counts.filter(pa.array(wrong)), ["src", "edges"])
        return found.answers

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
        handle = self._load.committed[key][0].open()
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


class _Gathered:
    """Violations of one rule from all slices: the first ones by position stay, the others are counted."""

    def __init__(self) -> None:
        self._shown: list[Answer] = []
        self._count = 0

    def add(self, bad: pa.Table, values: Sequence[str]) -> None:
        if bad.num_rows:
            first = bad.take(pc.sort_indices(bad[POSITION])[:SHOWN_MAX])
            columns = [first[name].to_pylist() for name in (POSITION, *values)]
            self._shown += [Answer(position, tuple(row)) for position, *row in zip(*columns, strict=True)]
            self._shown = sorted(self._shown, key=lambda answer: answer.position)[:SHOWN_MAX]
            self._count += bad.num_rows

    @property
    def answers(self) -> Answers:
        shown = [Answer(NOWHERE, each.values) if each.position == _LAST else each for each in self._shown]
        return Answers(shown, self._count)


_LAST = np.iinfo(np.int64).max
"""The position of committed rows, behind all that come in."""


def _numbered(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Columns as they are compared and under other names, because a property may have any."""
    return pa.Table.from_arrays([zeros.one_zero(column) for column in rows.columns], names=list(names))


def _absent(rows: pa.Table, column: str, known: pa.ChunkedArray) -> pa.Table:
    """The rows whose value is not among the known ones."""
    return rows.filter(pc.invert(pc.is_in(rows[column], value_set=wide.one_array(known))))


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
    values = wide.concat(samples)
    values = wide.take(values, pc.sort_indices(values))
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
    return pa.concat_tables(parts)


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


def _numbers(rows: pa.Table, column: str) -> Numbers:
    return np.asarray(rows[column], dtype=np.int64)
