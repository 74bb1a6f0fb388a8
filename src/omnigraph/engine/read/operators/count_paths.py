"""How many ways lead on from each node, worked out for all nodes at once and kept with the state of the graph.

Hops that end in a count, with nodes in between that nothing asks for, multiply each row by a number that depends on its
node alone. When the rows are a large part of all nodes, or the same hops are asked for again and again, the numbers are
worked out for every node: one pass over the edges per hop, from the last hop to the first.
"""

from __future__ import annotations

import numpy as np

from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.kernels import Ints
from omnigraph.engine.read.plan.operations import CountPaths

WALKS_AFTER = 50
"""How often hops are followed from a few nodes, at least, before their numbers are worked out for all."""
EDGES_PER_CALL = 20_000
"""And once for so many edges that working them out would pass over, so that large graphs pause later."""
WALKS_MAX = 16
"""Kept per state; when there are more, all are dropped and those still in use made again."""
ALL_FACTOR = 4
"""Rows that are at least one in this many of all nodes are worked out for all."""


def walk_factors(context: Context, walk: CountPaths, frame: Frame) -> Ints | None:
    """By how much the hops multiply each row; None while following them is the better way."""
    walks = context.tables.walks
    starts = frame.columns[walk.follows[0].near]
    known = walks.counts.get(walk.key)
    if known is None:
        expand, from_source = walk.follows[0].expand, walk.follows[0].from_source
        asked = walks.asked.get(walk.key, 0) + 1
        walks.asked[walk.key] = asked
        view = context.nodes(expand.source_type if from_source else expand.target_type)
        if len(starts) * ALL_FACTOR < view.code_bound and asked <= max(WALKS_AFTER, _passed(context, walk)):
            return None
        known = walk_counts(context, walk)
        if known is None:
            return None
        if len(walks.counts) >= WALKS_MAX:
            walks.counts.clear()
        walks.counts[walk.key] = known
    return np.asarray(known[starts])


def _passed(context: Context, walk: CountPaths) -> int:
    """How many calls the edges that all hops but the last pass over stand for."""
    edges = sum(context.edges(follow.expand.edge_type).live_count for follow in walk.follows[:-1])
    return edges // EDGES_PER_CALL


def walk_counts(context: Context, walk: CountPaths) -> Ints | None:
    """For each node of the first hop how many ways there are; None when a number would not be exact."""
    counts: Ints | None = None
    hops = walk.follows
    for done, rest in enumerate(walk.rests):
        known = context.tables.walks.counts.get(rest.key)
        if known is not None:
            hops, counts = walk.follows[:done], known
            break
    for follow in reversed(hops):
        expand = follow.expand
        adjacency = context.adjacency(expand, follow.direction)
        kind = "pairs" if expand.edge_variable is None else "edges"
        near = context.nodes(expand.source_type if follow.from_source else expand.target_type)
        counts = adjacency.pulled(kind, counts, near.code_bound)
        if counts is None:
            return None
    return counts
