"""Matching a pattern: from nothing to the rows that satisfy every clause.

The operations of a schedule run one after the other on whole columns. Variables that nobody needs any more are
dropped, and where only numbers of rows matter equal rows are merged and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from omnigraph.engine.read.context import Context, Step
from omnigraph.engine.read.frame import UNIT, Frame, added_by_group
from omnigraph.engine.read.kernels import Bools, Ints, combine, distinct
from omnigraph.engine.read.operators.conditions import condition_marks
from omnigraph.engine.read.operators.count_paths import walk_factors
from omnigraph.engine.read.operators.expand import (
    close_frame,
    closing_direction,
    degree_factor,
    degree_total,
    expand_frame,
    flow_frame,
    joined,
)
from omnigraph.engine.read.operators.extend import extended
from omnigraph.engine.read.operators.joins import join_by_value
from omnigraph.engine.read.operators.paths import trace_paths
from omnigraph.engine.read.operators.predicates import FrameRows, predicate_mask
from omnigraph.engine.read.operators.scan import mask_by_code, start_rows
from omnigraph.engine.read.plan.join_order import ROW
from omnigraph.engine.read.plan.operations import (
    Alias,
    AntiJoin,
    Apply,
    Counting,
    CountPaths,
    ExpandAll,
    ExpandInto,
    Filter,
    Join,
    NotNull,
    Operation,
    Project,
    Scan,
    Schedule,
    Trace,
)
from omnigraph.engine.read.plan.prepare import Clause

MERGE_MIN = 1024
"""Below this many rows merging equal ones costs more than it saves."""
DENSE_FACTOR = 4
"""Values up to this many times the number of rows are counted in an array instead of sorted."""
SORT_EDGES_FROM = 4096
"""Rows from which on it pays to sort edges by their other end."""
_EMPTY: Ints = np.empty(0, dtype=np.int64)


def match_pattern(context: Context, schedule: Schedule, seed: Frame = UNIT) -> Frame:
    """All rows that extend `seed` and satisfy the pattern, with at least the variables asked for."""
    outside = context.types, context.edge_types
    context.types, context.edge_types = schedule.types, schedule.edge_types
    frame = seed
    operations = schedule.operations
    done = 0
    while done < len(operations):
        operation = operations[done]
        done += 1
        if isinstance(operation, ExpandAll) and (check := _closing(context, operations, done, frame)) is not None:
            frame = _close(context, operation, check, frame)
            done += 1
        else:
            frame = _RUN[type(operation)](context, operation, frame)
        if not frame.length:
            frame = Frame(0, dict.fromkeys(frame.columns.keys() | schedule.asked, _EMPTY))
            break
    if context.depth:
        context.types, context.edge_types = outside
    return frame


# --- conditions -------------------------------------------------------------------------------------------------------


def _filter(context: Context, operation: Filter, frame: Frame) -> Frame:
    note = context.step("filter", operation.detail)
    frame = frame.where(_filter_mask(context, frame, operation.clause, note))
    note.done(frame.length)
    return frame


def _filter_mask(context: Context, frame: Frame, clause: Clause, note: Step) -> Bools:
    """Test each row, or each node once when there are more rows than nodes."""
    if len(clause.variables) == 1:
        (variable,) = clause.variables
        type_name = None if clause.may_fail or variable in context.nullable else context.types.get(variable)
        if type_name is not None and frame.length > context.nodes(type_name).position_count:
            note.because("tested once per node, as there are more rows than nodes")
            return mask_by_code(context, variable, [clause.predicate])[frame.columns[variable]]
        if type_name is not None:
            marks = condition_marks(context, variable, type_name, clause.predicate, frame.length)
            if marks is not None:
                note.because("known for every node, as it was asked often")
                return np.asarray(marks[frame.columns[variable]])
    return predicate_mask(context, clause.predicate, FrameRows(context, frame))


def _expand_into(context: Context, operation: ExpandInto, frame: Frame) -> Frame:
    note = context.step("check", operation.detail, "both ends are bound")
    frame = frame.where(joined(context, operation.expand, frame))
    note.done(frame.length)
    return frame


def _seeds(frame: Frame, outer: tuple[str, ...]) -> tuple[Frame, Ints]:
    """The distinct rows of some variables, numbered, and which of them each row is."""
    if outer:
        columns = whole_numbers([frame.columns[name] for name in outer])
        first, group = distinct(columns, [int(column.max(initial=0)) + 1 for column in columns])
        seed = Frame(len(first), {name: frame.columns[name][first] for name in outer})
    else:
        group = np.zeros(len(frame), dtype=np.int64)
        seed = UNIT
    return seed.bind(ROW, np.arange(len(seed), dtype=np.int64)), group


def whole_numbers(columns: list[Ints]) -> list[Ints]:
    """Columns that are equal where these are, without the negative that stands for nothing."""
    return [column + 1 if len(column) and int(column.min()) < 0 else column for column in columns]


def _anti_join(context: Context, operation: AntiJoin, frame: Frame) -> Frame:
    note = context.step("semi-join" if operation.keeps else "anti-join", operation.detail)
    seed, group = _seeds(frame, operation.outer)
    note.because(f"{len(seed):,} distinct outer rows")
    context.depth += 1
    try:
        found = match_pattern(context, operation.inner, seed)
    finally:
        context.depth -= 1
    hit = np.zeros(len(seed), dtype=np.bool_)
    hit[found.columns[ROW]] = True
    frame = frame.where(hit[group] if operation.keeps else ~hit[group])
    note.done(frame.length)
    return frame


def _not_null(context: Context, operation: NotNull, frame: Frame) -> Frame:
    note = context.step("filter", operation.detail, "an edge joins what is there")
    for name in operation.variables:
        frame = frame.where(frame.columns[name] >= 0)
    note.done(frame.length)
    return frame


# --- fewer variables, fewer rows --------------------------------------------------------------------------------------


def _project(context: Context, operation: Project, frame: Frame) -> Frame:
    frame = frame.keep(operation.wanted)
    counting = operation.counting
    if not frame.columns:
        total = frame.total() if counting is Counting.NUMBERS else min(frame.length, 1)
        return counted(total)
    return frame if frame.length < MERGE_MIN else _merge(frame, counting)


def counted(total: int) -> Frame:
    """So many rows without any variable."""
    return Frame(1, {}, np.array([total], dtype=np.int64)) if total else Frame(0)


def _merge(frame: Frame, counting: Counting) -> Frame:
    names = sorted(frame.columns)
    columns = [frame.columns[name] for name in names]
    if any(len(column) and int(column.min()) < 0 for column in columns):
        return frame
    bounds = [int(column.max(initial=0)) + 1 for column in columns]
    if len(names) == 1 and bounds[0] <= DENSE_FACTOR * len(frame):
        # One variable over a small range: counting by value needs no sort.
        counts = np.bincount(columns[0], minlength=bounds[0])
        values = np.flatnonzero(counts)
        if counting is not Counting.NUMBERS:
            return Frame(len(values), {names[0]: values})
        if frame.weights is not None:
            counts = added_by_group(frame.weights, columns[0], bounds[0])
        return Frame(len(values), {names[0]: values}, counts[values])
    if counting is Counting.NUMBERS and len(names) > 1:
        return frame
    key = combine(columns, bounds)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    merged = Frame(len(first), {name: frame.columns[name][first] for name in names})
    if counting is Counting.EXISTENCE:
        return merged
    weights = frame.weights if frame.weights is not None else np.ones(len(frame), dtype=np.int64)
    return Frame(merged.length, merged.columns, added_by_group(weights, group.reshape(-1), len(first)))


# --- growing ----------------------------------------------------------------------------------------------------------


def _scan(context: Context, operation: Scan, frame: Frame) -> Frame:
    note = context.step("scan", operation.detail, operation.reason)
    codes, how = start_rows(context, operation)
    if how:
        note.because(lambda: f"{operation.reason()}; {how}")
    rows = frame.length * len(codes)
    context.check_rows(rows, len(frame.columns) + 1, f"combining rows with ${operation.variable}")
    if frame is UNIT:
        note.done(rows)
        return Frame(rows, {operation.variable: codes})
    index = np.repeat(np.arange(frame.length, dtype=np.int64), len(codes))
    frame = frame.take(index).bind(operation.variable, np.tile(codes, frame.length))
    note.done(rows)
    return frame


def _alias(context: Context, operation: Alias, frame: Frame) -> Frame:
    note = context.step("join", operation.detail, "both are the same node")
    frame = frame.bind(operation.variable, frame.columns[operation.other])
    note.done(frame.length)
    return frame


def _apply(context: Context, operation: Apply, frame: Frame) -> Frame:
    note = context.step("left-join" if operation.is_optional else "union", operation.detail)
    seed, group = _seeds(frame, operation.outer)
    note.because(f"{len(seed):,} distinct outer rows")
    context.depth += 1
    try:
        found = [_listed(context, match_pattern(context, arm, seed)) for arm in operation.arms]
    finally:
        context.depth -= 1
    grown = extended(context, operation, frame, group, len(seed), found)
    note.done(grown.length)
    return grown


def _listed(context: Context, frame: Frame) -> Frame:
    """Every row as often as it counts, if there are not too many."""
    context.check_rows(frame.total(), len(frame.columns), "matching a block")
    return frame.unweighted()


def _trace(context: Context, operation: Trace, frame: Frame) -> Frame:
    note = context.step("shortest-path", operation.detail, "searched from both ends")
    frame = trace_paths(context, operation.path, frame)
    note.done(frame.length)
    return frame


def _join(context: Context, operation: Join, frame: Frame) -> Frame:
    note = context.step("join", operation.detail, "the values of both sides are known")
    frame = join_by_value(context, frame, operation.link)
    note.done(frame.length)
    return frame


def _expand_all(context: Context, operation: ExpandAll, frame: Frame) -> Frame:
    factors = context.options.use_factoring
    if operation.is_unseen and factors:
        return _count(context, operation, frame)
    note = context.step("expand", operation.detail, operation.reason)
    if factors and operation.may_flow and operation.counting is Counting.NUMBERS:
        grown = flow_frame(context, operation, frame)
        if grown is not None:
            note.because(partial("only how often each ${} is met matters".format, operation.far))
            note.done(grown.length)
            return grown
    grown = expand_frame(context, operation, frame)
    note.done(grown.length)
    return _merge_one(grown, operation.counting) if operation.drops else grown


def _closing(context: Context, operations: tuple[Operation, ...], place: int, frame: Frame) -> ExpandInto | None:
    """The check at a place, if it may be done while the hop before it is followed.

    It may when the hop leads to a new node that must be one hop away from another one that is bound.
    """
    follow, check = operations[place - 1], operations[place] if place < len(operations) else None
    if not (isinstance(check, ExpandInto) and isinstance(follow, ExpandAll) and follow.is_fresh):
        return None
    expand = check.expand
    leads_to_target = follow.far == expand.target
    if leads_to_target is (follow.far == expand.source) or (expand.min_hops, expand.max_hops) != (1, 1):
        return None
    # Edges seen from their targets are worth sorting for many rows, or if they are sorted already.
    key = (expand.edge_type, closing_direction(follow, expand))
    is_cheap = leads_to_target or frame.length >= SORT_EDGES_FROM or key in context.tables.adjacencies
    return check if is_cheap else None


def _close(context: Context, operation: ExpandAll, check: ExpandInto, frame: Frame) -> Frame:
    """Follow a hop to a node that must be joined to another one that is bound, checking each way as it is made."""
    note = context.step("expand", operation.detail, operation.reason)
    grown, ways = close_frame(context, operation, check.expand, frame)
    note.done(ways)
    note = context.step("check", check.detail, "both ends are bound; checked while following")
    note.done(grown.length)
    return grown


def _count(context: Context, operation: ExpandAll, frame: Frame) -> Frame:
    """Multiply rows by how far they lead, without listing where."""
    why = partial("nothing asks for ${}, so it is not listed".format, operation.far)
    note = context.step("count", operation.detail, why)
    if operation.empties:
        total = degree_total(context, operation, frame)
        note.done(frame.length)
        return counted(total)
    frame = frame.weighted(degree_factor(context, operation, frame))
    if operation.counting is Counting.EXISTENCE:
        frame = Frame(frame.length, frame.columns)
    note.done(frame.length)
    return frame


def _count_paths(context: Context, operation: CountPaths, frame: Frame) -> Frame:
    """Multiply rows by the ways that lead on from them, or follow these hop by hop."""
    begin = perf_counter()
    factors = walk_factors(context, operation, frame) if context.options.use_factoring else None
    if factors is None:
        rest = operation.rests[1:2]
        for follow in operation.follows[: 1 if rest else None]:
            frame = _expand_all(context, follow, frame)
            if not frame.length:
                return frame
        return _count_paths(context, rest[0], frame) if rest else frame
    note = context.step("count", operation.detail, "nothing asks for what is on the way; known for every node")
    note.seconds = begin
    if operation.follows[-1].empties:
        total = frame.multiplied_total(factors)
        note.done(frame.length)
        return counted(total)
    frame = frame.weighted(factors)
    note.done(frame.length)
    return frame


def _merge_one(frame: Frame, counting: Counting) -> Frame:
    """Merge rows of a single variable that an expand met many times, where that needs no sort."""
    if len(frame.columns) != 1 or frame.length < max(MERGE_MIN, 1):
        return frame
    (column,) = frame.columns.values()
    return _merge(frame, counting) if int(column.max()) < DENSE_FACTOR * frame.length else frame


_RUN: dict[type[Operation], Callable[[Context, Any, Frame], Frame]] = {
    Scan: _scan,
    Join: _join,
    ExpandAll: _expand_all,
    CountPaths: _count_paths,
    ExpandInto: _expand_into,
    Filter: _filter,
    AntiJoin: _anti_join,
    Apply: _apply,
    Trace: _trace,
    NotNull: _not_null,
    Alias: _alias,
    Project: _project,
}
