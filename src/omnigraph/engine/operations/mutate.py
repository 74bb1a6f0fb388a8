"""Run a mutation: its statements in written order, each seeing the earlier ones, published as one commit.

Rules of the schema are checked once, over the final state of everything the query wrote; a query that affects nothing
makes no commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.catalog.types import Scalar
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.outcomes import MutationResult
from omnigraph.engine.recovery.intent import WriterKind
from omnigraph.engine.staging.assign import assigned
from omnigraph.engine.staging.cancellation import Cancellation
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.entities import Entity, assemble
from omnigraph.engine.staging.external import ExternalBlobs
from omnigraph.engine.staging.rows import Under, WriteKind
from omnigraph.engine.staging.selection import Found, find_committed, find_pending, read_rows
from omnigraph.engine.staging.transaction import Transaction, WriteLimits, WriteRequest
from omnigraph.engine.staging.writer import write
from omnigraph.errors import ConstraintError
from omnigraph.ids import MAIN, CommitId, TableKey, check_actor, edge_key, node_key, parse_branch
from omnigraph.plan.operators import (
    Assignment,
    DeleteEdges,
    DeleteNodes,
    InsertEdge,
    InsertNode,
    Literal,
    Now,
    ParameterRef,
    Statement,
    UpdateNodes,
    Value,
    WritePlan,
)


def mutate(
    context: GraphContext,
    plan: WritePlan,
    parameters: Mapping[str, Any],
    *,
    branch: str = MAIN,
    actor: str | None = None,
    if_commit: str | None = None,
    base: Snapshot | None = None,
    cancellation: Cancellation | None = None,
    limits: WriteLimits | None = None,
) -> MutationResult:
    """Run a checked mutation with bound parameters.

    `if_commit` makes the write conditional on the branch head; `base` is the snapshot the caller decided on, the
    newest one by default.

    Raises:
        ConstraintError: it would break a rule of the schema; nothing changed.
        ConflictError: another write came in between; nothing changed.
        LimitError: it is larger than `limits` allow; nothing changed.
    """
    request = WriteRequest(
        parse_branch(branch),
        WriterKind.MUTATION,
        check_actor(actor),
        None if if_commit is None else CommitId(if_commit),
        cancellation=cancellation or Cancellation(),
        limits=limits or WriteLimits(),
    )
    now = _now()

    def prepare(transaction: Transaction) -> _Mutation:
        mutation = _Mutation(transaction, parameters, now, context.external_blobs)
        for statement in plan.statements:
            request.cancellation.check()
            mutation.run(statement)
        return mutation

    written = write(context, request, prepare, base=base, tables=_lenient_tables(plan))
    return MutationResult(
        branch=request.branch,
        query_name=plan.name,
        affected_nodes=written.value.affected_nodes,
        affected_edges=written.value.affected_edges,
        actor_id=request.actor,
        commit_id=None if written.committed is None else written.committed.commit_id,
    )


def _now() -> datetime:
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)


def _lenient_tables(plan: WritePlan) -> list[TableKey]:
    """The tables of a query that only inserts; a strict query is judged by what it read, not by its turn."""
    tables: set[TableKey] = set()
    for statement in plan.statements:
        if isinstance(statement, InsertNode):
            tables.add(node_key(statement.type_name))
        elif isinstance(statement, InsertEdge):
            tables.add(edge_key(statement.type_name))
        else:
            return []
    return sorted(tables)


@dataclass
class _Mutation:
    """One run of the statements on one transaction."""

    transaction: Transaction
    parameters: Mapping[str, Any]
    now: datetime
    external_blobs: ExternalBlobs
    affected_nodes: int = 0
    affected_edges: int = 0

    def run(self, statement: Statement) -> None:
        catalog = self.transaction.catalog
        if isinstance(statement, InsertNode):
            self._insert_node(catalog.nodes[statement.type_name], statement)
        elif isinstance(statement, InsertEdge):
            self._insert_edge(catalog.edges[statement.type_name], statement)
        elif isinstance(statement, UpdateNodes):
            self._update(catalog.nodes[statement.type_name], statement)
        elif isinstance(statement, DeleteNodes):
            self._delete_nodes(catalog.nodes[statement.type_name], statement)
        else:
            self._delete_edges(catalog.edges[statement.type_name], statement)

    def _value(self, value: Value) -> Any:
        if isinstance(value, Literal):
            return value.value
        if isinstance(value, ParameterRef):
            return self.parameters.get(value.name)
        if isinstance(value, Now):
            return self.now
        raise TypeError(f"unexpected value {value!r}")

    def _columns(self, entity: Entity, assignments: tuple[Assignment, ...], rows: int = 1) -> dict[str, pa.Array]:
        return {each.property: self._column(entity, each, rows) for each in assignments}

    def _column(self, entity: Entity, assignment: Assignment, rows: int) -> pa.Array:
        prop = entity.properties[assignment.property]
        column = assigned(entity, prop, self._value(assignment.value), rows)
        if prop.type.scalar is Scalar.BLOB:
            column = self.external_blobs.admit_column(column, f"{entity.name}.{prop.name}", keeps_references=False)
        return column

    # --- inserts and updates -----------------------------------------------------------------------------------------

    def _insert_node(self, node: NodeType, statement: InsertNode) -> None:
        rows = _assembled(node, self._columns(node, statement.assignments), None)
        if node.key:
            self.transaction.upsert(node, rows)
        else:
            self.transaction.insert(node, rows, ids_are_fresh=True)
        self.affected_nodes += 1

    def _insert_edge(self, edge: EdgeType, statement: InsertEdge) -> None:
        ends = (self._end(edge, "from", statement.source), self._end(edge, "to", statement.target))
        rows = _assembled(edge, self._columns(edge, statement.assignments), ends)
        self.transaction.insert(edge, rows, ids_are_fresh=True)
        self.affected_edges += 1

    def _end(self, edge: EdgeType, word: str, value: Value) -> pa.Array:
        text = self._value(value)
        if not isinstance(text, str):
            raise ConstraintError(f"edge {edge.name}: '{word}' must be the id of a node, not {text!r}")
        return pa.array([text], pa.string())

    def _update(self, node: NodeType, statement: UpdateNodes) -> None:
        for each in statement.assignments:
            if each.property in node.key:
                raise ConstraintError(
                    f"{node.name}.{each.property} is part of the key and cannot be changed; delete and insert instead"
                )
        value = self._value(statement.where.value)
        images, under, addresses = find_pending(self.transaction, node, statement.where, value)
        found = find_committed(self.transaction, node, statement.where, value)
        if images.num_rows:
            self.transaction.update(node, self._changed(node, images, statement), under, addresses)
        if len(found.addresses):
            handle = self.transaction.snapshot.open(node.table_key)
            rows = self._changed(node, read_rows(handle, node, found.addresses), statement)
            self.transaction.update(node, rows, Under.A_ROW, found.addresses)
        self.affected_nodes += images.num_rows + len(found.addresses)

    def _changed(self, node: NodeType, rows: pa.Table, statement: UpdateNodes) -> pa.Table:
        for name, column in self._columns(node, statement.assignments, rows.num_rows).items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return rows

    # --- deletes -----------------------------------------------------------------------------------------------------

    def _delete_nodes(self, node: NodeType, statement: DeleteNodes) -> None:
        found = find_committed(self.transaction, node, statement.where, self._value(statement.where.value))
        if not len(found.ids):
            return
        self.transaction.remove(node, found.ids, found.addresses)
        self.transaction.table(node, WriteKind.DELETE).edges_follow = True
        self.affected_nodes += len(found.ids)
        for edge in self.transaction.catalog.edges_touching(node.name):
            for end, type_name in (("src", edge.source), ("dst", edge.target)):
                if type_name == node.name:
                    rows = self.transaction.view.rows_where_in(
                        edge.table_key, end, found.ids, ["id", "src"], with_address=True
                    )
                    self._remove_edges(edge, rows)

    def _delete_edges(self, edge: EdgeType, statement: DeleteEdges) -> None:
        found: Found = find_committed(self.transaction, edge, statement.where, self._value(statement.where.value))
        if len(found.ids):
            rows = self.transaction.view.rows_where_in(
                edge.table_key, "id", found.ids, ["id", "src"], with_address=True
            )
            self._remove_edges(edge, rows)

    def _remove_edges(self, edge: EdgeType, rows: pa.Table) -> None:
        """Remove edges that an earlier step of this query has not removed already."""
        pending = self.transaction.pending(edge.table_key)
        if pending is not None and len(pending.gone) and rows.num_rows:
            rows = rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=pending.gone)))
        if rows.num_rows:
            ids, sources = rows.column("id").combine_chunks(), rows.column("src").combine_chunks()
            self.transaction.remove(edge, ids, rows.column("_rowaddr").to_numpy(), sources)
            self.affected_edges += rows.num_rows


def _assembled(entity: Entity, columns: dict[str, pa.Array], ends: tuple[pa.Array, pa.Array] | None) -> pa.Table:
    rows, problems = assemble(entity, columns, 1, ends=ends)
    if problems:
        raise ConstraintError(problems[0].message, violations=[problem.message for problem in problems])
    return rows
