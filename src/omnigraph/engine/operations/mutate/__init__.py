"""Run a mutation: its statements in written order, each seeing the earlier ones, published as one commit.

Rules of the schema are checked once, over the final state of everything the query wrote; a query that affects nothing
makes no commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from omnigraph.engine.commit.cancellation import Cancellation
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.embedding import Embedder
from omnigraph.engine.manifest.records import CommitWrite, with_message
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.mutate.matched import Source
from omnigraph.engine.operations.mutate.program import Program, prepare_program
from omnigraph.engine.operations.outcomes import MutationResult
from omnigraph.engine.read.reader import Reader, ReadState
from omnigraph.engine.write.attached import foretold
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.group import Joining, write_together
from omnigraph.engine.write.transaction import Transaction, WriteRequest
from omnigraph.ids import MAIN, CommitId, TableKey, edge_key, node_key, parse_branch
from omnigraph.plan.statements import InsertEdge, InsertNode, WritePlan

__all__ = ["mutate"]


def mutate(
    context: GraphContext,
    plan: WritePlan,
    parameters: Mapping[str, Any],
    *,
    branch: str = MAIN,
    actor: str | None = None,
    if_commit: str | None = None,
    message: str | None = None,
    base: Snapshot | None = None,
    cancellation: Cancellation | None = None,
    reader: Reader | None = None,
    embedder: Embedder | None = None,
) -> MutationResult:
    """Run a checked mutation with bound parameters.

    `if_commit` makes the write conditional on the branch head; `base` is the snapshot the caller decided on, the
    newest one by default. `reader` keeps what a match derives, and finds what queries have derived.

    Raises:
        ConstraintError: it would break a rule of the schema; nothing changed.
        ConflictError: another write came in between; nothing changed.
        LimitError: it is larger than the limits of the graph allow; nothing changed.
        PolicyError: the actor may not change this branch.
    """
    name = parse_branch(branch)
    request = WriteRequest(
        name,
        WriterKind.MUTATION,
        context.admit("change", actor, branch=name),
        None if if_commit is None else CommitId(if_commit),
        properties=with_message(message),
        cancellation=cancellation or Cancellation(),
        limits=context.limits,
    )
    now, hear = _now(), foretold()

    def report(program: Program, commit: CommitId | None = None) -> MutationResult:
        return MutationResult(
            branch=request.branch,
            query_name=plan.name,
            affected_nodes=program.affected_nodes,
            affected_edges=program.affected_edges,
            actor_id=request.actor,
            commit_id=commit,
            ids=tuple(touched.shown() for touched in program.touched),
            returned=program.returned,
        )

    def prepare(transaction: Transaction) -> Program:
        snapshot = transaction.snapshot
        state = ReadState(snapshot) if reader is None or plan.match is None else reader.state(snapshot)
        source = Source(state, parameters, now, embedder)
        program = prepare_program(transaction, plan, source, context.external_blobs)
        program.run()
        transaction.foretell(hear, lambda: report(program))
        return program

    def told(program: Program) -> CommitWrite:
        return CommitWrite(name=plan.name, nodes=program.affected_nodes, edges=program.affected_edges)

    joining = Joining(context, request, prepare, told, _lenient_tables(plan))
    # A match reads a published state, so a mutation with one does not run on what others have yet to publish.
    written = write_together(joining, base=base, apart=plan.match is not None)
    return report(written.value, None if written.committed is None else written.committed.commit_id)


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
