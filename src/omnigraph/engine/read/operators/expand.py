"""Following edges: one hop or several, from either end, by pairs or by edges."""

from __future__ import annotations

import numpy as np

from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import EXACT_MAX, Frame
from omnigraph.engine.read.graph.adjacency import Adjacency
from omnigraph.engine.read.graph.intersect import common_neighbours
from omnigraph.engine.read.graph.segments import Direction, direction_of
from omnigraph.engine.read.kernels import Bools, Ints, ranges, shortest_distances
from omnigraph.engine.read.plan.operations import ExpandAll
from omnigraph.engine.storage.sorted_unique import sorted_unique
from omnigraph.plan.operators import Expand

FLOW_FACTOR = 4
"""Rows that are at least one in this many of all nodes are followed all at once."""


def degree_factor(context: Context, follow: ExpandAll, frame: Frame) -> Ints:
    """By how much one hop multiplies each row, without listing where it leads."""
    adjacency = context.adjacency(follow.expand, follow.direction)
    near = frame.columns[follow.near]
    return adjacency.edge_degrees(near) if follow.expand.edge_variable is not None else adjacency.pair_degrees(near)


def degree_total(context: Context, follow: ExpandAll, frame: Frame) -> int:
    """How many rows one hop makes of all rows together."""
    expand = follow.expand
    if frame.weights is None:
        starts = frame.columns[follow.near]
        kind = "pairs" if expand.edge_variable is None else "edges"
        if frame.length == 1:
            return context.adjacency(expand, follow.direction).degree(kind, int(starts[0]))
        if starts is context.nodes(expand.source_type if follow.from_source else expand.target_type).live_codes:
            # Every edge of this version begins at one of them.
            return context.adjacency(expand, follow.direction).total(kind)
    return frame.multiplied_total(degree_factor(context, follow, frame))


def flow_frame(context: Context, follow: ExpandAll, frame: Frame) -> Frame | None:
    """The far ends with how often each is met, without listing the ways; None where listing them is the better way.

    It pays when the rows are a large part of all nodes.
    """
    expand = follow.expand
    view = context.nodes(expand.source_type if follow.from_source else expand.target_type)
    starts = frame.columns[follow.near]
    if len(starts) * FLOW_FACTOR < view.code_bound:
        return None
    adjacency = context.adjacency(expand, follow.direction)
    kind = "pairs" if expand.edge_variable is None else "edges"
    if starts is view.live_codes and frame.weights is None:
        counts = adjacency.met_counts(kind)
    else:
        weights = np.bincount(starts, weights=frame.weights).astype(np.float64)
        factor = degree_factor(context, follow, frame).astype(np.float64)
        if float(factor.sum() if frame.weights is None else factor @ frame.weights.astype(np.float64)) >= EXACT_MAX:
            return None
        counts = adjacency.flow(kind, weights)
    met = np.flatnonzero(counts)
    return Frame(len(met), {follow.far: met}, counts[met])


def expand_frame(context: Context, follow: ExpandAll, frame: Frame) -> Frame:
    """Bind the far end, and the edge when wanted; a far end that is bound already must agree.

    Variables that are not wanted afterwards are not carried along.
    """
    expand, far, wanted = follow.expand, follow.far, follow.wanted
    adjacency = context.adjacency(expand, follow.direction)
    starts = frame.columns[follow.near]
    edge_positions = None

    def allow(total: int) -> None:
        context.check_rows(total, len(frame.columns) + 2, f"following {expand.edge_type}")

    if follow.is_plain and frame.weights is None:
        met = adjacency.met(starts, allow)
        return Frame(len(met), {far: met} if far in wanted else None)
    if (expand.min_hops, expand.max_hops) != (1, 1):
        met, owner = reach(context, expand, adjacency, starts, follow.from_source)
        allow(len(met))
    elif expand.edge_variable is not None:
        met, owner, edge_positions = adjacency.edges(starts, allow)
    else:
        met, owner = adjacency.neighbours(starts, allow)
    if far in frame.columns:
        agree = frame.columns[far][owner] == met
        met, owner = met[agree], owner[agree]
        edge_positions = None if edge_positions is None else edge_positions[agree]
    grown = frame.keep(wanted).take(owner)
    if far in wanted:
        grown = grown.bind(far, met)
    if edge_positions is not None and expand.edge_variable is not None and expand.edge_variable in wanted:
        grown = grown.bind(expand.edge_variable, edge_positions)
    return grown


def close_frame(context: Context, follow: ExpandAll, check: Expand, frame: Frame) -> tuple[Frame, int]:
    """Bind the far end to what it is joined to by both expands, and say how many ways were looked at."""
    other = check.source if follow.far == check.target else check.target

    def allow(total: int) -> None:
        context.check_rows(total, len(frame.columns) + 2, f"following {follow.expand.edge_type}")

    met, owner, ways = common_neighbours(
        context.adjacency(follow.expand, follow.direction),
        frame.columns[follow.near],
        context.adjacency(check, closing_direction(follow, check)),
        frame.columns[other],
        allow,
    )
    return frame.keep(follow.wanted).take(owner).bind(follow.far, met), ways


def closing_direction(follow: ExpandAll, check: Expand) -> Direction:
    """Which way the edges of a check lead to the far end of a hop."""
    return direction_of(check, follow.far == check.target)


def joined(context: Context, expand: Expand, frame: Frame) -> Bools:
    """Which rows have their two bound ends joined."""
    sources, targets = frame.columns[expand.source], frame.columns[expand.target]
    adjacency = context.adjacency(expand, direction_of(expand, True))
    if (expand.min_hops, expand.max_hops) == (1, 1):
        return adjacency.has_pairs(sources, targets)
    bound = max(int(sources.max(initial=0)), int(targets.max(initial=0))) + 1
    starts = sorted_unique(sources)
    met, owner = reach(context, expand, adjacency, starts, True)
    wanted = starts[owner] * bound + met if len(met) else met
    inside = met < bound
    return np.isin(sources * bound + targets, wanted[inside])


def reach(context: Context, expand: Expand, adjacency: Adjacency, starts: Ints, from_source: bool) -> tuple[Ints, Ints]:
    """(node, index of the start) for every node whose shortest distance is within the bounds.

    An edge from a node to itself is met one hop after that node: it lets the node count once more, one hop further,
    which matters only just below the lower bound.
    """
    if expand.source_type != expand.target_type:
        if expand.min_hops > 1:
            empty = np.empty(0, dtype=np.int64)
            return empty, empty
        return adjacency.neighbours(starts)
    unique, group = np.unique(starts, return_inverse=True)
    group = group.reshape(-1)
    count = len(context.nodes(expand.source_type).positions)
    met, owner, distance = shortest_distances(unique, adjacency.neighbours, count, expand.min_hops - 1, expand.max_hops)
    loops = adjacency.loops()
    looping = met if from_source else unique[owner]
    has_loop = (looping < len(loops)) & loops[np.minimum(looping, max(len(loops) - 1, 0))] if len(loops) else False
    keep = (distance >= expand.min_hops) | has_loop
    met, owner = met[keep], owner[keep]
    if len(unique) == len(starts) and bool((unique == starts).all()):
        return met, owner
    return _fan_out(met, owner, group, len(unique))


def _fan_out(met: Ints, owner: Ints, group: Ints, groups: int) -> tuple[Ints, Ints]:
    """Give each start of a group of equal starts the group's answer."""
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=groups)
    begins = np.cumsum(sizes) - sizes
    places, rows = ranges(begins[group], sizes[group])
    return met[order][places], rows
