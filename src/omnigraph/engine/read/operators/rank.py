"""Ranking: best rows first, after every condition of the pattern has been applied.

`nearest` drops rows without a vector, `bm25` rows that share no word, `rrf` joins two such rankings of one variable by
the places its nodes take in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from omnigraph.engine.read.columns import tables
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.kernels import Ints, is_ascending
from omnigraph.engine.read.operators.ordering import Key, float_key, id_key, order_rows, tie_break_variables
from omnigraph.engine.read.operators.positions import positions
from omnigraph.engine.read.text.search import bm25_at, bm25_found
from omnigraph.engine.read.vector.nearest import distances, nearest_candidates
from omnigraph.errors import InputError
from omnigraph.plan.operators import Bm25, Nearest, Rank, Rrf

Floats = npt.NDArray[np.float64]


class Ranked(Struct, frozen=True):
    """The rows a ranking keeps, their score, and the keys that put them in rank order."""

    frame: Frame
    scores: Floats
    keys: tuple[Key, ...]
    ties: tuple[Key, ...] = ()
    """Keys that decide between equal ranks after the query's further orderings."""


def ranked_variable(rank: Rank) -> str:
    """The variable whose nodes are ranked."""
    return (rank.first if isinstance(rank, Rrf) else rank).property.variable


def rank_rows(context: Context, rank: Rank, frame: Frame, limit: int | None) -> Ranked:
    """Score the rows and drop those the ranking leaves out, and with a limit those that cannot come before it."""
    match rank:
        case Nearest():
            return _by_distance(context, rank, frame, limit)
        case Bm25():
            return _by_words(context, rank, frame, limit)
        case Rrf():
            return _fused(context, rank, frame, limit)


def _key(values: npt.NDArray[np.int64]) -> Key:
    return lambda rows: values if rows is None else values[rows]


def _whole(context: Context, variable: str, frame: Frame) -> NodeView | None:
    """The table, when the rows are all its live nodes, each once; then nothing needs to be looked up row by row."""
    view = context.view(variable)
    if len(frame.columns) > 1 or not isinstance(view, NodeView):
        return None
    return view if view.__dict__.get("live_codes") is frame.columns[variable] else None


def _frame_of(view: NodeView, variable: str, places: Ints) -> Frame:
    """Rows of one variable, at ascending positions."""
    codes = view.codes_at(places)
    _remember(view, codes, places)
    return Frame(len(codes), {variable: codes})


def _remember(view: TableView, codes: Ints, places: Ints) -> None:
    """Note where a few nodes are, so that fetching their properties needs no table of all."""
    if isinstance(view, NodeView) and len(codes) <= tables.FEW_ROWS and "positions" not in view.__dict__:
        view.placed.update(zip(codes.tolist(), places.tolist(), strict=True))


def _by_distance(context: Context, rank: Nearest, frame: Frame, limit: int | None) -> Ranked:
    variable = rank.property.variable
    count = len(frame) if limit is None else limit
    view = _whole(context, variable, frame)
    if view is not None:
        near = nearest_candidates(context, rank, None, count)
        scores, known = distances(context, rank, near)
        if not known.all():
            near, scores = near[known], scores[known]
        return Ranked(_frame_of(view, variable, near), scores, (_key(float_key(scores)),))
    places = positions(context, variable, frame.columns[variable])
    ascending = is_ascending(places)
    near = nearest_candidates(context, rank, places if ascending else distinct_sorted(places), count)
    kept = np.searchsorted(places, near) if ascending else np.flatnonzero(np.isin(places, near))
    scores, known = distances(context, rank, places[kept])
    if not known.all():
        kept, scores = kept[known], scores[known]
    return Ranked(frame.take(kept), scores, (_key(float_key(scores)),))


