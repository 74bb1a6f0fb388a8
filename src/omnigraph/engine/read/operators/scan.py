"""Where rows begin: the nodes of a type that pass their own conditions.

Equality is answered by a lookup, text conditions from the text index, everything else by testing whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.kernels import Bools, Ints
from omnigraph.engine.read.operators.alternatives import NO_PREDICATE, any_equal_positions, is_union
from omnigraph.engine.read.operators.lookup import Access, Found, equal_positions
from omnigraph.engine.read.operators.predicates import FrameRows, GroupRows, predicate_mask
from omnigraph.engine.read.plan.operations import Scan
from omnigraph.engine.read.text.search import text_positions
from omnigraph.plan.operators import InList, Or, Predicate, TextMatch


def start_rows(context: Context, begin: Scan) -> tuple[Ints, str]:
    """The codes of the nodes that pass all predicates of one variable, and how they were found."""
    if begin.risky:
        return _tested_last(context, begin)
    view, variable, predicates = context.nodes(begin.type_name), begin.variable, begin.predicates
    if not predicates:
        return view.live_codes, ""
    seed, found = _seed(context, view, begin)
    if seed is None or found is None:
        return view.codes[scan_mask(context, view, predicates)].astype(np.int64), Access.SCAN.value
    positions = found.positions
    if found.may_be_deleted and not view.all_live:
        positions = positions[view.is_live(positions)]
    codes = view.codes_at(positions)
    context.begun[variable] = codes, positions
    if len(predicates) > 1 or seed is NO_PREDICATE:
        frame = Frame(len(codes), {variable: codes})
        for predicate in predicates:
            if predicate is not seed:
                frame = frame.where(predicate_mask(context, predicate, FrameRows(context, frame)))
        codes = frame.columns[variable]
    return codes, found.how


def _tested_last(context: Context, begin: Scan) -> tuple[Ints, str]:
    """The same where some predicates may fail: those see only nodes that are there and pass all others."""
    codes, how = start_rows(context, begin.sure)
    frame = Frame(len(codes), {begin.variable: codes})
    for predicate in begin.risky:
        frame = frame.where(predicate_mask(context, predicate, FrameRows(context, frame)))
    return frame.columns[begin.variable], how


def scan_mask(context: Context, view: TableView, predicates: Sequence[Predicate]) -> Bools:
    """Which positions are live and pass all predicates, tested group by group."""
    mask = np.zeros(view.position_count, dtype=np.bool_)
    for index in range(len(view.groups)):
        rows = GroupRows(view, index)
        span = slice(int(view.group_starts[index]), int(view.group_starts[index + 1]))
        part = predicate_mask(context, predicates[0], rows)
        for predicate in predicates[1:]:
            if not part.any():
                break
            part = part & predicate_mask(context, predicate, rows)
        mask[span] = part
    return mask if view.all_live else mask & view.live


def mask_by_code(context: Context, variable: str, predicates: Sequence[Predicate]) -> Bools:
    """Which codes are nodes that pass all predicates."""
    view = context.nodes(context.types[variable])
    marks = np.zeros(len(view.positions), dtype=np.bool_)
    marks[view.codes[scan_mask(context, view, predicates)]] = True
    return marks


def _seed(context: Context, view: NodeView, begin: Scan) -> tuple[Predicate | None, Found | None]:
    """A predicate that can name its rows without a scan, and those rows."""
    for predicate, reference, value in begin.equalities:
        found = equal_positions(context, view, reference, value)
        if found is not None:
            return predicate, found
    for predicate in begin.predicates:
        if isinstance(predicate, TextMatch):
            return predicate, Found(text_positions(context, predicate), "from the text index")
        if isinstance(predicate, InList | Or):
            found = any_equal_positions(context, view, predicate)
            if found is not None:
                return (predicate if is_union(predicate) else NO_PREDICATE), found
    return None, None
