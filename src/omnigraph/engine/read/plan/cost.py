"""Which part of a pattern comes next, decided from counts, with the reason said.

Decisions are pure functions over numbers the snapshot knows for nothing: rows per table, edges per node. They
are taken one at a time before the pattern runs (`join_order`), once for each plan and state, because none of them
depends on the rows or on the values of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from omnigraph.plan.operators import (
    And,
    Comparison,
    ComparisonOperator,
    Expand,
    InList,
    IsNull,
    IsTrue,
    ListContains,
    Not,
    Or,
    Predicate,
    StringPredicate,
    TextMatch,
)

FEW_STARTS = 64
"""A start of so few rows is not worth trading for another."""
PREFER_ASKED_FACTOR = 8.0
"""How many times larger a start may be when that lets an unasked variable be counted instead of listed."""


def selectivity(predicate: Predicate) -> float:
    """The share of rows expected to satisfy a predicate, before anything is known of the values."""
    match predicate:
        case Comparison(operator=ComparisonOperator.EQ):
            return 0.01
        case Comparison(operator=ComparisonOperator.NE):
            return 0.9
        case Comparison():
            return 0.3
        case ListContains() | StringPredicate() | IsNull(negated=False):
            return 0.1
        case TextMatch():
            return 0.02
        case InList():
            return 0.05
        case IsNull():
            return 0.9
        case IsTrue():
            return 0.5
        case Not(predicate=inner):
            return 1.0 - selectivity(inner)
        case And(parts=parts):
            return math.prod(selectivity(part) for part in parts)
        case Or(parts=parts):
            return min(sum(selectivity(part) for part in parts), 1.0)


class Start(Struct, frozen=True):
    """A variable the pattern may begin with, and how many rows it would give."""

    variable: str
    rows: float
    is_exact: bool
    is_asked: bool


Reason = Callable[[], str]
"""Words for a choice, made when somebody reads them."""

ONLY_START: Reason = "the only variable left to begin with".__str__
ONLY_EQUALITY: Reason = "the only variable asked for one value".__str__


def choose_start(starts: Collection[Start]) -> tuple[Start, Reason]:
    """The variable to begin with: the fewest rows, but rather one whose values somebody asks for."""
    best = min(starts, key=lambda start: (start.rows, not start.is_asked, start.variable))
    asked = [start for start in starts if start.is_asked and start.rows <= best.rows * PREFER_ASKED_FACTOR]
    if not best.is_asked and asked and best.rows > FEW_STARTS:
        preferred = min(asked, key=lambda start: (start.rows, start.variable))
        return (
            preferred,
            lambda: (
                f"{_about(preferred)} rows; ${best.variable} would give {_about(best)} but nothing asks for its values"
            ),
        )
    return best, lambda: _fewest(best, starts)


def _fewest(best: Start, starts: Collection[Start]) -> str:
    others = sorted(f"${start.variable} {_about(start)}" for start in starts if start is not best)
    return f"{_about(best)} rows, the fewest" + (f" ({', '.join(others[:4])})" if others else "")


def _about(start: Start) -> str:
    return f"{start.rows:,.0f}" if start.is_exact else f"about {start.rows:,.0f}"


class Growth(Struct, frozen=True):
    """An expand that may come next, from which end, and by what factor rows would grow."""

    expand: Expand
    from_source: bool
    factor: float | None
    """None when there is no choice and nobody needed to know."""


def growth(
    expand: Expand,
    from_source: bool,
    edge_count: int,
    counts: Mapping[str, int],
    predicates: Collection[Predicate],
) -> Growth:
    """Estimate how many rows one row becomes: mean degree per hop, times the share that passes the far end's tests."""
    near = expand.source_type if from_source else expand.target_type
    far = expand.target_type if from_source else expand.source_type
    degree = edge_count * (2 if expand.undirected else 1) / max(counts[near], 1)
    factor = degree if expand.max_hops == 1 else min(max(degree, 1.0) ** expand.max_hops, float(counts[far]))
    for predicate in predicates:
        factor *= selectivity(predicate)
    return Growth(expand, from_source, factor)


def choose_growth(candidates: Collection[Growth]) -> tuple[Growth, Reason]:
    """The expand that grows the rows least."""
    if len(candidates) == 1:
        (only,) = candidates
        return only, lambda: "the only one left"
    best = min(candidates, key=lambda c: (c.factor or 0.0, c.expand.edge_type, c.expand.source, c.expand.target))
    return best, lambda: f"about {best.factor:,.2f} rows per row, the least of {len(candidates)}"
