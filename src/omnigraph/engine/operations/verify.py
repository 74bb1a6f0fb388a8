"""Walk a whole graph and report every inconsistency.

Reads only, and repairs nothing. It looks at one snapshot per branch: what the manifest publishes against the heads of
the tables, ids, edges and constraints of every row, the commit history, intents and audit rows, and what lies below
the root without belonging to anything. What a living writer is doing at that moment is a note, not a problem.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import table_schema
from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.engine.manifest.records import TableEntry
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import Intent, audit
from omnigraph.engine.recovery.drift import DriftKind, find_drift
from omnigraph.engine.recovery.owner import Liveness
from omnigraph.engine.staging.checks import check_rows
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.validate import check_unique_input
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.errors import BranchNotFoundError, CommitNotFoundError, ConstraintError, GraphError
from omnigraph.ids import MAIN, TableKey, node_key, stored_branch

_SHOWN = 5


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be: `code` names the rule, `subject` what breaks it."""

    code: str
    subject: str
    message: str


@dataclass
class VerifyReport:
    """What a walk found. `problems` need somebody; `notes` pass by themselves."""

    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    branches: int = 0
    tables: int = 0
    rows: int = 0
    commits: int = 0

    @property
    def clean(self) -> bool:
        """True when nothing is wrong."""
        return not self.problems

    def problem(self, code: str, subject: str, message: str) -> None:
        """Add something that is wrong."""
        self.problems.append(Finding(code, subject, message))

    def note(self, code: str, subject: str, message: str) -> None:
        """Add something that is unusual but settles by itself."""
        self.notes.append(Finding(code, subject, message))


def verify(context: GraphContext) -> VerifyReport:
    """Check everything, and go on after each problem, so that one walk shows all of them."""
    report = VerifyReport()
    intents = _check_intents(context, report)
    for branch in context.manifest.branches():
        try:
            snapshot = context.manifest.snapshot(branch)
        except BranchNotFoundError:
            continue  # deleted since they were listed
        except GraphError as exc:
            report.branches += 1
            report.problem("manifest", branch, f"the branch cannot be read: {exc}")
            continue
        report.branches += 1
        _check_heads(context, snapshot, report)
        _check_history(context, branch, report)
        _check_content(context.catalog, snapshot, report)
    _check_audit(context, report)
    _check_places(context, intents, report)
    return report


# --- what is published -----------------------------------------------------------------------------------------------


def _check_heads(context: GraphContext, snapshot: Snapshot, report: VerifyReport) -> None:
    for entry in snapshot.entries.values():
        if entry.branch != stored_branch(snapshot.branch):
            # Inherited: the branch reads an older version on purpose, and the owner's head is the owner's matter.
            continue
        subject = f"{snapshot.branch}/{entry.table_key}"
        try:
            drifts = find_drift(context.recovery, snapshot.branch, [entry])
        except GraphError as exc:
            report.problem("head", subject, str(exc))
            continue
        for drift in drifts:
            add = report.note if drift.kind is DriftKind.IN_FLIGHT else report.problem
            add("drift", subject, f"head {drift.head}, published {entry.version} ({drift.kind})")
    missing = sorted(set(context.catalog.tables) - set(snapshot.entries))
    for key in missing if snapshot.branch == MAIN else []:
        report.problem("manifest", key, "the schema declares this type, but no table of it is published")


def _check_content(catalog: Catalog, snapshot: Snapshot, report: VerifyReport) -> None:
    ids: dict[TableKey, pa.ChunkedArray] = {}
    opened: dict[TableKey, TableHandle] = {}
    for entry in snapshot.entries.values():
        handle = _open(snapshot, entry, report)
        if handle is not None:
            opened[entry.table_key] = handle
            ids[entry.table_key] = handle.scan(["id"])["id"]
    for key, handle in opened.items():
        entity = catalog.tables.get(key)
        subject = f"{snapshot.branch}/{key}"
        report.tables += 1
        report.rows += len(ids[key])
        _check_table(entity, handle, snapshot.entries[key], ids[key], subject, report)
        if isinstance(entity, EdgeType):
            _check_ends(entity, handle, ids, subject, report)


def _open(snapshot: Snapshot, entry: TableEntry, report: VerifyReport) -> TableHandle | None:
    try:
        return snapshot.open(entry.table_key)
    except GraphError as exc:
        report.problem("version", f"{snapshot.branch}/{entry.table_key}", f"version {entry.version}: {exc}")
        return None


def _check_table(
    entity: NodeType | EdgeType | None,
    handle: TableHandle,
    entry: TableEntry,
    ids: pa.ChunkedArray,
    subject: str,
    report: VerifyReport,
) -> None:
    if len(ids) != entry.row_count:
        report.problem("row-count", subject, f"{entry.row_count} rows are published, {len(ids)} are there")
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(repeated):
        report.problem("duplicate-id", subject, f"{len(repeated)} ids occur twice or more: {_some(repeated)}")
    if entity is None:
        report.note("schema", subject, "a table is published for a type the schema does not declare")
        return
    declared = table_schema(entity, blobs="stored")
    # Columns are found by name; a table made by another release may have them in another order.
    if {f.name: f.type for f in handle.schema} != {f.name: f.type for f in declared}:
        report.problem("schema", subject, "the table's columns are not those of its type")
        return
    _check_rules(entity, handle, subject, report)


