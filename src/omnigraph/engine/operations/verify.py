"""Walk a whole graph and report every inconsistency.

Reads only, and repairs nothing. It looks at one snapshot per branch: what the manifest publishes against the heads of
the tables, ids, edges and constraints of every row, the commit history, intents, locks and audit rows, the schema's
files, and what lies below the root without belonging to anything. What a living writer is doing at that moment is a
note, not a problem. What cannot be read is a problem like others, and the walk goes on behind it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import table_schema
from omnigraph.catalog.keys import id_from_key
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.commit.drift import DriftKind, find_drift
from omnigraph.engine.coordination.owner import Liveness
from omnigraph.engine.manifest.records import TableEntry
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.orphan_tables import unregistered
from omnigraph.engine.operations.verify_files import check_files
from omnigraph.engine.operations.verify_report import VerifyReport
from omnigraph.engine.recovery import Intent, audit
from omnigraph.engine.rules.checks import check_rows
from omnigraph.engine.rules.validate import check_unique_input
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.lance_internals import files
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import BranchNotFoundError, CommitNotFoundError, ConstraintError, GraphError
from omnigraph.ids import MAIN, TableKey, node_key, stored_branch

__all__ = ["VerifyReport", "verify"]

LOOKS = 5
"""How often a branch is looked at that others keep changing, while there is something wrong with what was seen."""
_SHOWN = 5
UNREADABLE = (GraphError, pa.ArrowException, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""What damaged rows and records make of the code that looks at them."""


def verify(context: GraphContext) -> VerifyReport:
    """Check everything, and go on after each problem, so that one walk shows all of them."""
    report = VerifyReport()
    intents: list[Intent] = []
    with _noting(report, "intent", layout.RECOVERY_DIR):
        intents = _check_intents(context, report)
    branches: list[str] = [MAIN]
    with _noting(report, "manifest", f"{layout.MANIFEST}/{files.BRANCH_REFS}"):
        branches = context.manifest.branches()
    for branch in branches:
        report.add(_checked_branch(context, branch))
    with _noting(report, "audit", layout.RECOVERIES):
        _check_audit(context, report)
    with _noting(report, "places", context.root):
        _check_places(context, intents, report)
    check_files(context, report)
    return report


@contextmanager
def _noting(report: VerifyReport, code: str, subject: str) -> Iterator[None]:
    """Whatever keeps a part from being checked is a problem, and the next part is checked all the same."""
    try:
        yield
    except UNREADABLE as exc:
        report.problem(code, subject, f"it cannot be checked: {type(exc).__name__}: {exc}")


def _checked_branch(context: GraphContext, branch: str) -> VerifyReport:
    """What there is to say of a branch: of its newest state, for an older one may be cleaned up while it is read."""
    report = VerifyReport()
    for _ in range(LOOKS):
        report = VerifyReport(branches=1)
        try:
            snapshot = context.manifest.snapshot(branch)
            _check_branch(context, snapshot, report)
            if report.clean or context.manifest.snapshot(branch).identity == snapshot.identity:
                break
        except BranchNotFoundError:
            return VerifyReport()  # deleted since they were listed
        except GraphError as exc:
            report.problem("manifest", branch, f"the branch cannot be read: {exc}")
            break
    return report


def _check_branch(context: GraphContext, snapshot: Snapshot, report: VerifyReport) -> None:
    _check_heads(context, snapshot, report)
    with _noting(report, "history", snapshot.branch):
        _check_history(context, snapshot.branch, report)
    _check_content(context, snapshot, report)


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


def _check_content(context: GraphContext, snapshot: Snapshot, report: VerifyReport) -> None:
    catalog = context.catalog
    with _noting(report, "schema", snapshot.branch):
        catalog = context.catalog_of(snapshot)
    ids: dict[TableKey, pa.ChunkedArray] = {}
    # Nodes come first: the ends of edges are looked for in their ids, so that one read of a table answers everything.
    for entry in sorted(snapshot.entries.values(), key=lambda each: each.table_key.startswith("edge:")):
        key, subject = entry.table_key, f"{snapshot.branch}/{entry.table_key}"
        handle = _open(snapshot, entry, report)
        if handle is None:
            continue
        entity = catalog.tables.get(key)
        rows = None
        with _noting(report, "rows", subject):
            rows = _check_rows(entity, handle, subject, report)
        if rows is None:
            rows = _readable(handle, entity)
        if rows is None:
            continue
        ids[key] = rows["id"]
        report.tables += 1
        report.rows += rows.num_rows
        with _noting(report, "rows", subject):
            _check_ids(rows, entry, subject, report)
            if isinstance(entity, EdgeType) and "dst" in rows.column_names:
                _check_ends(entity, rows.select(["src", "dst"]), ids, subject, report)
        with _noting(report, "index", subject):
            handle.check_indexes()


def _held(entity: NodeType | EdgeType | None) -> list[str]:
    """The columns that are held against rows of other tables."""
    return ["id", "src", "dst"] if isinstance(entity, EdgeType) else ["id"]


def _readable(handle: TableHandle, entity: NodeType | EdgeType | None) -> pa.Table | None:
    """What can be read of a table that cannot be read whole, which is reported: it may have other faults as well."""
    for columns in (_held(entity), ["id"]):
        with suppress(*UNREADABLE):
            return _valid_rows(handle.scan(columns))
    return None


