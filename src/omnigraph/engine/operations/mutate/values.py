"""What statements write: the values of their assignments, as rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.model import EdgeType
from omnigraph.catalog.types import Scalar
from omnigraph.engine.changes.equality import equal_values
from omnigraph.engine.operations.mutate.judging import Judge, StatementRows, columns_at, reads_match
from omnigraph.engine.operations.mutate.matched import Matched
from omnigraph.engine.operations.mutate.meaning import Pairs, rows_of
from omnigraph.engine.storage.columns import Offsets
from omnigraph.engine.values.columns import column_type
from omnigraph.engine.values.entities import Entity, assemble
from omnigraph.engine.values.external import ExternalBlobs
from omnigraph.engine.write.assign import assigned, fitted
from omnigraph.errors import ConstraintError
from omnigraph.plan.operators import Expression, Literal, Now, ParameterRef
from omnigraph.plan.statements import Assignment, InsertEdge, InsertNode, Updating


class Values(Struct, frozen=True):
    """Computes what is assigned, for the rows of the match."""

    judge: Judge
    matched: Matched
    external_blobs: ExternalBlobs

    def depend(self, statement: Updating) -> bool:
        """Whether what an update assigns depends on the row of the match."""
        return any(reads_match(each.value) for each in statement.assignments)

    # --- inserts

    def inserted(self, entity: Entity, statement: InsertNode | InsertEdge) -> pa.Table:
        """A row for each row of the match."""
        count = self.matched.length
        columns = {each.property: self._column(entity, each, self.matched.rows) for each in statement.assignments}
        ends = None
        if isinstance(statement, InsertEdge) and isinstance(entity, EdgeType):
            ends = self._end(entity, "from", statement.source), self._end(entity, "to", statement.target)
        rows, problems = assemble(entity, columns, count, ends=ends, now=self.judge.context.now)
        if problems:
            raise ConstraintError(problems[0].message, violations=[problem.message for problem in problems])
        return rows

    def _end(self, edge: EdgeType, word: str, value: Expression) -> pa.Array:
        if isinstance(value, Literal | ParameterRef | Now):
            text = self._value(value)
            if not isinstance(text, str):
                raise ConstraintError(f"edge {edge.name}: '{word}' must be the id of a node, not {text!r}")
            return wide.repeat(pa.scalar(text, pa.string()), self.matched.length)
        ids = self.judge.column(value, self.matched.rows)
        if ids.null_count:
            raise ConstraintError(f"edge {edge.name}: '{word}' must be the id of a node, not null")
        return ids.cast(pa.string())

    # --- updates

    def updated(
        self, entity: Entity, statement: Updating, rows: pa.Table, pairs: Pairs | None
    ) -> tuple[pa.Table, Offsets | slice]:
        """Rows with what is assigned to them, and which of the rows these are: without pairs, all."""
        kept: Offsets | slice = slice(None)
        if pairs is not None:
            kept, firsts, owners = np.unique(pairs.entities, return_index=True, return_inverse=True)
        before = rows if pairs is None else wide.take_rows(rows, kept)
        alone, changed = StatementRows(before.num_rows, columns_at(before)), before
        for each in statement.assignments:
            if pairs is None or not reads_match(each.value):
                column = self._column(entity, each, alone)
            else:
                column = self._column(entity, each, rows_of(rows, pairs, self.matched))
                column = _agreed(entity, each, column, firsts, owners, before)
            fitting = wide.plain_chunks(column, column_type(entity.properties[each.property].type))
            changed = changed.set_column(changed.schema.get_field_index(each.property), each.property, fitting)
        return changed, kept

    # --- columns

    def _column(self, entity: Entity, assignment: Assignment, rows: StatementRows) -> pa.Array:
        prop, value = entity.properties[assignment.property], assignment.value
        if not isinstance(value, Literal | ParameterRef | Now):
            return fitted(entity, prop, self.judge.column(value, rows))
        column = assigned(entity, prop, self._value(value), rows.length)
        if prop.type.scalar is Scalar.BLOB:
            column = self.external_blobs.admit_column(column, f"{entity.name}.{prop.name}")
        return column

    def _value(self, value: Literal | ParameterRef | Now) -> Any:
        if isinstance(value, Literal):
            return value.value
        context = self.judge.context
        return context.now if isinstance(value, Now) else context.params.get(value.name)


def _agreed(
    entity: Entity,
    assignment: Assignment,
    column: pa.Array,
    firsts: npt.NDArray[Any],
    owners: npt.NDArray[Any],
    rows: pa.Table,
) -> pa.Array:
    """The value of each entity, on which all rows of the match that mean it must agree."""
    chosen = wide.take(column, firsts)
    if len(owners) > len(firsts):
        same = equal_values(column, wide.take(chosen, owners))
        if not same.all():
            _disagree(entity, assignment.property, rows.column("id")[int(owners[np.flatnonzero(~same)[0]])].as_py())
    return chosen


def once_each(entity: Entity, rows: pa.Table) -> pa.Table:
    """Rows of a keyed insert, each id once; rows of one id must be the same."""
    if rows.num_rows < 2:
        return rows
    codes = wide.one_array(rows.column("id")).dictionary_encode().indices.to_numpy()
    _, firsts, owners = np.unique(codes, return_index=True, return_inverse=True)
    if len(firsts) == len(codes):
        return rows
    for name in entity.properties:
        column = wide.one_array(rows.column(name))
        same = equal_values(column, wide.take(column, firsts[owners]))
        if not same.all():
            _disagree(entity, name, rows.column("id")[int(np.flatnonzero(~same)[0])].as_py())
    return wide.take_rows(rows, np.sort(firsts))


def _disagree(entity: Entity, name: str, entity_id: str) -> None:
    raise ConstraintError(
        f"rows of the match set {entity.name}.{name} of '{entity_id}' to different values:"
        " let the match find one row for each, or compute one value"
    )
