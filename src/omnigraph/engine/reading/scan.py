"""Where rows begin: the nodes of a type that pass their own conditions, and joins by equal values.

Equality is answered from sorted values once a column has been asked for twice; text conditions from the text index;
everything else by testing whole columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.engine.reading.context import Context
from omnigraph.engine.reading.frame import Frame
from omnigraph.engine.reading.kernels import Bools, Ints, ranges
from omnigraph.engine.reading.predicates import FrameRows, GroupRows, predicate_mask
from omnigraph.engine.reading.prepare import Clause
from omnigraph.engine.reading.search import text_positions
from omnigraph.engine.reading.tables import Group, NodeView, TableView
from omnigraph.engine.reading.values import as_numpy
from omnigraph.errors import InternalError
from omnigraph.plan.operators import (
    Comparison,
    ComparisonOperator,
    Literal,
    Now,
    ParameterRef,
    Predicate,
    PropertyRef,
    TextMatch,
)

ASKED_BEFORE_INDEXING = 2
INDEXED_ROWS_MIN = 512
_INDEXABLE = INTEGERS | {Scalar.STRING, Scalar.DATE, Scalar.DATETIME}


def start_rows(context: Context, variable: str, predicates: Sequence[Predicate]) -> tuple[Ints, str]:
    """The codes of the nodes that pass all predicates of one variable, and how they were found."""
    view = context.nodes(context.types[variable])
    if not predicates:
        return view.live_codes, ""
    seed, positions = _seed(context, view, predicates)
    rest = [predicate for predicate in predicates if predicate is not seed]
    if seed is None:
        return view.codes[scan_mask(context, view, predicates)].astype(np.int64), "; by testing whole columns"
    if not view.all_live:
        positions = positions[view.live[positions]]
    frame = Frame(len(positions), {variable: view.codes_at(positions)})
    for predicate in rest:
        frame = frame.where(predicate_mask(context, predicate, FrameRows(context, frame)))
    how = "; from the text index" if isinstance(seed, TextMatch) else "; from sorted values"
    return frame.columns[variable], how


def scan_mask(context: Context, view: TableView, predicates: Sequence[Predicate]) -> Bools:
    """Which positions are live and pass all predicates, tested group by group."""
    mask = np.zeros(view.position_count, dtype=np.bool_)
    for index in range(len(view.groups)):
        rows = GroupRows(view, index)
        span = slice(int(view.group_starts[index]), int(view.group_starts[index + 1]))
        part = predicate_mask(context, predicates[0], rows)
        for predicate in predicates[1:]:
            if not part.any():
                break
            part = part & predicate_mask(context, predicate, rows)
        mask[span] = part
    return mask if view.all_live else mask & view.live


def mask_by_code(context: Context, variable: str, predicates: Sequence[Predicate]) -> Bools:
    """Which codes are nodes that pass all predicates."""
    view = context.nodes(context.types[variable])
    marks = np.zeros(len(view.positions), dtype=np.bool_)
    marks[view.codes[scan_mask(context, view, predicates)]] = True
    return marks


def _seed(context: Context, view: NodeView, predicates: Sequence[Predicate]) -> tuple[Predicate | None, Ints]:
    """A predicate that can name its rows without a scan, and those rows."""
    for predicate in predicates:
        found = equal_positions(context, view, predicate)
        if found is not None:
            return predicate, found
    for predicate in predicates:
        if isinstance(predicate, TextMatch):
            return predicate, text_positions(context, predicate)
    return None, np.empty(0, dtype=np.int64)


# --- sorted values ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SortedValues:
    """The non-null values of one column of one group, ascending, with the row of each."""

    values: Any
    rows: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        return int(self.values.nbytes + self.rows.nbytes)

    def equal(self, value: Any) -> npt.NDArray[np.int32]:
        """The rows that hold a value."""
        if isinstance(self.values, pa.Array):
            wanted = pa.scalar(value, self.values.type)
            low = pc.search_sorted(self.values, wanted, side="left").as_py()
            if low == len(self.values) or self.values[low] != wanted:
                return self.rows[:0]
            if low + 1 == len(self.values) or self.values[low + 1] != wanted:
                return self.rows[low : low + 1]
            high = pc.search_sorted(self.values, wanted, side="right").as_py()
        else:
            low = int(np.searchsorted(self.values, value, side="left"))
            high = int(np.searchsorted(self.values, value, side="right"))
        return self.rows[low:high]

    def followed_by(self, more: SortedValues, start: int) -> SortedValues:
        """With further rows, numbered from `start`, put into their places."""
        if isinstance(self.values, pa.Array):
            places = pc.search_sorted(self.values, more.values, side="right").to_numpy()
            order = np.insert(np.arange(len(self.values)), places, len(self.values) + np.arange(len(more.values)))
            values = pa.concat_arrays([self.values, more.values]).take(pa.array(order))
        else:
            places = np.searchsorted(self.values, more.values, side="right")
            values = np.insert(self.values, places, more.values)
        return SortedValues(values, np.insert(self.rows, places, more.rows + np.int32(start)))


def sort_values(column: pa.Array) -> SortedValues:
    """Sort one column of one group."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        order = pc.sort_indices(column).to_numpy()[: len(column) - column.null_count]
        return SortedValues(column.take(pa.array(order)), order.astype(np.int32))
    numbers, valid = as_numpy(column)
    order = np.argsort(numbers, kind="stable")
    if valid is not None:
        order = order[valid[order]]
    return SortedValues(numbers[order], order.astype(np.int32))


