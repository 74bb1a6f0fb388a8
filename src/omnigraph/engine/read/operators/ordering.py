"""Putting rows in their one order: nulls smallest, NaN the largest number, ids to break ties.

Every sort key becomes integers that are small first. Keys are made only for the rows that can still matter: with a
limit, the first key alone discards nearly everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import wide
from omnigraph.catalog.types import Scalar
from omnigraph.engine.read.columns import tables
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.columns.values import as_numpy
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.kernels import Ints, fill_ranges
from omnigraph.engine.read.operators.positions import positions
from omnigraph.plan.operators import Expression, PropertyRef

Key = Callable[[npt.NDArray[Any] | None], npt.NDArray[Any]]
"""Sort key: given the rows of interest (None: all), integers that sort ascending as the rows should."""
RANKS_FROM_DICTIONARY_MIN = 20_000
FEW_TEXTS = 384
"""Up to this many texts are ranked in Python, as starting the vectorised way costs more."""
WORDS_MAX = 6
"""Texts of up to this many times eight bytes are compared as integers,"""
WORDS_ROWS_MIN, WORDS_ROWS_MAX = 32, 2048
"""if there are so many; more are sorted by Arrow."""
LONG_TEXT_BYTES = 64
"""Texts that are this long on average are ranked where they lie: a dictionary would copy all of them, several times
while it grows, and texts of that length hardly repeat."""


def sort_key(array: pa.Array, descending: bool = False) -> npt.NDArray[Any]:
    """Integers that order as the values do; nulls are smallest, so last when descending."""
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        ranks = _list_ranks(array)
        return ~ranks if descending else ranks
    if wide.is_text(array.type):
        key: npt.NDArray[Any] = _text_ranks(array)
        return ~key if descending else key
    numbers, valid = as_numpy(array)
    key = float_key(numbers) if numbers.dtype.kind == "f" else numbers
    if key.dtype == np.bool_:
        key = key.astype(np.int64)
    if valid is not None:
        _, dense = np.unique(key, return_inverse=True)
        key = np.where(valid, dense.reshape(-1) + 1, 0)
    return ~key if descending else key


def _list_ranks(array: pa.Array) -> Ints:
    """Integers that order as lists do, item by item, a shorter one before its continuations; a null is 0."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    _, items = np.unique(sort_key(array.flatten()), return_inverse=True)
    items = items.reshape(-1).astype(np.int64) + 1
    begins = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))[:-1]
    ranks = valid.astype(np.int64)
    for place in range(int(lengths.max(initial=0))):
        longer = lengths > place
        at_place = np.zeros(len(array), dtype=np.int64)
        at_place[longer] = items[begins[longer] + place]
        pairs = ranks * (len(items) + 2) + at_place
        _, ranks = np.unique(pairs, return_inverse=True)
        ranks = np.where(valid, ranks.reshape(-1) + 1, 0)
    return np.asarray(ranks, dtype=np.int64)


