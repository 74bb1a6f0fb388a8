"""Matching a pattern: from nothing to the rows that satisfy every clause.

The pattern is a set, so work proceeds greedily: apply what is already decided (filters, checks, anti-joins), then grow
by the expand that adds least, and begin with a new variable only when nothing is connected. Variables that nobody
needs any more are dropped, and where only numbers of rows matter equal rows are merged and counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from omnigraph.engine.reading.context import Context, Step
from omnigraph.engine.reading.describe import describe, describe_expand
from omnigraph.engine.reading.expand import degree_factor, expand_frame, expand_total, joined
from omnigraph.engine.reading.frame import UNIT, Frame
from omnigraph.engine.reading.kernels import Bools, Ints, combine, distinct
from omnigraph.engine.reading.planner import Growth, Start, choose_growth, choose_start, growth, selectivity
from omnigraph.engine.reading.predicates import FrameRows, predicate_mask, predicate_variables
from omnigraph.engine.reading.scan import find_join, join_by_value, mask_by_code, start_rows, value_join_links
from omnigraph.plan.operators import AntiJoin, Expand, Filter, Pattern, Predicate

ROW = "#row"
"""The variable that names the outer row inside an anti-join; no written variable contains `#`."""
MERGE_MIN = 1024
"""Below this many rows merging equal ones costs more than it saves."""


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
    filters: list[Filter]
    anti_joins: list[AntiJoin]
    asked: frozenset[str]
    """Variables whose values the result needs."""
    counting: Counting
    joined_filters: set[int] = field(default_factory=set)

    def wanted(self) -> frozenset[str]:
        """Variables that something still to be done, or the result, needs."""
        needed = set(self.asked)
        for expand in self.expands:
            needed |= {expand.source, expand.target}
        for clause in self.filters:
            needed |= predicate_variables(clause.predicate)
        for anti_join in self.anti_joins:
            needed |= free_variables(anti_join.pattern)
        return frozenset(needed)

    @property
    def is_done(self) -> bool:
        return not (self.expands or self.filters or self.anti_joins or self.scans)


def match_pattern(
    context: Context, pattern: Pattern, asked: Iterable[str], counting: Counting, seed: Frame = UNIT
) -> Frame:
    """All rows that extend `seed` and satisfy the pattern, with at least the variables asked for."""
    context.declare(pattern)
    for anti_join in pattern.anti_joins:
        context.declare(anti_join.pattern)
    work = _Work(
        scans={scan.variable: scan.type_name for scan in pattern.scans if scan.variable not in seed.columns},
        expands=list(pattern.expands),
        filters=list(pattern.filters),
        anti_joins=list(pattern.anti_joins),
        asked=frozenset(asked),
        counting=counting,
    )
    frame = seed
    while True:
        frame = _settle(context, frame, work)
        if work.is_done or not len(frame):
            break
        frame = _grow(context, frame, work)
    if not len(frame):
        empty = np.empty(0, dtype=np.int64)
        return Frame(0, dict.fromkeys(frame.variables | work.asked, empty))
    return frame


def free_variables(pattern: Pattern) -> frozenset[str]:
    """Variables a pattern uses without ranging over them itself: those an enclosing pattern must bind."""
    used: set[str] = set()
    own = {scan.variable for scan in pattern.scans}
    for expand in pattern.expands:
        used |= {expand.source, expand.target}
        if expand.edge_variable is not None:
            own.add(expand.edge_variable)
    for clause in pattern.filters:
        used |= predicate_variables(clause.predicate)
    for anti_join in pattern.anti_joins:
        used |= free_variables(anti_join.pattern)
    return frozenset(used - own)


# --- what is already decided ------------------------------------------------------------------------------------------


def _settle(context: Context, frame: Frame, work: _Work) -> Frame:
    """Apply every filter, check and anti-join whose variables are bound, cheapest kinds first."""
    for variable in list(work.scans):
        if variable in frame.columns:
            del work.scans[variable]
    frame = _apply_filters(context, frame, work)
    for expand in [e for e in work.expands if _is_check(e, frame)]:
        if not len(frame):
            return frame
        work.expands.remove(expand)
        with context.step("check", describe_expand(expand), "both ends are bound") as note:
            frame = frame.where(joined(context, expand, frame))
            note.rows = len(frame)
    for anti_join in list(work.anti_joins):
        if len(frame) and free_variables(anti_join.pattern) <= frame.variables:
            work.anti_joins.remove(anti_join)
            frame = _anti_join(context, frame, anti_join)
    return _forget(frame, work)


def _is_check(expand: Expand, frame: Frame) -> bool:
    return {expand.source, expand.target} <= frame.variables and expand.edge_variable is None


def _apply_filters(context: Context, frame: Frame, work: _Work) -> Frame:
    for clause in list(work.filters):
        variables = predicate_variables(clause.predicate)
        if not variables <= frame.variables:
            continue
        work.filters.remove(clause)
        if not len(frame):
            continue
        with context.step("filter", describe(clause.predicate), "") as note:
            mask = _filter_mask(context, frame, clause, variables, note)
            frame = frame.where(mask)
            note.rows = len(frame)
    return frame


def _filter_mask(context: Context, frame: Frame, clause: Filter, variables: frozenset[str], note: Step) -> Bools:
    """Test each row, or each node once when there are more rows than nodes."""
    if len(variables) == 1:
        (variable,) = variables
        if variable in context.types and len(frame) > context.nodes(context.types[variable]).position_count:
            note.reason = "tested once per node, as there are more rows than nodes"
            return mask_by_code(context, variable, [clause.predicate])[frame.columns[variable]]
    note.reason = "its variables are bound"
    return predicate_mask(context, clause.predicate, FrameRows(context, frame))


def _anti_join(context: Context, frame: Frame, anti_join: AntiJoin) -> Frame:
    """Drop the rows that some extension satisfies; each distinct outer row is tried once."""
    outer = sorted(free_variables(anti_join.pattern))
    with context.step("anti-join", f"on {', '.join('$' + name for name in outer)}", "") as note:
        if outer:
            columns = [frame.columns[name] for name in outer]
            first, group = distinct(columns, [int(column.max(initial=0)) + 1 for column in columns])
            seed = Frame(len(first), {name: frame.columns[name][first] for name in outer})
        else:
            group = np.zeros(len(frame), dtype=np.int64)
            seed = UNIT
        seed = seed.bind(ROW, np.arange(len(seed), dtype=np.int64))
        note.reason = f"{len(seed):,} distinct outer rows"
        context.depth += 1
        try:
            found = match_pattern(context, anti_join.pattern, (ROW,), Counting.EXISTENCE, seed)
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
    if work.counting is Counting.ROWS or frame.variables <= wanted:
        return frame if frame.variables <= wanted else frame.keep(wanted)
    frame = frame.keep(wanted)
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
    if len(names) == 1 and bounds[0] <= 4 * len(frame):
        # One variable over a small range: counting by value needs no sort.
        counts = np.bincount(columns[0], minlength=bounds[0])
        values = np.flatnonzero(counts)
        if frame.weights is not None:
            counts = np.bincount(columns[0], weights=frame.weights, minlength=bounds[0]).astype(np.int64)
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
    work.expands.remove(best.expand)
    expand = best.expand
    far = expand.target if best.from_source else expand.source
    edge_wanted = expand.edge_variable is not None and expand.edge_variable in work.wanted()
    countable = work.counting is not Counting.ROWS and context.options.use_factoring and far not in frame.columns
    if countable and expand.max_hops == 1 and far not in work.wanted() and not edge_wanted:
        work.scans.pop(far, None)
        with context.step("count", describe_expand(expand), f"nothing asks for ${far}, so it is not listed") as note:
            frame = frame.weighted(degree_factor(context, expand, frame, best.from_source))
            if work.counting is Counting.EXISTENCE:
                frame = Frame(frame.length, frame.columns)
            note.rows = len(frame)
        return frame
    with context.step("expand", describe_expand(expand, best.from_source), reason) as note:
        bound = far in frame.columns
        context.check_rows(
            expand_total(context, expand, frame, best.from_source),
            len(frame.columns) + 2,
            f"following {expand.edge_type}",
        )
        frame = expand_frame(context, expand, frame, best.from_source, edge_wanted=edge_wanted, check=bound)
        note.rows = len(frame)
    return frame


def _growths(context: Context, frame: Frame, work: _Work) -> list[Growth]:
    found = []
    for expand in work.expands:
        for from_source, near, far in ((True, expand.source, expand.target), (False, expand.target, expand.source)):
            if near not in frame.columns:
                continue
            predicates = [c.predicate for c in work.filters if predicate_variables(c.predicate) == {far}]
            counts = {t: context.nodes(t).live_count for t in (expand.source_type, expand.target_type)}
            edges = context.edges(expand.edge_type).live_count
            found.append(growth(expand, from_source, edges, counts, predicates))
    return found


def _begin(context: Context, frame: Frame, work: _Work) -> Frame:
    """Bind a variable that is not connected to what is bound: join it by a shared value, else by cross product."""
    link = find_join(context, frame, work.filters, work.scans)
    if link is not None:
        del work.scans[link.variable]
        work.filters.remove(link.clause)
        with context.step("join", describe(link.clause.predicate), "the values of both sides are known") as note:
            frame = join_by_value(context, frame, link)
            note.rows = len(frame)
        return frame
    linked = value_join_links(work.filters)
    starts = []
    for variable in work.scans:
        predicates = [c.predicate for c in work.filters if predicate_variables(c.predicate) == {variable}]
        rows, exact = _estimate(context, variable, predicates)
        asked = variable in work.asked or variable in linked
        starts.append(Start(variable, rows, exact, asked or work.counting is Counting.ROWS))
    best, reason = choose_start(starts)
    del work.scans[best.variable]
    own = [c for c in work.filters if predicate_variables(c.predicate) == {best.variable}]
    work.filters = [c for c in work.filters if c not in own]
    detail = f"${best.variable}: {context.types[best.variable]}"
    with context.step("scan", detail, reason) as note:
        codes = start_rows(context, best.variable, [c.predicate for c in own], note)
        context.check_rows(len(frame) * len(codes), len(frame.columns) + 1, f"combining rows with ${best.variable}")
        frame = _cross(frame, best.variable, codes)
        note.rows = len(frame)
    return frame


def _estimate(context: Context, variable: str, predicates: list[Predicate]) -> tuple[float, bool]:
    rows = float(context.nodes(context.types[variable]).live_count)
    for predicate in predicates:
        rows *= selectivity(predicate)
    return rows, not predicates


def _cross(frame: Frame, variable: str, codes: Ints) -> Frame:
    if len(frame) == 1:
        index = np.zeros(len(codes), dtype=np.int64)
        return frame.take(index).bind(variable, codes)
    index = np.repeat(np.arange(len(frame), dtype=np.int64), len(codes))
    return frame.take(index).bind(variable, np.tile(codes, len(frame)))
