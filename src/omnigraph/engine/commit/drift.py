"""A table whose head is not the version the manifest publishes must not be built upon.

While a head lies above its published version, nobody but the writer behind it can commit to that table. Whose it is
decides what the next writer does: wait for a living one, heal a dead one's, take away what came too late, or refuse.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from omnigraph.engine.coordination.context import RecoveryContext
from omnigraph.engine.coordination.intent import Effect, Intent, WriterKind
from omnigraph.engine.coordination.intents import Claim
from omnigraph.engine.coordination.owner import Liveness, this_process
from omnigraph.engine.manifest.records import TableEntry
from omnigraph.engine.recovery.resolve import Resolution, resolve
from omnigraph.engine.storage.transactions import OPERATION_ID
from omnigraph.errors import DriftError, GraphError, InternalError
from omnigraph.ids import MAIN, OperationId, TableKey, now_micros, stored_branch


class DriftKind(StrEnum):
    """Who is behind a drifted head.

    `IN_FLIGHT` a living writer, or somebody who settles a dead one's write: wait. `PENDING` a dead writer whose intent
    is there: heal. `LATE` effects of operations that are resolved or were never recorded: `undo_late`. `FOREIGN`
    commits that are not ours: repair. `UNKNOWN` the intents could not be listed.
    """

    IN_FLIGHT = "in flight"
    PENDING = "pending"
    LATE = "late"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class Drift(Struct, frozen=True):
    """One table whose head is above its published version; `operation_id` is whose commit is the newest."""

    entry: TableEntry
    head: int
    kind: DriftKind
    operation_id: OperationId | None = None

    def error(self) -> DriftError:
        """The refusal, in the words that fit the kind."""
        what = f"'{self.entry.table_key}' is at version {self.head} but {self.entry.version} is published: "
        if self.kind is DriftKind.UNKNOWN:
            return DriftError(
                f"{what}pending recovery sidecars could not be listed, so the cause is not known — reopen the graph"
                " read-write, or run `omnigraph repair` before writing"
            )
        if self.kind is DriftKind.IN_FLIGHT:
            return DriftError(f"{what}another writer is committing to it — retry")
        if self.kind is DriftKind.PENDING:
            return DriftError(f"{what}a pending recovery sidecar requires rollback — reopen the graph read-write")
        return DriftError(f"{what}run `omnigraph repair` before writing")


def find_drift(
    ctx: RecoveryContext, branch: str, entries: Iterable[TableEntry], heads: dict[TableKey, int] | None = None
) -> list[Drift]:
    """The drifted ones among published tables, each with its cause; `heads` are heads the caller has just read.

    Raises:
        InternalError: a head is below its published version.
    """
    return [drift for entry in entries if (drift := _inspect(ctx, branch, entry, heads or {})) is not None]


def check(
    ctx: RecoveryContext, branch: str, entries: Iterable[TableEntry], heads: dict[TableKey, int] | None = None
) -> None:
    """Refuse if any of the tables drifted.

    Raises:
        DriftError: with the advice that fits the cause.
    """
    for drift in find_drift(ctx, branch, entries, heads):
        raise drift.error()


def undo_late(ctx: RecoveryContext, branch: str, drift: Drift) -> Resolution | None:
    """Take away commits that landed after their write was resolved; None when somebody else is doing it.

    The operation gets its intent back, marked aborted, so that undoing it is protected like any other write.
    """
    if drift.operation_id is None:
        return None
    entry = drift.entry
    intent = Intent(
        operation_id=drift.operation_id,
        writer_kind=WriterKind.MUTATION,
        branch=stored_branch(branch),
        effects=(Effect.on(entry.table_key, entry.path, entry.version, branch=entry.branch),),
        started_at=now_micros(),
        # Without a lease: the claim keeps others away while this is at work, and nothing should when it no longer is.
        owner=this_process(),
        aborted=True,
    )

    def undo(claim: Claim) -> Resolution:
        resolution = resolve(ctx, intent, may_restore=True)
        if resolution.settled:
            ctx.intents.remove(claim)
        return resolution

    return ctx.intents.claimed(intent.operation_id, undo) if ctx.intents.resurrect(intent) else None


def _inspect(ctx: RecoveryContext, branch: str, entry: TableEntry, heads: dict[TableKey, int]) -> Drift | None:
    head = heads.get(entry.table_key)
    if head is None:
        head = ctx.store.head_version(entry.path, entry.branch, known=entry.version)
    if head == entry.version:
        return None
    if head < entry.version:
        raise InternalError(
            f"'{entry.table_key}' is at version {head}, below the published {entry.version}: its files were changed"
            " from outside"
        )
    try:
        intents = ctx.intents.pending()
    except GraphError:
        return Drift(entry, head, DriftKind.UNKNOWN)
    covering = [intent for intent in intents if _covers(intent, entry)]
    if covering:
        alive = [intent for intent in covering if _is_tended(ctx, intent)]
        kind = DriftKind.IN_FLIGHT if alive else DriftKind.PENDING
        return Drift(entry, head, kind, (alive or covering)[0].operation_id)
    # Read after the intents: a write that has none by now is published by now, or resolved, and shows here.
    current = ctx.manifest.snapshot(branch or MAIN).entries.get(entry.table_key)
    if current is None or current.version != entry.version:
        return Drift(entry, head, DriftKind.IN_FLIGHT)
    commits = ctx.store.transactions(entry.path, entry.branch, after=entry.version, upto=head)
    owners = [commit.properties.get(OPERATION_ID) for commit in commits]
    if all(owner is not None for owner in owners):
        return Drift(entry, head, DriftKind.LATE, OperationId(str(owners[-1])))
    return Drift(entry, head, DriftKind.FOREIGN)


def _is_tended(ctx: RecoveryContext, intent: Intent) -> bool:
    """True when the writer lives, or somebody who lives is settling what it left."""
    return ctx.intents.liveness(intent) is Liveness.LIVE or ctx.intents.is_claimed(intent.operation_id)


def _covers(intent: Intent, entry: TableEntry) -> bool:
    """An intent for the same table on another branch does not count."""
    effect = intent.effect(entry.table_key)
    return effect is not None and effect.table_branch == entry.branch
