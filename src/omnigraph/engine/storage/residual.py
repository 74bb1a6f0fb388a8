"""What Lance can only do in one step: write and move a head, or change refs.

These stand apart so that a reader sees the name at every call site (`store.residual`). Nothing else in the engine
writes and moves a head at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.engine.storage.layout import branch_location
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.translate import is_missing, translated
from omnigraph.errors import GraphError

if TYPE_CHECKING:
    from omnigraph.engine.storage.tables import TableStore

_TABLE_FOLDERS = ("_versions", "_transactions", "data", "_deletions", "_indices")


@dataclass(frozen=True)
class CleanupStats:
    """What a removal of old versions freed."""

    bytes_removed: int
    old_versions_removed: int


class InlineCommitResidual:
    """The inline operations that are left, each under its own name."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def create_branch(self, path: str, branch: str, *, source: str | None, version: int) -> None:
        """Create a ref `branch` of a table at `(source, version)`; no data is copied."""
        handle = self._store.open(path, branch=source, version=version)
        with translated(f"creating branch {branch} of {path}"), step("create_branch", path):
            try:
                handle.dataset.create_branch(branch, (source, version))
            except OSError:
                if not self._clear_leftovers(path, branch):
                    raise
                handle.dataset.create_branch(branch, (source, version))
            self._store.sync_head(path, branch)

    def _clear_leftovers(self, path: str, branch: str) -> bool:
        """Remove what a creation or deletion that was cut short left where the branch goes; True if there was any."""
        place = branch_location(path, branch)
        if branch in self._store.table_branches(path) or not self._store.objects.exists(f"{place}/_versions"):
            return False
        # Only the folders of a table: a branch of a longer name may lie beside them.
        for folder in _TABLE_FOLDERS:
            self._store.objects.delete_prefix(f"{place}/{folder}")
        return True

    def delete_branch(self, path: str, branch: str) -> None:
        """Delete a ref of a table; it is fine if there is none."""
        dataset = self._store.open(path).dataset
        try:
            with translated(f"deleting branch {branch} of {path}"), step("delete_branch", path):
                dataset.branches.delete(branch)
        except GraphError as exc:
            if not is_missing(exc):
                raise

    def cleanup_versions(self, path: str, *, versions: Sequence[int], unverified: bool = False) -> CleanupStats:
        """Remove exactly these versions of a table's main lineage, and the files only they need."""
        dataset = self._store.open(path).dataset
        with translated(f"removing old versions of {path}"), step("cleanup_versions", path):
            stats = dataset.cleanup_old_versions(
                versions=list(versions), delete_unverified=unverified, error_if_tagged_old_versions=False
            )
        return CleanupStats(int(stats.bytes_removed), int(stats.old_versions))

    def cleanup_unreferenced(self, path: str, *, older_than: timedelta, unverified: bool) -> CleanupStats:
        """Remove files no version references; `unverified` also those younger than the safety age."""
        dataset = self._store.open(path).dataset
        with translated(f"removing unreferenced files of {path}"), step("cleanup_versions", path):
            stats = dataset.cleanup_old_versions(
                older_than=older_than, delete_unverified=unverified, error_if_tagged_old_versions=False
            )
        return CleanupStats(int(stats.bytes_removed), int(stats.old_versions))

    def alter_column_type(self, path: str, column: str, data_type: pa.DataType) -> None:
        """Rewrite one column with another type."""
        dataset = self._store.open(path).dataset
        with translated(f"changing the type of {column} in {path}"), step("alter_column_type", path):
            dataset.alter_columns({"path": column, "data_type": data_type})
            self._store.sync_head(path)
