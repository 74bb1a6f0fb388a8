"""Nearest vectors: which rows may be among the nearest, and exactly how far they are.

Distances are exact: what decides is measured in double precision. Single precision, or the sketch of a large group,
only proves most rows too far away to be measured. With a sketch at hand the vectors themselves need not be in memory:
the few that are measured are read from storage, until a column is asked so often that it is worth holding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import simsimd

from omnigraph.catalog import wide
from omnigraph.engine.read.cache.persist import load_sketch, save_sketch
from omnigraph.engine.read.columns.tables import Group, TableView
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.kernels import Bools, Ints
from omnigraph.engine.read.vector.quantised import (
    EPS,
    Chosen,
    Doubles,
    Singles,
    Sketch,
    build_sketch,
    distance_within,
    narrow,
)
from omnigraph.errors import InputError, InternalError
from omnigraph.plan.explain import show
from omnigraph.plan.operators import Nearest, Now, ParameterRef

SKETCHED_ROWS_MIN = 20_000
"""Smaller groups are compared in single precision, which is as quick as looking for a sketch."""
NARROWED_ROWS_MIN = 2_000
"""So few rows of a large group are compared directly."""
TAKES_BEFORE_HOLDING = 8
TAKEN_ROWS_MAX = 4_096
WIDENED_NUMBERS = 1 << 20
"""Numbers that are widened to double precision at once."""
_UNSKETCHED = "no sketch"


# --- what is asked ----------------------------------------------------------------------------------------------------


def query_vector(context: Context, rank: Nearest) -> Singles | None:
    """The vector to measure from: given, or made from a text by the embedder; None when it is null or empty.

    Raises:
        InputError: a text without an embedder, or with one whose model is not the property's.
    """
    for asked, vector in context.computed.query_vectors:
        if asked.query is rank.query and asked.property.property == rank.property.property:
            return vector
    made = _query_vector(context, rank)
    context.computed.query_vectors.append((rank, made))
    return made


def _query_vector(context: Context, rank: Nearest) -> Singles | None:
    query = rank.query
    if isinstance(query, Now):
        raise InternalError("nearest was given a moment instead of a vector")
    values = context.parameter(query) if isinstance(query, ParameterRef) else query.value
    if values is None:
        return None
    dimension = rank.property.type.dimension or 0
    if isinstance(values, str):
        # An empty text has no direction; like null, it is near to nothing.
        if not values.strip():
            return None
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


# --- what is stored ---------------------------------------------------------------------------------------------------


def as_matrix(array: pa.FixedSizeListArray) -> tuple[Singles, Bools | None]:
    """A vector column as a matrix, and which of its rows are not null (None when all are)."""
    width = array.type.list_size
    flat = array.values.slice(array.offset * width, len(array) * width)
    matrix = flat.to_numpy(zero_copy_only=False).reshape(len(array), width)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return matrix, valid


def vectors_at(view: TableView, group: Group, column: str, rows: Ints) -> tuple[Singles, Bools | None]:
    """Some vectors of a group, from memory if the column is there or is worth having there, else from storage."""
    if view.held(group, column) is None and _is_taken(view, group, column, len(rows)):
        addresses = (np.uint64(group.fragments[0].id) << np.uint64(32)) | rows.astype(np.uint64)
        return as_matrix(wide.one_array(view.handle.take_addresses(addresses, [column]).column(column)))
    matrix, valid = as_matrix(view.chunk(group, column))
    return matrix[rows], None if valid is None else valid[rows]


def _is_taken(view: TableView, group: Group, column: str, count: int) -> bool:
    """Whether to read single rows: there are few, and the column is not asked for often or has no room in memory."""
    if group.physical_rows < SKETCHED_ROWS_MIN or len(group.fragments) > 1 or count > TAKEN_ROWS_MAX:
        return False
    size = group.physical_rows * 4 * view.handle.schema.field(column).type.list_size
    if not view.cache.has_room_for(size):
        return True
    key = ("vectors asked", group.files, view.handle.field_ids.get(column, column))
    asked = (view.cache.get(key) or 0) + 1
    view.cache.put(key, asked, 64)
    return asked <= TAKES_BEFORE_HOLDING


def group_sketch(view: TableView, group: Group, column: str) -> Sketch | None:
    """The sketch of a large group: known, kept on disk by an earlier process, or made now; None for a small group."""
    if group.physical_rows < SKETCHED_ROWS_MIN:
        return None
    field_id = view.handle.field_ids.get(column, column)
    key = ("sketch", group.files, field_id)
    found = view.cache.get(key)
    if found is None:
        found = load_sketch(view.handle, group.files, field_id, group.physical_rows)
        if found is None:
            found = build_sketch(*as_matrix(view.chunk(group, column)))
            if found is not None:
                save_sketch(view.handle, group.files, field_id, found, kept=len(view.groups))
        # A group that cannot be sketched is remembered too.
        view.cache.put(key, found or _UNSKETCHED, 64 if found is None else found.nbytes)
    return found if isinstance(found, Sketch) else None


# --- measuring --------------------------------------------------------------------------------------------------------


def distances(context: Context, rank: Nearest, positions: npt.NDArray[Any]) -> tuple[Doubles, Bools]:
    """The exact squared distance at each position, and where there is one (the vector is not null)."""
    result = np.zeros(len(positions), dtype=np.float64)
    known = np.zeros(len(positions), dtype=np.bool_)
    query = query_vector(context, rank)
    if query is None:
        return result, known
    view = context.view(rank.property.variable)
    for start, rows, group in _by_group(view, positions):
        matrix, valid = vectors_at(view, group, rank.property.property, rows)
        places = (positions >= start) & (positions < start + group.physical_rows)
        result[places] = exact_distances(matrix, query)
        known[places] = True if valid is None else valid
    return result, known


def exact_distances(matrix: Singles, query: Singles) -> Doubles:
    """Squared distances in double precision, in slices so that the widened copy stays small."""
    wide = query.astype(np.float64)
    result = np.empty(len(matrix), dtype=np.float64)
    step = max(1, WIDENED_NUMBERS // max(len(wide), 1))
    for begin in range(0, len(matrix), step):
        difference = matrix[begin : begin + step] - wide
        result[begin : begin + step] = np.einsum("ij,ij->i", difference, difference)
    return result


def nearest_candidates(context: Context, rank: Nearest, positions: Ints | None, count: int) -> Ints:
    """Those that may be one of the `count` nearest, ascending, among distinct ascending positions or all live ones.

    Some that have no vector may be among them; `distances` tells.
    """
    query = query_vector(context, rank)
    view = context.view(rank.property.variable)
    asked = view.live_count if positions is None else len(positions)
    if query is None or not count or not asked:
        return np.empty(0, dtype=np.int64)
    if count >= asked:
        return np.flatnonzero(view.live) if positions is None else positions
    note = context.step("measure", lambda: show(rank))
    note.depth += 1
    kept: list[Ints] = []
    known = math.inf
    sketched = 0
    parts = list(_by_group(view, None if asked == view.position_count else positions))
    # The largest first: what it finds rules out most of the others.
    for start, rows, group in sorted(parts, key=lambda part: -part[2].physical_rows):
        chosen = Chosen(rows, _deleted(view, start, group) if rows is None else None)
        close, known, by_sketch = _narrow_group(view, group, rank.property.property, query, chosen, count, known)
        sketched += by_sketch
        kept.append(close + start)
    found = np.sort(np.concatenate(kept))
    if positions is None and not view.all_live:
        found = found[view.is_live(found)]
    note.done(len(found))
    note.because(lambda: _proof(asked, len(found), sketched))
    return found


def _proof(asked: int, left: int, sketched: int) -> str:
    by = "" if not sketched else ", by a sketch" if sketched == asked else f", {sketched:,} judged by a sketch"
    return f"exact: {asked - left:,} of {asked:,} proved too far{by}"


def _deleted(view: TableView, start: int, group: Group) -> Ints | None:
    """The deleted rows of a group that begins at a position, None when there are none."""
    begin, end = np.searchsorted(view.deleted_positions, (start, start + group.physical_rows))
    return view.deleted_positions[begin:end] - start if end > begin else None


def _narrow_group(
    view: TableView, group: Group, column: str, query: Singles, chosen: Chosen, count: int, known: float
) -> tuple[Ints, float, int]:
    """(rows of the group that may be among the nearest, a distance so many are within, rows a sketch judged)."""

    def measure(rows: Ints) -> Doubles:
        matrix, valid = vectors_at(view, group, column, rows)
        found = exact_distances(matrix, query)
        return found if valid is None else np.where(valid, found, np.inf)

    asked = chosen.count_of(group.physical_rows)
    if asked >= NARROWED_ROWS_MIN:
        sketch = group_sketch(view, group, column)
        if sketch is not None:
            return *narrow(sketch, query, chosen, count, known, measure), asked
    if chosen.rows is None:
        matrix, valid = as_matrix(view.chunk(group, column))
    else:
        matrix, valid = vectors_at(view, group, column, chosen.rows)
    return *_narrow_plainly(matrix, valid, chosen, query, count, known, measure), 0


def _narrow_plainly(
    matrix: Singles, valid: Bools | None, chosen: Chosen, query: Singles, count: int, known: float, measure: Any
) -> tuple[Ints, float]:
    """One comparison with every vector in single precision, whose error is a small share of the distance."""
    own = np.arange(len(matrix)) if chosen.rows is None else chosen.rows
    if not len(own):
        return own, known
    estimate = np.empty((1, len(matrix)), dtype=np.float32)
    simsimd.cdist(query[None], np.ascontiguousarray(matrix), metric="sqeuclidean", out=estimate, out_dtype="f32")
    about = estimate[0]
    if valid is not None:
        about[~valid] = np.inf
    elif not np.isfinite(about).all():
        return own, known
    if chosen.without is not None:
        about[chosen.without] = np.inf
    known = min(known, distance_within(about, own, count, measure))
    # Written so that a distance which is no number stays.
    return own[~(about * np.float32(1 - (len(query) + 8) * EPS) > known)], known


def _by_group(view: TableView, positions: npt.NDArray[Any] | None) -> Iterator[tuple[int, Any, Group]]:
    """Split positions by group, in their order: (position of the group's first row, rows in the group, the group).

    Without positions every row of every group is meant, and rows are None.
    """
    if positions is None:
        for start, group in zip(view.group_starts.tolist(), view.groups, strict=False):
            yield start, None, group
        return
    owner = np.searchsorted(view.group_starts, positions, side="right") - 1
    for index in np.flatnonzero(np.bincount(owner)).tolist():
        start = int(view.group_starts[index])
        yield start, positions[owner == index] - start, view.groups[index]
