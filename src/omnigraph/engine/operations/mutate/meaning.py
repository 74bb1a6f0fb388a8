"""Which entities an update or delete means, and for which rows of the match.

Entities are found by the conditions that look at nothing but them; those that also look at the match are judged on
pairs of an entity and a row, joined by a value where one condition asks for equality.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.operations.mutate.judging import Judge, StatementRows, columns_at, depends, reads_match
from omnigraph.engine.operations.mutate.matched import Matched
from omnigraph.engine.read.operators.computed import may_fail
from omnigraph.engine.storage.columns import Offsets
from omnigraph.plan.operators import Comparison, ComparisonOperator, Expression, Predicate, PropertyRef
from omnigraph.plan.statements import SELF
from omnigraph.plan.types import variables_of


class Pairs(Struct, frozen=True):
    """Entities by their place among those found, each beside the number of a row of the match."""

    entities: Offsets
    rows: Offsets

    def __len__(self) -> int:
        return len(self.entities)

    def at(self, places: Offsets) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.entities[places], self.rows[places])


def judged(judge: Judge, found: pa.Table, pairs: Pairs, matched: Matched, predicates: Sequence[Predicate]) -> Pairs:
    """The pairs that satisfy every condition; those that may fail are asked last, of what the others left."""
    for predicate in sorted(predicates, key=may_fail):
        if not len(pairs):
            break
        mask = judge.mask(predicate, rows_of(found, pairs, matched))
        pairs = pairs.at(np.flatnonzero(mask))
    return pairs


def rows_of(found: pa.Table, pairs: Pairs, matched: Matched) -> StatementRows:
    """Pairs as rows: the columns of the entity, and what is known of the match's row."""
    return StatementRows(len(pairs), columns_at(found, pairs.entities), matched.at(pairs.rows))


def every_pair(judge: Judge, found: pa.Table, matched: Matched) -> Pairs:
    """Every entity beside every row."""
    entities, rows = found.num_rows, matched.length
    judge.context.check_rows(entities * rows, 2 + len(matched.known), "the match beside what the statement means")
    return Pairs(np.repeat(np.arange(entities), rows), np.tile(matched.every(), entities))


class Join(Struct, frozen=True):
    """A condition `property = expression` whose expression depends on the match alone."""

    held: PropertyRef
    sought: pa.Array

    def pairs(self, judge: Judge, found: pa.Table) -> Pairs:
        """Every entity beside the rows whose value it holds."""
        values = pc.unique(self.sought).drop_null()
        held = wide.one_array(found.column(self.held.property))
        entities, rows = (_codes(column, values) for column in (held, self.sought))
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        starts, ends = np.searchsorted(ordered, entities), np.searchsorted(ordered, entities, side="right")
        counts = np.where(entities < 0, 0, ends - starts)
        judge.context.check_rows(int(counts.sum()), 2, "the match beside what the statement means")
        owners = np.repeat(np.arange(len(entities)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        return Pairs(owners, order[np.repeat(starts, counts) + within])


def _codes(column: pa.Array, values: pa.Array) -> Offsets:
    column, values = wide.alike(column, values)
    return np.asarray(pc.fill_null(pc.index_in(column, value_set=values), -1), dtype=np.int64)


def join_of(judge: Judge, matched: Matched, predicates: Sequence[Predicate]) -> Join | None:
    """The first condition by which entities and rows can be joined, where both sides store values alike."""
    for predicate in predicates:
        if not isinstance(predicate, Comparison) or predicate.operator is not ComparisonOperator.EQ:
            continue
        for held, sought in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
            if not (isinstance(held, PropertyRef) and held.variable == SELF) or not _is_of_match(sought):
                continue
            values = judge.column(sought, matched.rows)
            if pa.types.is_string(values.type):
                return Join(held, values)
    return None


def _is_of_match(expression: Expression) -> bool:
    return reads_match(expression) and SELF not in variables_of(expression)


def split(predicates: Sequence[Predicate]) -> tuple[list[Predicate], list[Predicate]]:
    """Conditions on the entity alone, and those that depend on the match."""
    alone = [each for each in predicates if not depends(each)]
    return alone, [each for each in predicates if depends(each)]
