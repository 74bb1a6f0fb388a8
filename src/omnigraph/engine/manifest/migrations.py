"""A manifest of an earlier format becomes one of today's, step by step.

The format number of a manifest stands in its schema. Each step brings it from one number to the next, may be repeated,
and writes its number last, so that a crash inside a step repeats that step and nothing else. Two processes that migrate
at once write the same facts, which Lance refuses to the second one; it looks again and goes on from there. Branches are
migrated one by one, main when the graph is opened and any other before it is published on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from omnigraph.engine.manifest import records
from omnigraph.engine.manifest.history import History
from omnigraph.engine.manifest.state import ManifestState
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import stage_overwrite
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ConflictError, FormatError
from omnigraph.ids import MAIN, stored_branch

logger = logging.getLogger(__name__)

RUN_BRANCH = "__run__"
"""What the names of branches began with that formats before 3 made for themselves."""
ATTEMPTS = 10
_KEY = "object_id"


class Migrated(Protocol):
    """What the steps need to know of a manifest, of whatever format."""

    store: TableStore
    history: History

    def decode(self, handle: TableHandle, branch: str) -> ManifestState:
        """What a version of it says."""
        ...


def migrate(manifest: Migrated, branch: str = MAIN) -> bool:
    """Bring the manifest of a branch to today's format; False when it has it already, which costs one open.

    Raises:
        FormatError: its format is newer, unreadable, or contradicts itself; nothing was written.
        ConflictError: other processes kept changing it.
    """
    changed = False
    for _ in range(ATTEMPTS):
        handle = manifest.store.open(layout.MANIFEST, branch=stored_branch(branch))
        stamp = records.read_stamp(handle.schema)
        if stamp == records.INTERNAL_SCHEMA_VERSION:
            return changed
        try:
            STEPS[stamp](manifest, manifest.store.without_removal(handle), branch)
        except ConflictError:
            logger.debug("somebody else changed the manifest of %s while it was migrated from %d", branch, stamp)
            continue
        changed = True
    raise ConflictError(
        f"the manifest of branch '{branch}' kept changing while it was brought to today's format — retry"
    )


def _annotate_key(manifest: Migrated, handle: TableHandle, branch: str) -> None:
    """1 to 2: the rows' key is announced to Lance, which never lets it be changed afterwards."""
    found = handle.primary_key
    if found and found != [_KEY]:
        raise FormatError(
            f"the manifest of branch '{branch}' has the key {found} instead of ['{_KEY}'], which cannot be changed:"
            " it was not made by omnigraph"
        )
    stamp = {records.STAMP: "2"}
    manifest.store.annotate(handle, schema=stamp, fields={} if found else {_KEY: records.PRIMARY_KEY})


def _drop_run_branches(manifest: Migrated, handle: TableHandle, branch: str) -> None:
    """2 to 3: branches of runs go; from here on their names are like any other."""
    names = manifest.store.table_branches(layout.MANIFEST)
    runs = [name for name in names if name.lstrip("/").startswith(RUN_BRANCH)]
    for name in sorted(runs, key=len, reverse=True):
        manifest.store.residual.delete_branch(layout.MANIFEST, name)
    manifest.store.annotate(handle, schema={records.STAMP: "3"})


def _take_lineage_in(manifest: Migrated, handle: TableHandle, branch: str) -> None:
    """3 to 4: the manifest tells its own commits and its head, the older ones stay in the commit table."""
    state = manifest.decode(handle, branch)
    manifest.history.adopt(branch, keep=state.commits)
    complete = manifest.store.commit(handle, stage_overwrite(handle, state.to_table()), {})
    manifest.store.annotate(complete, schema={records.STAMP: "4"})


STEPS: dict[int, Callable[[Migrated, TableHandle, str], None]] = {
    1: _annotate_key,
    2: _drop_run_branches,
    3: _take_lineage_in,
}