def _valid(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose offsets and texts are what they claim to be, so that looking at them harms nobody."""
    # A DateTime is stored as a date64, which Arrow wants to be whole days; its values cannot be out of bounds anyway.
    values.validate(full=not pa.types.is_date64(values.type))
    return values


def _open(snapshot: Snapshot, entry: TableEntry, report: VerifyReport) -> TableHandle | None:
    try:
        return snapshot.open(entry.table_key)
    except GraphError as exc:
        report.problem("version", f"{snapshot.branch}/{entry.table_key}", f"version {entry.version}: {exc}")
        return None


def _check_rows(
    entity: NodeType | EdgeType | None, handle: TableHandle, subject: str, report: VerifyReport
) -> pa.Table:
    """Check each row by itself, and give the columns that are held against other rows, from the same read."""
    if entity is None:
        report.note("schema", subject, "a table is published for a type the schema does not declare")
        return _valid_rows(handle.scan(["id"]))
    kept = _held(entity)
    declared = table_schema(entity)
    # Columns are found by name; a table made by another release may have them in another order.
    if {f.name: _plain_type(f.type) for f in handle.schema} != {f.name: f.type for f in declared}:
        report.problem("schema", subject, "the table's columns are not those of its type")
        return _valid_rows(handle.scan(kept))
    kept += sorted(set().union(entity.key, *entity.unique).difference(kept))
    parts = [handle.schema.empty_table().select(kept)]
    for batch in handle.scan_batches():
        rows = _valid_rows(pa.Table.from_batches([batch]))
        for violation in check_rows(entity, rows)[:_SHOWN]:
            report.problem("constraint", subject, violation.message)
        if entity.key:
            _check_keys(entity, rows, subject, report)
        parts.append(rows.select(kept))
    found = pa.concat_tables(parts)
    try:
        check_unique_input(entity, found)
    except ConstraintError as exc:
        report.problem("constraint", subject, str(exc))
    return found


def _valid_rows(rows: pa.Table) -> pa.Table:
    for column in rows.columns:
        _valid(column)
    return rows


def _check_ids(rows: pa.Table, entry: TableEntry, subject: str, report: VerifyReport) -> None:
    if rows.num_rows != entry.row_count:
        report.problem("row-count", subject, f"{entry.row_count} rows are published, {rows.num_rows} are there")
    counts = pc.value_counts(rows["id"])
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(repeated):
        report.problem("duplicate-id", subject, f"{len(repeated)} ids occur twice or more: {_some(repeated)}")


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type a column is stored as; blobs are read back as an extension of theirs."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _check_keys(entity: NodeType | EdgeType, rows: pa.Table, subject: str, report: VerifyReport) -> None:
    """The id of a keyed entity is text made from its key, so one of them without the other is damage."""
    derived = id_from_key(entity, {name: rows[name] for name in entity.key})
    differs = rows.filter(pc.fill_null(pc.not_equal(rows["id"], pa.chunked_array([derived])), True))
    if differs.num_rows:
        report.problem(
            "key",
            subject,
            f"{differs.num_rows} entities have an id that is not that of their key: {_some(differs['id'])}",
        )


def _check_ends(
    edge: EdgeType, ends: pa.Table, ids: dict[TableKey, pa.ChunkedArray], subject: str, report: VerifyReport
) -> None:
    for column, type_name in (("src", edge.source), ("dst", edge.target)):
        known = ids.get(node_key(type_name))
        if known is None:
            continue
        dangling = ends[column].filter(pc.invert(pc.is_in(ends[column], value_set=wide.one_array(known))))
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
    commits = context.manifest.history.list(branch)
    report.commits += len(commits)
    for newer, older in itertools.pairwise(context.manifest.history.line(branch)):
        if newer.manifest_version <= older.manifest_version:
            report.problem(
                "history", newer.graph_commit_id, f"its version is not above that of its parent {older.graph_commit_id}"
            )


def _check_audit(context: GraphContext, report: VerifyReport) -> None:
    seen: set[str] = set()
    for row in audit.rows(context.store):
        if row.operation_id in seen:
            report.problem("audit", row.operation_id, "the operation has more than one audit row")
        seen.add(row.operation_id)
        try:
            context.manifest.history.find(row.commit_id)
        except GraphError as exc:
            gone = isinstance(exc, CommitNotFoundError)
            message = f"its commit {row.commit_id} " + ("does not exist" if gone else f"cannot be read: {exc}")
            report.problem("audit", row.operation_id, message)


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
    snapshots = _readable_snapshots(context)
    registered = {location.path for snapshot in snapshots for location in snapshot.state.locations.values()}
    for path in unregistered(objects, snapshots):
        report.problem("orphan-table", path, "no registered table lies here; `cleanup` removes it")
    owned = {(entry.path, entry.branch) for snapshot in snapshots for entry in snapshot.entries.values()}
    pinned = {(effect.table_path, effect.table_branch) for intent in intents for effect in intent.effects}
    for path in sorted(registered):
        refs: list[str] = []
        with _noting(report, "refs", f"{path}/{files.BRANCH_REFS}"):
            refs = store.table_branches(path) if store.exists(path) else []
        for ref in refs:
            if (path, ref) not in owned | pinned:
                report.note("orphan-fork", f"{path}@{ref}", "no branch publishes this ref; `cleanup` removes it")


def _readable_snapshots(context: GraphContext) -> list[Snapshot]:
    found = []
    for branch in context.manifest.branches():
        try:
            found.append(context.manifest.snapshot(branch))
        except GraphError:
            continue  # reported where the branch itself was looked at
    return found
