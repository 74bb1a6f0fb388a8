"""Joins by an equal value: a variable bound to every node that shares a property with a bound one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

import numpy as np
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.kernels import ranges
from omnigraph.engine.read.operators.lookup import INDEXABLE
from omnigraph.engine.read.operators.predicates import FrameRows
from omnigraph.engine.read.plan.prepare import Clause
from omnigraph.errors import InternalError
from omnigraph.plan.operators import Comparison, ComparisonOperator, PropertyRef


class ValueJoin(Struct, frozen=True):
    """An equality between a property that is bound and one of a variable that is not yet."""

    clause: Clause
    bound: PropertyRef
    other: PropertyRef

    @property
    def variable(self) -> str:
        """The variable the join binds."""
        return self.other.variable


def find_join(bound: Set[str], clauses: Collection[Clause], scans: Mapping[str, str]) -> ValueJoin | None:
    """An equality that binds a further variable, if the pattern has one."""
    for clause in clauses:
        predicate = clause.predicate
        if not isinstance(predicate, Comparison) or predicate.operator is not ComparisonOperator.EQ:
            continue
        for one, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
            if not (isinstance(one, PropertyRef) and isinstance(other, PropertyRef)):
                continue
            if one.type.scalar is not other.type.scalar or one.type.scalar not in INDEXABLE:
                continue
            if one.variable in bound and other.variable in scans:
                return ValueJoin(clause, one, other)
    return None


def join_by_value(context: Context, frame: Frame, link: ValueJoin) -> Frame:
    """Bind a variable to every node whose property equals the bound one; nulls equal nothing."""
    view = context.view(link.variable)
    if not isinstance(view, NodeView):
        raise InternalError(f"${link.variable} is not a node variable and cannot be joined by value")
    codes = view.live_codes
    left = FrameRows(context, frame).fetch(link.bound)
    right = view.take(link.other.property, view.position_of(codes))
    encoded = pc.dictionary_encode(wide.concat([left, right]))
    keys = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    left_keys, right_keys = keys[: len(left)], keys[len(left) :]
    held = np.flatnonzero(right_keys >= 0)
    held = held[np.argsort(right_keys[held], kind="stable")]
    ordered = right_keys[held]
    begins = np.searchsorted(ordered, left_keys, side="left")
    sizes = np.where(left_keys >= 0, np.searchsorted(ordered, left_keys, side="right") - begins, 0)
    context.check_rows(int(sizes.sum()), len(frame.columns) + 1, f"joining ${link.variable} by value")
    places, owner = ranges(begins, sizes)
    return frame.take(owner).bind(link.variable, codes[held[places]])
