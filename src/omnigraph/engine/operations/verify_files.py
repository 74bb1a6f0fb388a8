"""The small files of a graph: the accepted schema and its history, locks, claims and the notes of writers.

Nothing of a graph's content is in them, and each of them can keep every writer away when it is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import unquote

from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.coordination.lock import parse_lock
from omnigraph.engine.coordination.owner import Liveness, Owner, judge
from omnigraph.engine.operations.verify_report import VerifyReport
from omnigraph.engine.schema.accepted import load_contract
from omnigraph.engine.schema.history import GENESIS, history_path
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.lance_internals import files
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import FormatError, GraphError


def check_files(context: GraphContext, report: VerifyReport) -> None:
    """Read every small file, and report those that are not what they should be."""
    _check_schema(context, report)
    _check_folder(context, report, layout.SCHEMA_HISTORY, "schema-file", _check_schema_text)
    _check_folder(context, report, layout.RECOVERY_DIR, "lock", _check_lock)
    _check_folder(context, report, layout.WRITERS_DIR, "writer", _check_writer)
    try:
        text = context.store.objects.read_text_if_exists(layout.SCHEMA_LOCK)
        if text is not None:
            _check_lock(layout.SCHEMA_LOCK, text, report)
    except GraphError as exc:
        report.problem("lock", layout.SCHEMA_LOCK, str(exc))
    _check_branch_folders(context, report)
    _check_tags(context, report)


def _check_tags(context: GraphContext, report: VerifyReport) -> None:
    """Every tag names a state that can be read."""
    objects, history = context.store.objects, context.manifest.history
    for file in sorted(objects.list_dir(layout.TAGS_DIR)):
        try:
            tag = history.tags.find(unquote(file.removesuffix(".json")))
            if tag is not None:
                history.snapshot_at(tag.graph_commit_id)
        except GraphError as exc:
            report.problem("tag", f"{layout.TAGS_DIR}/{file}", str(exc))


def _check_schema(context: GraphContext, report: VerifyReport) -> None:
    objects = context.store.objects
    try:
        load_contract(context.store, context.manifest)
        for name in layout.SCHEMA_FILES:
            if not objects.has(name):
                report.problem("schema-file", name, "it is missing; the next read-write open makes it anew if it can")
    except GraphError as exc:
        report.problem("schema-file", ", ".join(layout.SCHEMA_FILES), str(exc))


def _check_folder(
    context: GraphContext,
    report: VerifyReport,
    folder: str,
    code: str,
    check: Callable[[str, str, VerifyReport], None],
) -> None:
    """Look at each object of a folder; one that goes meanwhile is none."""
    objects = context.store.objects
    try:
        names = sorted(objects.list_dir(folder))
    except GraphError as exc:
        report.problem(code, folder, f"it cannot be listed: {exc}")
        return
    for name in names:
        path = f"{folder}/{name}"
        try:
            text = objects.read_text_if_exists(path)
            if text is not None:
                check(path, text, report)
        except GraphError as exc:
            report.problem(code, path, str(exc))


def _check_schema_text(path: str, text: str, report: VerifyReport) -> None:
    catalog = compile_schema(text)
    if path != GENESIS and history_path(catalog.schema_hash) != path:
        raise FormatError("it is not the schema it is named after; earlier commits cannot be read with it")


def _check_lock(path: str, text: str, report: VerifyReport) -> None:
    """Locks and claims; intents lie beside them and are looked at on their own."""
    if path.startswith(layout.RECOVERY_DIR) and path.endswith(".json"):
        return
    try:
        owner = parse_lock(text).owner if path.endswith((".lock", layout.SCHEMA_LOCK)) else _owner(text)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        report.problem(
            "lock", path, f"it is no lock that anybody could take over ({exc!r}): remove it when nobody writes"
        )
        return
    if judge(owner) is Liveness.LIVE:
        report.note("lock", path, "it is held by a living process")
    else:
        report.note("lock", path, "its owner is gone; the next one who needs it removes it")


def _check_writer(path: str, text: str, report: VerifyReport) -> None:
    try:
        _owner(text)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        report.problem("writer", path, f"it is not the note of a writer ({exc!r}): remove it when nobody writes")


def _owner(text: str) -> Owner:
    body = json.loads(text)
    return Owner.from_json(body.get("owner", body))


def _check_branch_folders(context: GraphContext, report: VerifyReport) -> None:
    """Files of a branch without its ref: a deletion that was cut short leaves them, and so does a ref that was lost."""
    try:
        refs = set(context.store.table_branches(layout.MANIFEST))
        folders = context.store.branch_folders(layout.MANIFEST)
    except GraphError as exc:
        report.problem("refs", f"{layout.MANIFEST}/{files.BRANCH_REFS}", str(exc))
        return
    for name in sorted(set(folders) - refs):
        report.note(
            "orphan-branch", f"{layout.MANIFEST}@{name}", "files of a branch that has no ref; `cleanup` removes them"
        )
