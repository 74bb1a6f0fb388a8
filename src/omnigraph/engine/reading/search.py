"""Words: which rows hold them, and how well.

Statistics of `bm25` cover the live rows of the whole type. Text indexes are kept per data file in the shared cache, and
those of large files on disk.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from omnigraph.engine.reading.context import Context
from omnigraph.engine.reading.kernels import Bools, Ints
from omnigraph.engine.reading.persist import TEXT_ROWS_MIN, load_text_index, save_text_index
from omnigraph.engine.reading.tables import Group, Part, TableView
from omnigraph.engine.reading.text import TextIndex, analyse, build_text_index, within_distance
from omnigraph.errors import InputError, InternalError
from omnigraph.plan.operators import Bm25, TextFunction, TextMatch, Value

Floats = npt.NDArray[np.float64]
K1, B = 1.2, 0.75
FUZZY_DISTANCE = 2


def text_index(view: TableView, group: Group, column: str) -> TextIndex:
    """The text index of one column of one group, made once per data file and added to when a group grows."""
    field_id = view.handle.field_ids.get(column, column)

    def make(part: Part) -> TextIndex:
        large = part.physical_rows >= TEXT_ROWS_MIN
        made = load_text_index(view.handle, part.files, field_id) if large else None
        if made is None:
            made = build_text_index(view.chunk(part, column))
            if large:
                save_text_index(view.handle, part.files, field_id, made)
        return made

    return view.derived(group, lambda part: ("text", part.files, field_id), make, TextIndex.followed_by)


# --- Bool functions ---------------------------------------------------------------------------------------------------


def text_positions(context: Context, match: TextMatch) -> Ints:
    """The positions a text function is true at, ascending; deleted rows may be among them."""
    view = context.view(match.property.variable)
    words = list(dict.fromkeys(analyse(query_text(context, match.query))))
    if not words:
        return np.empty(0, dtype=np.int64)
    most = _fuzzy_distance(context, match) if match.function is TextFunction.FUZZY else 0
    found: list[Ints] = []
    for start, group in zip(view.group_starts, view.groups, strict=False):
        index = text_index(view, group, match.property.property)
        for word in words:
            if most:
                numbers = within_distance(index.tokens, word, most)
            else:
                number = index.find(word)
                numbers = np.array([number] if number >= 0 else [], dtype=np.int64)
            found.extend(index.postings(int(number))[0] + start for number in numbers)
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)


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
    view = context.view(rank.property.variable)
    scores = np.zeros(view.position_count, dtype=np.float64)
    words = list(dict.fromkeys(analyse(query_text(context, rank.query))))
    if not words or not view.live_count:
        return scores
    column = rank.property.property
    indexes = [text_index(view, group, column) for group in view.groups]
    documents, mean_length = _text_statistics(view, column, indexes)
    for word in words:
        postings = []
        holders = 0
        for start, index in zip(view.group_starts, indexes, strict=False):
            number = index.find(word)
            if number < 0:
                continue
            rows, counts = index.postings(number)
            positions = rows + start
            postings.append((positions, counts, index.lengths[rows]))
            holders += len(rows) if view.all_live else int(np.count_nonzero(view.live[positions]))
        inverse = math.log(1 + (documents - holders + 0.5) / (holders + 0.5))
        for positions, counts, lengths in postings:
            share = 1 - B + B * lengths / mean_length
            scores[positions] += inverse * (counts * (K1 + 1)) / (counts + K1 * share)
    return scores


def _text_statistics(view: TableView, column: str, indexes: list[TextIndex]) -> tuple[int, float]:
    """(live rows with a text, their mean number of tokens); remembered for the version."""
    memo = view.handle.memo.setdefault("text statistics", {})
    if column not in memo:
        documents = tokens = 0
        for start, index in zip(view.group_starts.tolist(), indexes, strict=False):
            held, spoken = index.totals
            if not view.all_live:
                dead = np.flatnonzero(~view.live[start : start + len(index.valid)])
                held -= int(np.count_nonzero(index.valid[dead]))
                spoken -= int(index.lengths[dead].sum(dtype=np.int64))
            documents, tokens = documents + held, tokens + spoken
        memo[column] = (documents, tokens / documents if tokens else 1.0)
    found: tuple[int, float] = memo[column]
    return found
