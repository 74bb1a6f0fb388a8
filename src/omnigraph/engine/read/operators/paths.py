"""Paths in a pattern: one shortest path for every pair of ends, and what queries ask of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import arrow_type
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.graph.segments import direction_of
from omnigraph.engine.read.graph.shortest import Paths, TracedPaths, shortest_paths
from omnigraph.engine.read.kernels import Bools, Ints, distinct, ranges
from omnigraph.engine.read.operators.ordering import sort_key
from omnigraph.plan.operators import Expand, PathValue, ShortestPath


def trace_paths(context: Context, path: ShortestPath, frame: Frame) -> Frame:
    """Rows whose two ends have a path, with that path bound."""
    columns = [frame.columns[path.source], frame.columns[path.target]]
    first, group = distinct(columns, [int(column.max(initial=0)) + 1 for column in columns])
    starts, ends = columns[0][first], columns[1][first]
    expand = path.expand
    onward = context.adjacency(expand, direction_of(expand, True))
    found: list[Ints | None]
    if path.source_type != path.target_type:
        joined = onward.has_pairs(starts, ends) & (path.min_hops == 1)
        found = [np.array(pair) if hit else None for *pair, hit in zip(starts, ends, joined, strict=True)]
    else:
        ranks = context.nodes(path.source_type).dictionary.order()[1:]
        back = context.adjacency(expand, direction_of(expand, False))

        def allow(total: int) -> None:
            context.check_rows(total, 2, f"following {path.edge_type}")

        bounds = path.min_hops, path.max_hops
        found = shortest_paths(onward, back, (starts, ends), bounds, ranks, allow)
    number = np.full(len(first), -1, dtype=np.int64)
    held = [place for place, nodes in enumerate(found) if nodes is not None]
    nodes = [each for each in found if each is not None]
    offsets = np.concatenate(([0], np.cumsum([len(each) for each in nodes]))).astype(np.int64)
    flat = np.concatenate(nodes) if nodes else np.empty(0, dtype=np.int64)
    traced = Paths(offsets, flat, path.edge_type, path.source_type, path.target_type, path.undirected, path.backward)
    number[held] = context.computed.paths.setdefault(path.variable, TracedPaths()).add(traced)
    bound = frame.bind(path.variable, number[group])
    return bound.where(bound.columns[path.variable] >= 0)


def path_column(context: Context, value: PathValue, numbers: Ints) -> pa.Array:
    """A part of the paths that integers stand for; null where they are negative."""
    traced = context.computed.paths.get(value.variable)
    if traced is None:  # no row came so far that a path was looked for
        return pa.nulls(len(numbers), arrow_type(value.type))
    if len(traced.parts) == 1:
        return _column(context, value, traced.parts[0], numbers)
    # Each part by itself, those without a path with the first, and then back in the order of the rows.
    part = np.maximum(np.searchsorted(traced.begins, numbers, side="right") - 1, 0)
    rows = [np.flatnonzero(part == number) for number in range(len(traced.parts))]
    columns = [
        _column(context, value, paths, np.where(numbers[chosen] < 0, -1, numbers[chosen] - begin))
        for paths, begin, chosen in zip(traced.parts, traced.begins, rows, strict=True)
    ]
    return wide.take(wide.concat(columns), np.argsort(np.concatenate(rows), kind="stable"))


def _column(context: Context, value: PathValue, paths: Paths, numbers: Ints) -> pa.Array:
    absent = numbers < 0
    held = np.where(absent, 0, numbers)
    if value.part == "length":
        lengths = paths.lengths[held] if len(paths.lengths) else np.zeros(len(held), dtype=np.int64)
        return pa.array(lengths, pa.int64(), mask=absent)
    present = numbers[~absent]
    sizes = np.zeros(len(numbers), dtype=np.int64)
    sizes[~absent] = paths.lengths[present] + 1
    nodes = paths.nodes[ranges(paths.offsets[present], paths.lengths[present] + 1)[0]]
    if value.part == "nodes":
        return _lists(_node_ids(context, paths, nodes), sizes, absent)
    counts = np.maximum(sizes - 1, 0)
    edges = _edge_ids(context, paths, nodes, sizes[~absent])
    if value.part == "edges":
        return _lists(edges, counts, absent)
    fields = [_lists(_node_ids(context, paths, nodes), sizes, absent), _lists(edges, counts, absent)]
    return pa.StructArray.from_arrays(fields, names=["nodes", "edges"], mask=pa.array(absent))


def _lists(items: pa.Array, sizes: Ints, absent: Bools) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    mask = pa.array(absent) if absent.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), items.cast(pa.string()), mask=mask)


def _node_ids(context: Context, paths: Paths, nodes: Ints) -> pa.Array:
    if paths.source_type == paths.target_type:
        return context.nodes(paths.source_type).dictionary.ids_of(nodes)
    # Two types: every path is one edge, from a node of the first to one of the second.
    sources = context.nodes(paths.source_type).dictionary.ids_of(nodes[0::2])
    targets = context.nodes(paths.target_type).dictionary.ids_of(nodes[1::2])
    count = len(sources)
    order = np.stack((np.arange(count), np.arange(count) + count), axis=1)
    return wide.take(wide.concat([sources, targets]), (order[:, ::-1] if paths.backward else order).reshape(-1))


def _edge_ids(context: Context, paths: Paths, nodes: Ints, sizes: Ints) -> pa.Array:
    """The edges between the nodes of paths that follow each other; of parallel ones the smallest id."""
    is_last = np.zeros(len(nodes), dtype=np.bool_)
    is_last[np.cumsum(sizes) - 1] = True
    steps = np.flatnonzero(~is_last)
    expand = Expand(paths.edge_type, "", "", paths.source_type, paths.target_type, paths.undirected)
    met, owner, places = context.adjacency(expand, direction_of(expand, True)).edges(nodes[steps])
    fits = met == nodes[steps + 1][owner]
    owner, places = owner[fits], places[fits]
    ids = context.edges(paths.edge_type).take("id", places)
    order = np.lexsort((sort_key(ids), owner))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = owner[order][1:] != owner[order][:-1]
    return wide.take(ids, order[first])