def equal_positions(context: Context, view: TableView, predicate: Predicate) -> Ints | None:
    """The positions an equality with a constant selects, or None when a scan is the way to find out."""
    if not context.options.use_value_indexes:
        return None
    parsed = _equality(predicate)
    if parsed is None or view.position_count < INDEXED_ROWS_MIN:
        return None
    reference, other = parsed
    value = context.constant(other).value
    if value is None or not view.groups:
        return np.empty(0, dtype=np.int64)
    if reference.type.scalar in INTEGERS:
        if isinstance(value, float):
            if not value.is_integer():
                return np.empty(0, dtype=np.int64)
            value = int(value)
        kind = np.iinfo(view.handle.schema.field(reference.property).type.to_pandas_dtype())
        if not kind.min <= value <= kind.max:
            return np.empty(0, dtype=np.int64)
    indexes = _sorted_column(view, reference.property)
    if indexes is None:
        return None
    found = [index.equal(value) + start for start, index in zip(view.group_starts, indexes, strict=False)]
    return np.asarray(found[0] if len(found) == 1 else np.concatenate(found), dtype=np.int64)


def _sorted_column(view: TableView, column: str) -> list[SortedValues] | None:
    """The sorted values of every group; made when the column is asked for the second time."""
    memo: dict[str, list[SortedValues]] = view.handle.memo.setdefault("sorted values", {})
    ready = memo.get(column)
    if ready is not None:
        return ready
    field_id = view.handle.field_ids.get(column, column)
    keys = [("sorted", group.files, field_id) for group in view.groups]
    if any(view.cache.get(key) is None for key in keys):
        asked_key = ("asked", view.handle.uri, field_id)
        asked = (view.cache.get(asked_key) or 0) + 1
        view.cache.put(asked_key, asked, 64)
        if asked < ASKED_BEFORE_INDEXING:
            return None
    found = memo[column] = [_sorted_group(view, group, column) for group in view.groups]
    return found


def _sorted_group(view: TableView, group: Group, column: str) -> SortedValues:
    field_id = view.handle.field_ids.get(column, column)

    def join(held: SortedValues, more: SortedValues) -> SortedValues:
        return held.followed_by(more, group.physical_rows - group.fragments[-1].physical_rows)

    return view.derived(
        group, lambda part: ("sorted", part.files, field_id), lambda part: sort_values(view.chunk(part, column)), join
    )


def _equality(predicate: Predicate) -> tuple[PropertyRef, ParameterRef | Literal | Now] | None:
    if not isinstance(predicate, Comparison) or predicate.operator is not ComparisonOperator.EQ:
        return None
    for one, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
        if isinstance(one, PropertyRef) and isinstance(other, ParameterRef | Literal | Now):
            return (one, other) if one.type.scalar in _INDEXABLE and not one.type.is_list else None
    return None


# --- joins by value ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ValueJoin:
    """An equality between a property that is bound and one of a variable that is not yet."""

    clause: Clause
    bound: PropertyRef
    other: PropertyRef

    @property
    def variable(self) -> str:
        """The variable the join binds."""
        return self.other.variable


def find_join(frame: Frame, clauses: Collection[Clause], scans: Mapping[str, str]) -> ValueJoin | None:
    """An equality that binds a further variable, if the pattern has one."""
    for clause in clauses:
        predicate = clause.predicate
        if not isinstance(predicate, Comparison) or predicate.operator is not ComparisonOperator.EQ:
            continue
        for one, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
            if not (isinstance(one, PropertyRef) and isinstance(other, PropertyRef)):
                continue
            if one.type.scalar is not other.type.scalar or one.type.scalar not in _INDEXABLE:
                continue
            if one.variable in frame.columns and other.variable in scans:
                return ValueJoin(clause, one, other)
    return None


def join_by_value(context: Context, frame: Frame, link: ValueJoin) -> Frame:
    """Bind a variable to every node whose property equals the bound one; nulls equal nothing."""
    view = context.view(link.variable)
    if not isinstance(view, NodeView):
        raise InternalError(f"${link.variable} is not a node variable and cannot be joined by value")
    codes = view.live_codes
    left = FrameRows(context, frame).fetch(link.bound)
    right = view.take(link.other.property, view.position_of(codes))
    encoded = pc.dictionary_encode(pa.concat_arrays([left, right.cast(left.type)]))
    keys = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
    left_keys, right_keys = keys[: len(left)], keys[len(left) :]
    held = np.flatnonzero(right_keys >= 0)
    held = held[np.argsort(right_keys[held], kind="stable")]
    ordered = right_keys[held]
    begins = np.searchsorted(ordered, left_keys, side="left")
    sizes = np.where(left_keys >= 0, np.searchsorted(ordered, left_keys, side="right") - begins, 0)
    context.check_rows(int(sizes.sum()), len(frame.columns) + 1, f"joining ${link.variable} by value")
    places, owner = ranges(begins, sizes)
    return frame.take(owner).bind(link.variable, codes[held[places]])