def _check_rules(entity: NodeType | EdgeType, handle: TableHandle, subject: str, report: VerifyReport) -> None:
    for batch in handle.scan_batches():
        for violation in check_rows(entity, pa.Table.from_batches([batch]))[:_SHOWN]:
            report.problem("constraint", subject, violation.message)
    keys = entity.key if isinstance(entity, NodeType) else ()
    columns = sorted({"id"}.union(keys, *entity.unique)) if entity.unique or keys else []
    if columns:
        try:
            check_unique_input(entity, handle.scan(columns))
        except ConstraintError as exc:
            report.problem("constraint", subject, str(exc))


def _check_ends(
    edge: EdgeType, handle: TableHandle, ids: dict[TableKey, pa.ChunkedArray], subject: str, report: VerifyReport
) -> None:
    ends = handle.scan(["src", "dst"])
    for column, type_name in (("src", edge.source), ("dst", edge.target)):
        known = ids.get(node_key(type_name))
        if known is None:
            continue
        dangling = ends[column].filter(pc.invert(pc.is_in(ends[column], value_set=known.combine_chunks())))
        if len(dangling):
            report.problem(
                "dangling-edge", subject, f"{len(dangling)} edges have no {type_name} as {column}: {_some(dangling)}"
            )
    limits = edge.cardinality
    if not limits.is_default and len(ends):
        counts = pc.value_counts(ends["src"])
        number = counts.field("counts")
        broken = pc.less(number, limits.low)
        if limits.high is not None:
            broken = pc.or_(broken, pc.greater(number, limits.high))
        sources = counts.filter(broken).field("values")
        if len(sources):
            report.problem("constraint", subject, f"@card is broken for {len(sources)} sources: {_some(sources)}")


def _some(values: pa.Array | pa.ChunkedArray) -> str:
    shown = ", ".join(repr(value) for value in values[:_SHOWN].to_pylist())
    return f"{shown}, …" if len(values) > _SHOWN else shown


# --- history, intents, places ----------------------------------------------------------------------------------------


def _check_history(context: GraphContext, branch: str, report: VerifyReport) -> None:
    try:
        commits = context.manifest.history.list(branch)
    except GraphError as exc:
        report.problem("history", branch, str(exc))
        return
    report.commits += len(commits)
    own = [commit for commit in commits if (commit.manifest_branch or MAIN) == branch]
    for newer, older in itertools.pairwise(own):
        if newer.parent_commit_id != older.graph_commit_id:
            report.problem(
                "history", newer.graph_commit_id, f"its parent is not the commit before it, {older.graph_commit_id}"
            )
        if newer.manifest_version == older.manifest_version:
            report.problem("history", newer.graph_commit_id, "two commits claim one graph version")


def _check_audit(context: GraphContext, report: VerifyReport) -> None:
    seen: set[str] = set()
    for row in audit.rows(context.store):
        if row.operation_id in seen:
            report.problem("audit", row.operation_id, "the operation has more than one audit row")
        seen.add(row.operation_id)
        try:
            context.manifest.history.find(row.commit_id)
        except CommitNotFoundError:
            report.problem("audit", row.operation_id, f"its commit {row.commit_id} does not exist")


def _check_intents(context: GraphContext, report: VerifyReport) -> list[Intent]:
    intents = context.recovery.intents
    readable = []
    for operation_id in intents.list():
        try:
            intent = intents.read(operation_id)
        except GraphError as exc:
            report.problem("intent", operation_id, str(exc))
            continue
        if intent is None:
            continue
        readable.append(intent)
        if intents.liveness(intent) is Liveness.LIVE:
            report.note("intent", operation_id, f"a {intent.writer_kind} is in flight")
        else:
            report.problem("intent", operation_id, f"an unfinished {intent.writer_kind}; the next write resolves it")
    return readable


def _check_places(context: GraphContext, intents: list[Intent], report: VerifyReport) -> None:
    objects, store = context.store.objects, context.store
    for name in layout.SCHEMA_FILES:
        if objects.exists(f"{name}.staging"):
            report.problem("staging-file", f"{name}.staging", "left by a schema change that was cut short")
    snapshots = context.manifest.snapshots()
    registered = {location.path for snapshot in snapshots for location in snapshot.state.locations.values()}
    # A type that was dropped and declared anew has a new place; earlier commits still read the old ones.
    earlier = {
        layout.table_path(location.table_key, incarnation)
        for snapshot in snapshots
        for location in snapshot.state.locations.values()
        for incarnation in range(1, location.incarnation)
    }
    for path in _table_folders(objects.list_folders(kind) for kind in ("nodes", "edges")):
        if path not in registered | earlier:
            report.problem("orphan-table", path, "no registered table lies here; `cleanup` does not remove it")
    owned = {(entry.path, entry.branch) for snapshot in snapshots for entry in snapshot.entries.values()}
    pinned = {(effect.table_path, effect.table_branch) for intent in intents for effect in intent.effects}
    for path in sorted(registered):
        for ref in store.table_branches(path) if store.exists(path) else []:
            if (path, ref) not in owned | pinned:
                report.note("orphan-fork", f"{path}@{ref}", "no branch publishes this ref; `cleanup` removes it")


def _table_folders(listings: Iterable[list[str]]) -> Iterator[str]:
    for listing in listings:
        yield from sorted(listing)