def float_key(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Integers that order as floats do, with NaN above infinity and both zeros equal."""
    wide = numbers.astype(np.float64) + 0.0
    wide = np.where(np.isnan(wide), np.nan, wide)
    bits = wide.view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def _text_ranks(array: pa.Array) -> npt.NDArray[Any]:
    """Integers that order as texts do by their bytes; a null is 0."""
    if WORDS_ROWS_MIN <= len(array) <= WORDS_ROWS_MAX and array.null_count == 0 and pa.types.is_string(array.type):
        ranks = _ranks_by_words(array)
        if ranks is not None:
            return ranks
    if len(array) <= FEW_TEXTS:
        texts = [text if text is None else text.encode() for text in array.to_pylist()]
        places = {text: place for place, text in enumerate(sorted({t for t in texts if t is not None}), 1)}
        return np.array([0 if text is None else places[text] for text in texts], dtype=np.int64)
    if array.nbytes >= LONG_TEXT_BYTES * len(array):
        found = pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False)
        dense = found.astype(np.int64)
        return dense if array.null_count == 0 else np.where(array.is_valid().to_numpy(zero_copy_only=False), dense, 0)
    encoded = pc.dictionary_encode(array)
    order = pc.sort_indices(encoded.dictionary).to_numpy(zero_copy_only=False)
    ranks = np.empty(len(order) + 1, dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    ranks[len(order)] = 0
    return np.asarray(ranks[pc.fill_null(encoded.indices, len(order)).to_numpy(zero_copy_only=False)])


def _ranks_by_words(array: pa.Array) -> npt.NDArray[Any] | None:
    """The ranks of short texts, compared eight bytes at a time; None for longer ones."""
    count = len(array)
    _, ends, data = array.buffers()
    offsets = np.frombuffer(ends, dtype=np.int32)[array.offset : array.offset + count + 1]
    lengths = offsets[1:] - offsets[:-1]
    longest = int(lengths.max(initial=0))
    if longest > WORDS_MAX * 8:
        return None
    begin, end = int(offsets[0]), int(offsets[-1])
    width = max(-(-longest // 8), 1)
    padded = np.zeros((count, width * 8), dtype=np.uint8)
    is_even = end - begin == longest * count
    if end > begin:
        held = np.frombuffer(data, dtype=np.uint8)[begin:end]
        if is_even:
            padded[:, :longest] = held.reshape(count, longest)
        else:
            padded.reshape(-1)[fill_ranges(np.arange(count) * (width * 8), lengths, end - begin)] = held
    words = padded.view(">u8").astype(np.uint64)
    if width == 1 and is_even:
        return words[:, 0]
    # Padding is a byte that a text may have too, so among texts that are equal so far the shorter one is first.
    columns = [lengths, *(words[:, word] for word in range(width - 1, -1, -1))]
    order = np.lexsort(columns)
    differs = np.zeros(count, dtype=np.bool_)
    for column in columns:
        ordered = column[order]
        differs[1:] |= ordered[1:] != ordered[:-1]
    ranks = np.empty(count, dtype=np.int64)
    ranks[order] = np.cumsum(differs)
    return ranks


def text_key(context: Context, expression: Expression, frame: Frame, descending: bool) -> npt.NDArray[Any] | None:
    """The sort key of a text property whose values are known by codes, so that no text is fetched; None otherwise."""
    if not isinstance(expression, PropertyRef) or expression.type.scalar is not Scalar.STRING:
        return None
    if expression.variable in context.nullable or expression.property == "id":
        return None
    view = context.view(expression.variable)
    order = None if expression.type.is_list else view.value_order(expression.property)
    if order is None:
        return None
    places = positions(context, expression.variable, frame.columns[expression.variable])
    key: npt.NDArray[Any] = order[view.value_codes(expression.property)[places]]
    return ~key if descending else key


def id_key(context: Context, variable: str, values: Ints) -> Key:
    """Orders rows by the id of a variable."""

    def key(rows: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        chosen = values if rows is None else values[rows]
        if variable in context.nullable:
            return nullable_key(chosen)
        return held_key(chosen)

    def nullable_key(chosen: Ints) -> npt.NDArray[Any]:
        """Rows where the variable stands for nothing come first."""
        present = np.flatnonzero(chosen >= 0)
        found = np.zeros(len(chosen), dtype=np.int64)
        if len(present):
            _, dense = np.unique(held_key(chosen[present]), return_inverse=True)
            found[present] = dense.reshape(-1) + 1
        return found

    def held_key(chosen: Ints) -> npt.NDArray[Any]:
        view = context.view(variable)
        if not isinstance(view, NodeView):
            return _text_ranks(view.take("id", positions(context, variable, chosen)))
        is_cheap = view.dictionary.is_ordered if len(chosen) > tables.FEW_ROWS else view.dictionary.is_order_current
        if len(chosen) >= RANKS_FROM_DICTIONARY_MIN or is_cheap:
            return view.dictionary.order()[1:][chosen]
        unique, group = np.unique(chosen, return_inverse=True)
        return _text_ranks(view.dictionary.ids_of(unique))[group.reshape(-1)]

    return key


def ids_of(context: Context, variable: str, values: Ints) -> pa.Array:
    """The ids of a variable's integers."""
    view = context.view(variable)
    if isinstance(view, NodeView):
        return view.dictionary.ids_of(values)
    return view.take("id", positions(context, variable, values))


def tie_break_variables(context: Context, frame: Frame) -> list[str]:
    """The variables whose ids break ties, in name order; a path is told by its ends.

    Anonymous ones have no name: to break ties by their place in the text would make the order of clauses matter.
    """
    named = frame.columns.keys() - context.computed.paths.keys()
    return sorted(name for name in named if not name.startswith(("_anon", "#")))


def order_rows(length: int, keys: Sequence[Key], limit: int | None) -> Ints:
    """The rows in order, at most `limit` of them; later keys are made only for rows the earlier ones leave equal."""
    if limit == 0 or length == 0:
        return np.empty(0, dtype=np.int64)
    if not keys:
        return np.arange(length if limit is None else min(limit, length), dtype=np.int64)
    return _ordered(None, length, keys, limit)


def _ordered(rows: Ints | None, length: int, keys: Sequence[Key], limit: int | None) -> Ints:
    if not keys:
        everything = np.arange(length, dtype=np.int64) if rows is None else rows
        return everything[:limit]
    values = keys[0](rows)
    if limit is None or length <= 2 * limit:
        return _sorted(rows, values, keys[1:])[:limit]
    ranked = values.copy()
    ranked.partition(limit - 1)
    last = ranked[limit - 1]
    sure, tied = (values < last).nonzero()[0], (values == last).nonzero()[0]
    head = _sorted(sure if rows is None else rows[sure], values[sure], keys[1:])
    tail = _ordered(tied if rows is None else rows[tied], len(tied), keys[1:], limit - len(sure))
    return np.concatenate((head, tail)) if len(head) else tail


def _sorted(rows: Ints | None, values: npt.NDArray[Any], rest: Sequence[Key]) -> Ints:
    order = values.argsort(kind="stable")
    if len(order) > 1 and rest:
        made = [values]
        same = _equal_neighbours(values, order)
        for key in rest:
            if not same.any():
                break
            made.append(key(rows))
            order = np.lexsort(made[::-1])
            same = _equal_neighbours(made[0], order)
            for column in made[1:]:
                same &= _equal_neighbours(column, order)
    return order if rows is None else rows[order]


def _equal_neighbours(values: npt.NDArray[Any], order: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which rows, in an order, equal the one before."""
    ordered = values[order]
    return np.asarray(ordered[1:] == ordered[:-1])
