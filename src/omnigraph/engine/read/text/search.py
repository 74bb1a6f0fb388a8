"""Words: which rows hold them, and how well.

Statistics of `bm25` cover the live rows of the whole type. Text indexes are kept per data file in the shared cache, and
those of large files on disk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.cache import persist
from omnigraph.engine.read.cache.persist import load_text_index, save_text_index
from omnigraph.engine.read.columns.tables import Group, Part, TableView
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.kernels import Bools, Ints
from omnigraph.engine.read.text.analysis import (
    Postings,
    TextIndex,
    TextParts,
    analyse,
    build_text_index,
    within_distance,
)
from omnigraph.errors import InputError, InternalError
from omnigraph.plan.explain import show
from omnigraph.plan.operators import Bm25, TextFunction, TextMatch, Value

Floats = npt.NDArray[np.float64]
K1, B = 1.2, 0.75
FUZZY_DISTANCE = 2
DENSE_SHARE = 8
"""More positions than one in so many of all are put together by marking them, fewer by sorting."""


def text_index(view: TableView, group: Group, column: str) -> TextParts:
    """The text indexes of one column of one group, made once per data file and added to when a group grows."""
    field_id = view.handle.field_ids.get(column, column)

    def make(part: Part) -> TextParts:
        large = part.physical_rows >= persist.TEXT_ROWS_MIN
        made = load_text_index(view.handle, part.files, field_id) if large else None
        if made is None:
            made = build_text_index(view.chunk(part, column))
            if large:
                save_text_index(view.handle, part.files, field_id, made)
        return TextParts((made,))

    def join(held: TextParts, more: TextParts, _: int) -> TextParts:
        return held.followed_by(more)

    return view.derived(group, lambda part: ("text", part.files, field_id), make, join)


def _indexes(view: TableView, column: str) -> list[tuple[int, TextIndex]]:
    """The text indexes of a column, each with the position of its first row; kept with the version."""
    found = view.text_indexes.get(column)
    if found is None:
        found = view.text_indexes[column] = [
            (int(start) + begin, index)
            for start, group in zip(view.group_starts, view.groups, strict=False)
            for begin, index in text_index(view, group, column).numbered()
        ]
        view.remake(_indexes, column)
    return found


def _postings(context: Context, view: TableView, column: str, word: str) -> list[Postings]:
    """Where a word is, index by index; looked up once in an execution."""
    key = (view, column, word)
    found = context.computed.postings.get(key)
    if found is None:
        found = context.computed.postings[key] = []
        for start, index in _indexes(view, column):
            number = index.find(word)
            if number >= 0:
                rows, counts = index.postings(number)
                found.append(Postings(rows.astype(np.int64) + start, counts, index.lengths[rows]))
    return found


def _holding(context: Context, view: TableView, column: str, words: list[str]) -> Ints:
    """The positions that hold any of the words, ascending; put together once in an execution."""
    key = (view, column, tuple(words))
    found = context.computed.holding.get(key)
    if found is None:
        parts = [each.positions for word in words for each in _postings(context, view, column, word)]
        found = context.computed.holding[key] = _union(parts, view.position_count)
    return found


def _words(context: Context, query: Value) -> list[str]:
    """The distinct words of a query text, in their order."""
    return list(dict.fromkeys(analyse(query_text(context, query))))


def _union(parts: list[Ints], bound: int) -> Ints:
    """Distinct positions, ascending, of several that are each ascending and distinct."""
    if not parts:
        return np.empty(0, dtype=np.int64)
    if len(parts) == 1:
        return parts[0]
    together = np.concatenate(parts)
    if len(together) * DENSE_SHARE > bound:
        mask = np.zeros(bound, dtype=np.bool_)
        mask[together] = True
        return np.flatnonzero(mask)
    together.sort()
    fresh = np.ones(len(together), dtype=np.bool_)
    np.not_equal(together[1:], together[:-1], out=fresh[1:])
    return together[fresh]


# --- Bool functions ---------------------------------------------------------------------------------------------------


def text_positions(context: Context, match: TextMatch) -> Ints:
    """The positions a text function is true at, ascending; deleted rows may be among them."""
    view, column = context.view(match.property.variable), match.property.property
    key = (view, match)
    known = context.computed.text_positions.get(key)
    if known is not None:
        return known
    words = _words(context, match.query)
    most = _fuzzy_distance(context, match) if match.function is TextFunction.FUZZY and words else 0
    note = context.step("search", lambda: show(match))
    note.depth += 1
    tried = 0
    if most:
        found: list[Ints] = []
        for start, index in _indexes(view, column):
            tried += len(index.tokens)
            for word in words:
                numbers = within_distance(index.tokens, word, most).tolist()
                found.extend(index.postings(number)[0].astype(np.int64) + start for number in numbers)
        positions = _union(found, view.position_count)
    else:
        positions = _holding(context, view, column, words)
    context.computed.text_positions[key] = positions
    note.done(len(positions))
    note.because(lambda: _answered(view, column, words, f"{tried:,} distinct words compared" if most else ""))
    return positions


def _answered(view: TableView, column: str, words: list[str], more: str = "") -> str:
    """How a text question was answered, in words."""
    if not words:
        return "the query text has no words to look for"
    count = len(_indexes(view, column))
    indexes = "the text index" if count == 1 else f"{count:,} text indexes"
    return ", ".join(filter(None, (f"{_numbered(len(words), 'word')} looked up in {indexes}", more)))


def _numbered(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def text_mask(context: Context, match: TextMatch) -> Bools:
    """Whether a text function is true, by position; a null text has no tokens, so it is false there."""
    mask = np.zeros(context.view(match.property.variable).position_count, dtype=np.bool_)
    mask[text_positions(context, match)] = True
    return mask


def query_text(context: Context, value: Value) -> str | None:
    """The query text of a search function."""
    text = context.constant(value).value
    if text is not None and not isinstance(text, str):
        raise InternalError(f"a text search was given {type(text).__name__} instead of text")
    return text


def _fuzzy_distance(context: Context, match: TextMatch) -> int:
    if match.max_distance is None:
        return FUZZY_DISTANCE
    most = context.constant(match.max_distance).value
    if most is None or most < 0:
        raise InputError("the distance of fuzzy must be an integer of at least 0", code="param")
    return int(most)


# --- bm25 -------------------------------------------------------------------------------------------------------------


def bm25_scores(context: Context, rank: Bm25) -> Floats:
    """The score of every position, 0.0 where no token is shared."""
    positions, found = bm25_found(context, rank)
    scores = np.zeros(context.view(rank.property.variable).position_count, dtype=np.float64)
    scores[positions] = found
    return scores


def bm25_at(context: Context, rank: Bm25, places: npt.NDArray[Any]) -> Floats:
    """The scores at some positions."""
    positions, found = bm25_found(context, rank)
    if places is positions:
        return found
    if len(places) > len(positions):
        return np.asarray(bm25_scores(context, rank)[places])
    index = np.minimum(np.searchsorted(positions, places), max(len(positions) - 1, 0))
    return np.where(positions[index] == places, found[index], 0.0) if len(positions) else np.zeros(len(places))


def bm25_found(context: Context, rank: Bm25) -> tuple[Ints, Floats]:
    """(positions that share a word, ascending; their scores); deleted rows are among them.

    A word is worth the same wherever it is asked for, and a score is summed in the order of the query's words.
    """
    known = context.computed.bm25_found.get(rank)
    if known is not None:
        return known
    view, column = context.view(rank.property.variable), rank.property.property
    words = _words(context, rank.query)
    note = context.step("score", lambda: show(rank))
    note.depth += 1
    positions = _holding(context, view, column, words)
    held = [_postings(context, view, column, word) for word in words]
    scores = np.zeros(len(positions), dtype=np.float64)
    if len(positions):
        documents, mean_length = _text_statistics(view, column)
        for postings in held:
            holders = sum(_live_count(view, each.positions) for each in postings)
            inverse = math.log(1 + (documents - holders + 0.5) / (holders + 0.5))
            for each in postings:
                share = 1 - B + B * each.lengths / mean_length
                where = _places(positions, each.positions)
                scores[where] += inverse * (each.counts * (K1 + 1)) / (each.counts + K1 * share)
    context.computed.bm25_found[rank] = positions, scores
    note.done(len(positions))
    note.because(lambda: _answered(view, column, words, f"{_numbered(len(positions), 'text')} scored"))
    return positions, scores


def _places(all_positions: Ints, some: Ints) -> Ints | slice:
    """Where some of the positions stand among all."""
    return slice(None) if len(some) == len(all_positions) else np.searchsorted(all_positions, some)


def _live_count(view: TableView, positions: Ints) -> int:
    return len(positions) if view.all_live else int(np.count_nonzero(view.is_live(positions)))


def _text_statistics(view: TableView, column: str) -> tuple[int, float]:
    """(live rows with a text, their mean number of tokens); remembered for the version.

    Each index knows its own sums; what was deleted since is taken off.
    """
    if column not in view.text_statistics:
        documents = tokens = 0
        dead = view.deleted_positions
        for start, index in _indexes(view, column):
            held, spoken = index.totals
            begin, end = np.searchsorted(dead, (start, start + len(index.valid)))
            gone = dead[begin:end] - start
            documents += held - int(np.count_nonzero(index.valid[gone]))
            tokens += spoken - int(index.lengths[gone].sum(dtype=np.int64))
        view.text_statistics[column] = (documents, tokens / documents if tokens else 1.0)
        view.remake(_text_statistics, column)
    return view.text_statistics[column]
