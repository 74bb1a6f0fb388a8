"""Scores: which rows hold a text, how well, and how near a vector is.

Statistics of `bm25` cover the live rows of the whole type. Distances are exact: a fast single-precision pass only
narrows the choice, and double precision decides among what is left. Text indexes and vector norms are kept per data
file in the shared cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.reading.context import Context
from omnigraph.engine.reading.kernels import Bools, Ints
from omnigraph.engine.reading.persist import TEXT_ROWS_MIN, load_text_index, save_text_index
from omnigraph.engine.reading.tables import Group, TableView
from omnigraph.engine.reading.text import TextIndex, analyse, build_text_index, within_distance
from omnigraph.errors import InputError, InternalError
from omnigraph.plan.operators import Bm25, Nearest, Now, ParameterRef, TextFunction, TextMatch, Value

Floats = npt.NDArray[np.float64]
K1, B = 1.2, 0.75
FUZZY_DISTANCE = 2
OVERFLOW_LENGTH = 1e15
"""Vectors longer than this are compared in double precision throughout."""


def text_index(view: TableView, group: Group, column: str) -> TextIndex:
    """The text index of one column of one group, made once per data file."""
    field_id = view.handle.field_ids.get(column, column)
    key = ("text", group.files, field_id)
    found = view.cache.get(key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    made = None
    is_large = group.physical_rows >= TEXT_ROWS_MIN
    if is_large:
        made = load_text_index(view.handle, group.files, field_id)
    if made is None:
        made = build_text_index(view.chunk(group, column))
        if is_large:
            save_text_index(view.handle, group.files, field_id, made)
    view.cache.put(key, made, made.nbytes)
    return made


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
        for start, index in zip(view.group_starts, indexes, strict=False):
            if view.all_live:
                documents += int(np.count_nonzero(index.valid))
                tokens += int(index.lengths.sum(dtype=np.int64))
            else:
                live = view.live[start : start + len(index.valid)]
                documents += int(np.count_nonzero(index.valid & live))
                tokens += int(index.lengths[live].sum(dtype=np.int64))
        memo[column] = (documents, tokens / documents if tokens else 1.0)
    found: tuple[int, float] = memo[column]
    return found


# --- nearest ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vectors:
    """The vectors of one group: a matrix, the squared length of each row, and which rows are not null."""

    matrix: npt.NDArray[np.float32]
    norms: npt.NDArray[np.float32]
    longest: float
    valid: Bools | None


def vectors(view: TableView, group: Group, column: str) -> Vectors:
    """The vector column of one group, made once per data file."""
    key = ("vectors", group.files, view.handle.field_ids.get(column, column))
    found = view.cache.get(key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    made = as_vectors(view.chunk(group, column))
    view.cache.put(key, made, int(made.norms.nbytes))
    return made


def as_vectors(array: pa.FixedSizeListArray) -> Vectors:
    """View a vector column as a matrix."""
    width = array.type.list_size
    flat = array.values.slice(array.offset * width, len(array) * width)
    matrix = flat.to_numpy(zero_copy_only=flat.null_count == 0).reshape(len(array), width)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    norms = np.einsum("ij,ij->i", matrix, matrix)
    if valid is not None:
        norms = np.where(valid, norms, 0)
    top = float(norms.max(initial=0.0))
    longest = math.sqrt(top) if math.isfinite(top) else math.inf
    return Vectors(matrix, norms, longest, valid)


def query_vector(context: Context, rank: Nearest) -> npt.NDArray[np.float32] | None:
    """The vector to measure from: given, or made from a text by the embedder; None when the query is null.

    Raises:
        InputError: a text without an embedder, or with one whose model is not the property's.
    """
    key = ("query vector", rank.property.property, id(rank.query))
    if key not in context.memo:
        context.memo[key] = _query_vector(context, rank)
    found: npt.NDArray[np.float32] | None = context.memo[key]
    return found


def _query_vector(context: Context, rank: Nearest) -> npt.NDArray[np.float32] | None:
    query = rank.query
    if isinstance(query, Now):
        raise InternalError("nearest was given a moment instead of a vector")
    values = context.parameter(query) if isinstance(query, ParameterRef) else query.value
    if values is None:
        return None
    dimension = rank.property.type.dimension or 0
    if isinstance(values, str):
        values = _embed(context, rank, values, dimension)
    if len(values) != dimension:
        raise InputError(
            f"nearest on '{rank.property.property}' needs a vector of {dimension} numbers, got {len(values)}",
            code="param",
        )
    return np.asarray(values, dtype=np.float32)


def _embed(context: Context, rank: Nearest, text: str, dimension: int) -> tuple[float, ...]:
    if context.embedder is None:
        raise InputError(
            f"nearest on '{rank.property.property}' was given text, and no embedding provider is configured:"
            " configure one, or pass a vector"
        )
    if rank.embed_model is not None and rank.embed_model != context.embedder.model:
        raise InputError(
            f"the vectors of '{rank.property.property}' were made by model '{rank.embed_model}', but the configured"
            f" provider's model is '{context.embedder.model}': their distances mean nothing"
        )
    return context.embedder.embed_query(text, dimension)


def distances(context: Context, rank: Nearest, positions: npt.NDArray[Any]) -> tuple[Floats, Bools]:
    """The exact squared distance at each position, and where there is one (the vector is not null)."""
    result = np.zeros(len(positions), dtype=np.float64)
    known = np.zeros(len(positions), dtype=np.bool_)
    query = query_vector(context, rank)
    if query is None:
        return result, known
    view = context.view(rank.property.variable)
    for places, rows, part in _by_group(view, rank.property.property, positions):
        if rows is not None:
            result[places] = exact_distances(part.matrix, rows, query)
            known[places] = True if part.valid is None else part.valid[rows]
    return result, known


def exact_distances(matrix: npt.NDArray[np.float32], rows: Ints, query: npt.NDArray[np.float32]) -> Floats:
    """Squared distances in double precision, in slices so that the widened copy stays small."""
    wide = query.astype(np.float64)
    result = np.empty(len(rows), dtype=np.float64)
    step = max(1, (8 << 20) // max(len(wide), 1))
    for begin in range(0, len(rows), step):
        difference = matrix[rows[begin : begin + step]].astype(np.float64) - wide
        result[begin : begin + step] = (difference * difference).sum(axis=1)
    return result


def nearest_candidates(context: Context, rank: Nearest, positions: Ints, count: int) -> Ints:
    """Among distinct ascending positions, those that may be one of the `count` nearest; null vectors never are.

    Single precision orders them; whoever is within its error of the last place stays in.
    """
    query = query_vector(context, rank)
    if query is None or not count or not len(positions):
        return positions[:0]
    view = context.view(rank.property.variable)
    everything = len(positions) == view.position_count
    approximate = np.empty(len(positions), dtype=np.float32)
    longest = 0.0
    for places, rows, part in _by_group(view, rank.property.property, None if everything else positions):
        if rows is None:
            estimate, valid = part.norms - 2 * (part.matrix @ query), part.valid
        else:
            estimate = part.norms[rows] - 2 * (part.matrix[rows] @ query)
            valid = None if part.valid is None else part.valid[rows]
        approximate[places] = estimate if valid is None else np.where(valid, estimate, np.inf)
        longest = max(longest, part.longest)
    length = float(np.linalg.norm(query.astype(np.float64)))
    if count >= len(positions) or max(longest, length) > OVERFLOW_LENGTH:
        return positions[distances(context, rank, positions)[1]]
    limit = float(np.partition(approximate, count - 1)[count - 1])
    unit = float(np.finfo(np.float32).eps)
    error = 2 * unit * len(query) * longest * length + 4 * unit * (longest * longest + length * length)
    return positions[np.flatnonzero((approximate <= limit + 2 * error) & np.isfinite(approximate))]


def _by_group(
    view: TableView, column: str, positions: npt.NDArray[Any] | None
) -> list[tuple[Any, Ints | None, Vectors]]:
    """Split positions by group: (where they stand in the input, their rows in the group, its vectors).

    Without positions every row of every group is meant, and rows are None.
    """
    if positions is None:
        return [
            (slice(int(start), int(start) + group.physical_rows), None, vectors(view, group, column))
            for start, group in zip(view.group_starts, view.groups, strict=False)
        ]
    if len(view.groups) == 1:
        return [(slice(None), np.asarray(positions), vectors(view, view.groups[0], column))]
    owner = np.searchsorted(view.group_starts, positions, side="right") - 1
    parts: list[tuple[Any, Ints | None, Vectors]] = []
    for index, group in enumerate(view.groups):
        places = np.flatnonzero(owner == index)
        if len(places):
            parts.append((places, positions[places] - view.group_starts[index], vectors(view, group, column)))
    return parts
