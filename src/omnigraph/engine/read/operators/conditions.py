"""Which nodes satisfy a condition, worked out for all nodes at once and kept with the state of the graph.

A comparison of a property with a value depends on the node alone. When the same one is asked of the same state again
and again, so that a good part of the nodes has been tested, all of them are, and from then on a row is one look into
an array. The value is part of what is remembered, so a parameter that changes with every call is never worth it.
"""

from __future__ import annotations

from typing import Any

from omnigraph.engine.read.context import Context
from omnigraph.engine.read.kernels import Bools
from omnigraph.engine.read.operators.scan import mask_by_code
from omnigraph.plan.operators import Comparison, Literal, ParameterRef, Predicate, PropertyRef

TESTED_SHARE = 8
"""A condition is worked out for all nodes once it was tested on one in this many of them."""
MARKS_BYTES_MAX = 16 << 20
"""Kept per state; when there are more, all are dropped and those still in use made again."""
ASKED_MAX = 1024
"""Conditions whose tests are counted, per state."""


def condition_marks(context: Context, variable: str, type_name: str, predicate: Predicate, rows: int) -> Bools | None:
    """By code, which nodes satisfy a condition; None while testing the rows at hand is the better way."""
    key = _key(context, type_name, predicate)
    if key is None:
        return None
    conditions = context.tables.conditions
    kept, asked = conditions.marks, conditions.tested
    found = kept.get(key)
    if found is not None:
        return found
    tested = asked.get(key, 0) + rows
    if tested * TESTED_SHARE < context.nodes(type_name).position_count:
        if len(asked) >= ASKED_MAX:
            asked.clear()
        asked[key] = tested
        return None
    found = mask_by_code(context, variable, [predicate])
    if sum(marks.nbytes for marks in list(kept.values())) + found.nbytes > MARKS_BYTES_MAX:
        kept.clear()
    kept[key] = found
    return found


def _key(context: Context, type_name: str, predicate: Predicate) -> tuple[Any, ...] | None:
    """Names a comparison of one property with one value; None for anything else."""
    if not isinstance(predicate, Comparison):
        return None
    sides: list[Any] = []
    for side in (predicate.left, predicate.right):
        if isinstance(side, PropertyRef):
            sides.append(side.property)
        elif isinstance(side, Literal | ParameterRef):
            constant = context.constant(side)
            sides.append((constant.type, type(constant.value), constant.value))
        else:
            return None
    return type_name, predicate.operator, *sides