def _by_words(context: Context, rank: Bm25, frame: Frame, limit: int | None) -> Ranked:
    variable = rank.property.variable
    view = _whole(context, variable, frame)
    if view is None:
        places = positions(context, variable, frame.columns[variable])
        scores = bm25_at(context, rank, places)
        kept = _best(scores, limit)
        frame = frame.take(kept)
        _remember(context.view(variable), frame.columns[variable], places[kept])
        scores = scores[kept]
    else:
        places, scores = bm25_found(context, rank)
        if not view.all_live:
            live = view.is_live(places)
            places, scores = places[live], scores[live]
        kept = _best(scores, limit)
        frame, scores = _frame_of(view, variable, places[kept]), scores[kept]
    return Ranked(frame, scores, (_key(~float_key(scores)),))


def _best(scores: Floats, limit: int | None) -> Ints:
    """The rows with a score that may be among the first so many: those that no `limit` others exceed."""
    kept = np.flatnonzero(scores > 0)
    if limit is None or limit >= len(kept):
        return kept
    held = scores[kept]
    return kept[held >= np.partition(held, len(held) - limit)[len(held) - limit]] if limit else kept[:0]


def distinct_sorted(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distinct values, ascending; by a sort, which for many is far quicker than numpy's way by hashing."""
    ordered = np.sort(values)
    fresh = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return np.asarray(ordered[fresh])


# --- two rankings fused -----------------------------------------------------------------------------------------------


def _fused(context: Context, rank: Rrf, frame: Frame, limit: int | None) -> Ranked:
    """One row per node: the one with the smallest ids of the other variables."""
    variable = ranked_variable(rank)
    smoothing = context.constant(rank.k).value
    if smoothing is None or smoothing <= 0:
        raise InputError("the k of rrf must be an integer above 0", code="param")
    column = frame.columns[variable]
    whole = _whole(context, variable, frame) is not None
    ascending = whole or is_ascending(column)
    nodes = column if ascending else distinct_sorted(column)
    each = frame if whole else Frame(len(nodes), {variable: nodes})
    arms = [_in_order(context, arm, variable, each, limit) for arm in (rank.first, rank.second)]
    held = distinct_sorted(np.concatenate(arms))
    if whole:
        frame = Frame(len(held), {variable: held})
    elif ascending:
        frame = frame.take(np.searchsorted(column, held))
    else:
        frame = frame.where(np.isin(column, held))
    frame = frame.take(_one_row_per_node(context, frame, variable))
    index = np.searchsorted(held, frame.columns[variable])
    first, second = (_places(arm, held)[index] for arm in arms)
    scores = _share(first, smoothing) + _share(second, smoothing)
    ties = tuple(_key(np.where(place > 0, place, _LAST)) for place in (first, second))
    return Ranked(frame, scores, (_key(~float_key(scores)),), ties)


_LAST = np.int64(2**62)


def _share(places: Ints, smoothing: int) -> Floats:
    """What one arm adds to a score: nothing where the arm leaves the node out."""
    # As a float, because k may be as large as an integer can be.
    return np.where(places > 0, 1.0 / (float(smoothing) + places), 0.0)


def _one_row_per_node(context: Context, frame: Frame, variable: str) -> Ints:
    others = [name for name in tie_break_variables(context, frame) if name != variable]
    keys = [id_key(context, name, frame.columns[name]) for name in others]
    order = order_rows(len(frame), keys, None)
    _, first = np.unique(frame.columns[variable][order], return_index=True)
    return order[first]


def _in_order(context: Context, arm: Nearest | Bm25, variable: str, nodes: Frame, limit: int | None) -> Ints:
    """The nodes one arm keeps, in its order."""
    most = limit if isinstance(arm, Nearest) else None
    ranked = rank_rows(context, arm, nodes, most)
    found = ranked.frame.columns[variable]
    return found[order_rows(len(found), [*ranked.keys, id_key(context, variable, found)], most)]


def _places(arm: Ints, nodes: Ints) -> Ints:
    """The place of each node in one arm's order, from 1; 0 when the arm leaves it out."""
    places = np.zeros(len(nodes), dtype=np.int64)
    places[np.searchsorted(nodes, arm)] = np.arange(1, len(arm) + 1)
    return places
