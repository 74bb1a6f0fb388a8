"""Ranking: best rows first, after every condition of the pattern has been applied.

`nearest` drops rows without a vector, `bm25` rows that share no word, `rrf` joins two such rankings of one variable by
the places its nodes take in them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.engine.reading.context import Context
from omnigraph.engine.reading.frame import Frame
from omnigraph.engine.reading.kernels import Ints
from omnigraph.engine.reading.nearest import distances, nearest_candidates
from omnigraph.engine.reading.ordering import Key, float_key, id_key, order_rows, tie_break_variables
from omnigraph.engine.reading.predicates import positions
from omnigraph.engine.reading.search import bm25_scores
from omnigraph.errors import InputError
from omnigraph.plan.operators import Bm25, Nearest, Rank, Rrf

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
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
    """Score the rows and drop those the ranking leaves out."""
    match rank:
        case Nearest():
            return _by_distance(context, rank, frame, limit)
        case Bm25():
            return _by_words(context, rank, frame)
        case Rrf():
            return _fused(context, rank, frame, limit)


def _key(values: npt.NDArray[np.int64]) -> Key:
    return lambda rows: values if rows is None else values[rows]


def _by_distance(context: Context, rank: Nearest, frame: Frame, limit: int | None) -> Ranked:
    places = positions(context, rank.property.variable, frame.columns[rank.property.variable])
    ascending = len(places) < 2 or bool((places[1:] > places[:-1]).all())
    unique = places if ascending else np.unique(places)
    near = nearest_candidates(context, rank, unique, len(unique) if limit is None else limit)
    kept = np.searchsorted(places, near) if ascending else np.flatnonzero(np.isin(places, near))
    scores, known = distances(context, rank, places[kept])
    if not known.all():
        kept, scores = kept[known], scores[known]
    return Ranked(frame.take(kept), scores, (_key(float_key(scores)),))


def _by_words(context: Context, rank: Bm25, frame: Frame) -> Ranked:
    places = positions(context, rank.property.variable, frame.columns[rank.property.variable])
    scores = bm25_scores(context, rank)[places]
    kept = np.flatnonzero(scores > 0)
    return Ranked(frame.take(kept), scores[kept], (_key(~float_key(scores[kept])),))


def _fused(context: Context, rank: Rrf, frame: Frame, limit: int | None) -> Ranked:
    """One row per node: the one with the smallest ids of the other variables."""
    variable = ranked_variable(rank)
    smoothing = context.constant(rank.k).value
    if smoothing is None or smoothing <= 0:
        raise InputError("the k of rrf must be an integer above 0", code="param")
    column = frame.columns[variable]
    ascending = len(column) < 2 or bool((column[1:] > column[:-1]).all())
    nodes = column if ascending else np.unique(column)
    first = _places(context, rank.first, variable, nodes, limit)
    second = _places(context, rank.second, variable, nodes, limit)
    held = (first > 0) | (second > 0)
    frame = frame.where(held if ascending else held[np.searchsorted(nodes, column)])
    frame = frame.take(_one_row_per_node(context, frame, variable))
    index = np.searchsorted(nodes, frame.columns[variable])
    first, second = first[index], second[index]
    scores = _share(first, smoothing) + _share(second, smoothing)
    ties = tuple(_key(np.where(place > 0, place, _LAST)) for place in (first, second))
    return Ranked(frame, scores, (_key(~float_key(scores)),), ties)


_LAST = np.int64(2**62)


def _share(places: Ints, smoothing: int) -> Floats:
    """What one arm adds to a score: nothing where the arm leaves the node out."""
    return np.where(places > 0, 1.0 / (smoothing + places), 0.0)


def _one_row_per_node(context: Context, frame: Frame, variable: str) -> Ints:
    others = [name for name in tie_break_variables(frame) if name != variable]
    keys = [id_key(context, name, frame.columns[name]) for name in others]
    order = order_rows(len(frame), keys, None)
    _, first = np.unique(frame.columns[variable][order], return_index=True)
    return order[first]


def _places(context: Context, arm: Nearest | Bm25, variable: str, nodes: Ints, limit: int | None) -> Ints:
    """The place of each node in one arm's order, from 1; 0 when the arm leaves it out."""
    ranked = rank_rows(context, arm, Frame(len(nodes), {variable: nodes}), limit)
    by_id = id_key(context, variable, ranked.frame.columns[variable])
    order = order_rows(len(ranked.frame), [*ranked.keys, by_id], limit if isinstance(arm, Nearest) else None)
    places = np.zeros(len(nodes), dtype=np.int64)
    kept = np.searchsorted(nodes, ranked.frame.columns[variable][order])
    places[kept] = np.arange(1, len(order) + 1)
    return places
