"""Matching a pattern: from nothing to the rows that satisfy every clause.

The pattern is a set, so work proceeds greedily: apply what is already decided (filters, checks, anti-joins), then grow
by the expand that adds least, and begin with a new variable only when nothing is connected. Variables that nobody
needs any more are dropped, and where only numbers of rows matter equal rows are merged and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np

from omnigraph.engine.reading.context import Context, Step
from omnigraph.engine.reading.describe import describe, describe_expand
from omnigraph.engine.reading.expand import degree_factor, expand_frame, flow_frame, joined
from omnigraph.engine.reading.frame import EXACT_MAX, UNIT, Frame
from omnigraph.engine.reading.kernels import Bools, Ints, combine, distinct
from omnigraph.engine.reading.planner import Growth, Reason, Start, choose_growth, choose_start, growth, selectivity
from omnigraph.engine.reading.predicates import FrameRows, predicate_mask
from omnigraph.engine.reading.prepare import Clause, PreparedPattern
from omnigraph.engine.reading.scan import find_join, join_by_value, mask_by_code, start_rows
from omnigraph.plan.operators import Expand, Predicate

ROW = "#row"
"""The variable that names the outer row inside an anti-join; no written variable contains `#`."""
_ROW_ONLY = frozenset((ROW,))
_ONLY_START: Reason = "the only variable left to begin with".__str__
_ONLY_EQUALITY: Reason = "the only variable asked for one value".__str__
MERGE_MIN = 1024
"""Below this many rows merging equal ones costs more than it saves."""
DENSE_FACTOR = 4
"""Values up to this many times the number of rows are counted in an array instead of sorted."""


class Counting(Enum):
    """What the number of equal rows means to whoever asked."""

    ROWS = "every row is wanted"
    NUMBERS = "only how many there are"
    EXISTENCE = "only whether there is one"


@dataclass
class _Work:
    """What of a pattern is still to be done."""

    scans: dict[str, str]
    expands: list[Expand]
    clauses: list[Clause]
    anti_joins: list[PreparedPattern]
    asked: frozenset[str]
    """Variables whose values the result needs."""
    counting: Counting

    def wanted(self) -> set[str]:
        """Variables that something still to be done, or the result, needs."""
        needed = set(self.asked)
        for expand in self.expands:
            needed.add(expand.source)
            needed.add(expand.target)
        for clause in self.clauses:
            needed |= clause.variables
        for anti_join in self.anti_joins:
            needed |= anti_join.free
        return needed

    @property
    def is_done(self) -> bool:
        """True when every clause has been applied."""
        return not (self.expands or self.clauses or self.anti_joins or self.scans)

    def conditions(self, variable: str) -> list[Predicate]:
        """The predicates that read this variable alone."""
        return [clause.predicate for clause in self.clauses if clause.variables == {variable}]


def match_pattern(
    context: Context, pattern: PreparedPattern, asked: frozenset[str], counting: Counting, seed: Frame = UNIT
) -> Frame:
    """All rows that extend `seed` and satisfy the pattern, with at least the variables asked for."""
    context.types.update(pattern.types)
    context.edge_types.update(pattern.edge_types)
    work = _Work(
        scans=dict(pattern.scans),
        expands=list(pattern.expands),
        clauses=list(pattern.clauses),
        anti_joins=list(pattern.anti_joins),
        asked=asked,
        counting=counting,
    )
    frame = seed
    while True:
        frame = _settle(context, frame, work)
        if not len(frame) or work.is_done:
            break
        frame = _grow(context, frame, work)
    if not len(frame):
        empty = np.empty(0, dtype=np.int64)
        return Frame(0, dict.fromkeys(frame.variables | asked, empty))
    return frame


# --- what is already decided ------------------------------------------------------------------------------------------


def _settle(context: Context, frame: Frame, work: _Work) -> Frame:
    """Apply every filter, check and anti-join whose variables are bound, cheapest kinds first."""
    columns = frame.columns
    if work.scans:
        for variable in columns:
            work.scans.pop(variable, None)
    if work.clauses:
        frame = _apply_filters(context, frame, work)
    for expand in [e for e in work.expands if _is_check(e, columns)]:
        if not len(frame):
            return frame
        work.expands.remove(expand)
        with context.step("check", partial(describe_expand, expand), "both ends are bound") as note:
            frame = frame.where(joined(context, expand, frame))
            note.rows = len(frame)
    for anti_join in list(work.anti_joins):
        if len(frame) and anti_join.free <= columns.keys():
            work.anti_joins.remove(anti_join)
            frame = _anti_join(context, frame, anti_join)
    return _forget(frame, work)


def _is_check(expand: Expand, columns: Mapping[str, Ints]) -> bool:
    return expand.edge_variable is None and expand.source in columns and expand.target in columns


def _apply_filters(context: Context, frame: Frame, work: _Work) -> Frame:
    for clause in [c for c in work.clauses if c.variables <= frame.columns.keys()]:
        work.clauses.remove(clause)
        if not len(frame):
            continue
        with context.step("filter", partial(describe, clause.predicate)) as note:
            frame = frame.where(_filter_mask(context, frame, clause, note))
            note.rows = len(frame)
    return frame


def _filter_mask(context: Context, frame: Frame, clause: Clause, note: Step) -> Bools:
    """Test each row, or each node once when there are more rows than nodes."""
    if len(clause.variables) == 1:
        (variable,) = clause.variables
        type_name = context.types.get(variable)
        if type_name is not None and len(frame) > context.nodes(type_name).position_count:
            note.because("tested once per node, as there are more rows than nodes")
            return mask_by_code(context, variable, [clause.predicate])[frame.columns[variable]]
    return predicate_mask(context, clause.predicate, FrameRows(context, frame))


def _anti_join(context: Context, frame: Frame, pattern: PreparedPattern) -> Frame:
    """Drop the rows that some extension satisfies; each distinct outer row is tried once."""
    outer = sorted(pattern.free)
    with context.step("anti-join", lambda: f"on {', '.join('$' + name for name in outer)}") as note:
        if outer:
            columns = [frame.columns[name] for name in outer]
            first, group = distinct(columns, [int(column.max(initial=0)) + 1 for column in columns])
            seed = Frame(len(first), {name: frame.columns[name][first] for name in outer})
        else:
            group = np.zeros(len(frame), dtype=np.int64)
            seed = UNIT
        seed = seed.bind(ROW, np.arange(len(seed), dtype=np.int64))
        note.because(f"{len(seed):,} distinct outer rows")
        context.depth += 1
        try:
            found = match_pattern(context, pattern, _ROW_ONLY, Counting.EXISTENCE, seed)
        finally:
            context.depth -= 1
        hit = np.zeros(len(seed), dtype=np.bool_)
        hit[found.columns[ROW]] = True
        frame = frame.where(~hit[group])
        note.rows = len(frame)
    return frame


def _forget(frame: Frame, work: _Work) -> Frame:
    """Drop variables nobody needs, and merge rows that have become equal where only their number counts."""
    wanted = work.wanted()
    if frame.columns.keys() <= wanted:
        return frame
    frame = frame.keep(wanted)
    if work.counting is Counting.ROWS:
        return frame
    if not frame.columns:
        total = frame.total() if work.counting is Counting.NUMBERS else min(len(frame), 1)
        return Frame(1, {}, np.array([total], dtype=np.int64)) if total else Frame(0)
    if len(frame) < MERGE_MIN:
        return frame
    return _merge(frame, work.counting)


def _merge(frame: Frame, counting: Counting) -> Frame:
    names = sorted(frame.columns)
    columns = [frame.columns[name] for name in names]
    bounds = [int(column.max(initial=0)) + 1 for column in columns]
    if len(names) == 1 and bounds[0] <= DENSE_FACTOR * len(frame):
        # One variable over a small range: counting by value needs no sort.
        counts = np.bincount(columns[0], minlength=bounds[0])
        values = np.flatnonzero(counts)
        if frame.weights is not None and frame.total() < EXACT_MAX:
            counts = np.bincount(columns[0], weights=frame.weights, minlength=bounds[0]).astype(np.int64)
        elif frame.weights is not None:
            counts = np.zeros(bounds[0], dtype=np.int64)
            np.add.at(counts, columns[0], frame.weights)
        weights = counts[values] if counting is Counting.NUMBERS else None
        return Frame(len(values), {names[0]: values}, weights)
    if counting is Counting.NUMBERS and len(names) > 1:
        return frame
    key = combine(columns, bounds)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    merged = Frame(len(first), {name: frame.columns[name][first] for name in names})
    if counting is Counting.EXISTENCE:
        return merged
    weights = frame.weights if frame.weights is not None else np.ones(len(frame), dtype=np.int64)
    sums = np.zeros(len(first), dtype=np.int64)
    np.add.at(sums, group.reshape(-1), weights)
    return Frame(merged.length, merged.columns, sums)


# --- growing ----------------------------------------------------------------------------------------------------------


def _grow(context: Context, frame: Frame, work: _Work) -> Frame:
    candidates = _growths(context, frame, work)
    if not candidates:
        return _begin(context, frame, work)
    best, reason = choose_growth(candidates)
    expand = best.expand
    work.expands.remove(expand)
    far = expand.target if best.from_source else expand.source
    work.scans.pop(far, None)
    wanted = work.wanted()
    edge_wanted = expand.edge_variable is not None and expand.edge_variable in wanted
    unseen = far not in wanted and far not in frame.columns and not edge_wanted
    if unseen and expand.max_hops == 1 and work.counting is not Counting.ROWS and context.options.use_factoring:
        why = partial("nothing asks for ${}, so it is not listed".format, far)
        with context.step("count", partial(describe_expand, expand, best.from_source), why) as note:
            frame = frame.weighted(degree_factor(context, expand, frame, best.from_source))
            if work.counting is Counting.EXISTENCE:
                frame = Frame(frame.length, frame.columns)
            note.rows = len(frame)
        return frame
    with context.step("expand", partial(describe_expand, expand, best.from_source), reason) as note:
        grown = None
        if work.counting is Counting.NUMBERS and context.options.use_factoring:
            grown = flow_frame(context, expand, frame, best.from_source, wanted)
        if grown is not None:
            note.because(partial("only how often each ${} is met matters".format, far))
            note.rows = len(grown)
            return grown
        grown = expand_frame(context, expand, frame, best.from_source, wanted)
        note.rows = len(grown)
    is_less = not frame.columns.keys() <= wanted
    return _merge_one(grown, work.counting) if is_less and work.counting is not Counting.ROWS else grown


def _merge_one(frame: Frame, counting: Counting) -> Frame:
    """Merge rows of a single variable that an expand met many times, where that needs no sort."""
    if len(frame.columns) != 1 or len(frame) < max(MERGE_MIN, 1):
        return frame
    (column,) = frame.columns.values()
    return _merge(frame, counting) if int(column.max()) < DENSE_FACTOR * len(frame) else frame


def _growths(context: Context, frame: Frame, work: _Work) -> list[Growth]:
    if len(work.expands) == 1:
        (expand,) = work.expands
        if (expand.source in frame.columns) != (expand.target in frame.columns):
            return [Growth(expand, expand.source in frame.columns, None)]
    found = []
    for expand in work.expands:
        for from_source, near, far in ((True, expand.source, expand.target), (False, expand.target, expand.source)):
            if near in frame.columns:
                counts = {t: context.nodes(t).live_count for t in (expand.source_type, expand.target_type)}
                edges = context.edges(expand.edge_type).live_count
                found.append(growth(expand, from_source, edges, counts, work.conditions(far)))
    return found


def _begin(context: Context, frame: Frame, work: _Work) -> Frame:
    """Bind a variable that is not connected to what is bound: join it by a shared value, else by cross product."""
    link = find_join(frame, work.clauses, work.scans)
    if link is not None:
        del work.scans[link.variable]
        work.clauses.remove(link.clause)
        why = "the values of both sides are known"
        with context.step("join", partial(describe, link.clause.predicate), why) as note:
            frame = join_by_value(context, frame, link)
            note.rows = len(frame)
        return frame
    sharp = [c for c in work.clauses if c.is_equality and c.variables <= work.scans.keys()]
    if len(work.scans) == 1:
        (variable,) = work.scans
        reason: Reason = _ONLY_START
    elif len(sharp) == 1:
        (variable,) = sharp[0].variables
        reason = _ONLY_EQUALITY
    else:
        best, reason = choose_start(_starts(context, work))
        variable = best.variable
    del work.scans[variable]
    own = work.conditions(variable)
    work.clauses = [clause for clause in work.clauses if clause.variables != {variable}]
    with context.step("scan", lambda: f"${variable}: {context.types[variable]}", reason) as note:
        codes, how = start_rows(context, variable, own)
        note.because(lambda: f"{reason()}{how}")
        context.check_rows(len(frame) * len(codes), len(frame.columns) + 1, f"combining rows with ${variable}")
        frame = _cross(frame, variable, codes)
        note.rows = len(frame)
    return frame


def _starts(context: Context, work: _Work) -> list[Start]:
    linked = frozenset(name for clause in work.clauses if len(clause.variables) > 1 for name in clause.variables)
    found = []
    for variable in work.scans:
        conditions = work.conditions(variable)
        rows = float(context.nodes(context.types[variable]).live_count)
        for predicate in conditions:
            rows *= selectivity(predicate)
        is_asked = variable in work.asked or variable in linked or work.counting is Counting.ROWS
        found.append(Start(variable, rows, not conditions, is_asked))
    return found


def _cross(frame: Frame, variable: str, codes: Ints) -> Frame:
    if frame is UNIT:
        return Frame(len(codes), {variable: codes})
    index = np.repeat(np.arange(len(frame), dtype=np.int64), len(codes))
    return frame.take(index).bind(variable, np.tile(codes, len(frame)))
