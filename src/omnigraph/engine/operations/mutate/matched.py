"""The match before the statements of a mutation: read once, from the state before it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.engine.embedding import Embedder
from omnigraph.engine.operations.mutate.judging import Known, StatementRows, no_columns
from omnigraph.engine.read import execute
from omnigraph.engine.read.reader import ReadState
from omnigraph.engine.storage.columns import Offsets
from omnigraph.engine.write.transaction import Transaction
from omnigraph.errors import InternalError
from omnigraph.ids import TableKey, edge_key, node_key
from omnigraph.plan.operators import Pattern, PropertyRef, ReadPlan


class Source(Struct, frozen=True):
    """Where the reads of one attempt find what they need."""

    state: ReadState
    parameters: Mapping[str, Any]
    now: datetime
    embedder: Embedder | None = None

    def read(self, transaction: Transaction, plan: ReadPlan) -> tuple[int, pa.Table]:
        """Run a read on the state before the mutation, which then depends on every table it has read."""
        transaction.depend_on(_tables(plan.pattern))
        found = execute(plan, self.state, self.parameters, embedder=self.embedder, now=self.now)
        return found.length, found.to_table() if plan.projections else pa.table({})


def _tables(pattern: Pattern) -> set[TableKey]:
    """The tables that a pattern looks at."""
    found = {node_key(scan.type_name) for scan in pattern.scans}
    for each in (*pattern.expands, *(path.expand for path in pattern.paths)):
        found |= {edge_key(each.edge_type), node_key(each.source_type), node_key(each.target_type)}
    for inner in pattern.inner:
        found |= _tables(inner)
    return found


class Matched(Struct, frozen=True):
    """The rows that statements run for, by what these ask of them; without a match there is one, and nothing known."""

    length: int = 1
    known: Known = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, transaction: Transaction, plan: ReadPlan | None) -> Matched:
        """Read the match, if there is one."""
        if plan is None:
            return cls()
        length, rows = source.read(transaction, plan)
        known = {each.expression: wide.one_array(rows.column(each.column)) for each in plan.projections}
        return cls(length, known)

    def ids(self, variable: str) -> pa.Array:
        """The id of what a variable stands for, row by row."""
        for each, column in self.known.items():
            if isinstance(each, PropertyRef) and (each.variable, each.property) == (variable, "id"):
                return column
        raise InternalError(f"the ids of ${variable} were not read before the statements")

    def at(self, rows: Offsets) -> Known:
        """What is known of some rows."""
        return {each: wide.take(column, rows) for each, column in self.known.items()}

    @property
    def rows(self) -> StatementRows:
        """The rows for expressions that look at nothing else."""
        return StatementRows(self.length, no_columns, self.known)

    def every(self) -> Offsets:
        """All rows."""
        return np.arange(self.length, dtype=np.int64)
