"""Tables below one graph root: open, create, commit, restore.

One `TableStore` serves a root for the whole process, so that all handles share Lance's caches. Reads go through
`TableHandle`; writes are staged (`staged`) and then committed here, strictly at the version they were staged on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments
from msgspec.structs import replace

from omnigraph.engine.storage.durability import Durability, is_full, sync_files
from omnigraph.engine.storage.forked import check_process, note_use
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.kept import KeptHandles, forget_files, new_session
from omnigraph.engine.storage.lance_internals.files import (
    BRANCH_REFS,
    BRANCH_TREE,
    INDICES,
    TABLE_FOLDERS,
    TAG_REFS,
    VERSIONS,
    branch_location,
    branch_ref,
    data_file,
    version_file,
    version_of,
)
from omnigraph.engine.storage.lance_internals.refs import Refs
from omnigraph.engine.storage.layout import is_local, join
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.storage.residual import InlineCommitResidual
from omnigraph.engine.storage.staged import StagedWrite, as_transaction
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.transactions import OPERATION_ID, TransactionInfo, read_transaction
from omnigraph.engine.storage.translate import translated
from omnigraph.errors import ConflictError, InternalError, LateCommitError, StorageError

STORAGE_VERSION = "2.2"
PROBED_VERSIONS = 16
"""A head that is further ahead is found by listing the versions."""


class TableStore:
    """The tables and text objects of one root. Use `TableStore.at` to share it within the process."""

    _shared: ClassVar[dict[tuple[str, Durability, bool, tuple[tuple[str, str], ...]], TableStore]] = {}
    _shared_lock = threading.Lock()

    def __init__(
        self,
        root: str,
        *,
        durability: Durability = Durability.FAST,
        storage_options: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> None:
        note_use()
        self.root = root
        self.durability = durability
        self.read_only = read_only
        """True when nothing below the root may be written, derived state included."""
        self.objects = ObjectStore(root, durability=durability, options=storage_options)
        self.residual = InlineCommitResidual(self)
        self._options = dict(storage_options or {}) or None
        self.is_local = is_local(root)
        self._session = new_session()
        self._kept = KeptHandles()
        self._refs = Refs(self.objects)
        self._anchor: tuple[str, object] | None = None
        self.generation = 0
        """How often another graph was found in the place of the one that was known."""

    @classmethod
    def at(
        cls,
        root: str,
        *,
        durability: Durability = Durability.FAST,
        storage_options: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> TableStore:
        """The process-wide store of a canonical root."""
        check_process()  # before the lock, which the process this one was forked from may hold for ever
        key = (root, durability, read_only, tuple(sorted((storage_options or {}).items())))
        with cls._shared_lock:
            store = cls._shared.get(key)
            if store is None:
                store = cls._shared[key] = cls(
                    root, durability=durability, storage_options=storage_options, read_only=read_only
                )
            return store

    def location(self, path: str) -> str:
        """The full location of a table."""
        return join(self.root, path)

    # --- opening ---------------------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """True when a table has been created at this path."""
        return self.objects.exists(f"{path}/{VERSIONS}")

    def open(self, path: str, *, branch: str | None = None, version: int | None = None) -> TableHandle:
        """The table at a version of a branch, or at the branch's head, read afresh.

        Raises:
            StorageError: no such table, branch or version (`kind` not_found), or it cannot be read.
        """
        if branch is not None and version is None and not self.objects.has(branch_ref(path, branch)):
            # Lance would open the folder of a branch whose deletion was cut short.
            raise StorageError(f"opening {path}: there is no branch {branch}", kind="not_found")
        with translated(f"opening {path}"), step("open", path):
            dataset = lance.dataset(
                self.location(path),
                version=version if branch is None else None,
                session=self._session,
                storage_options=self._options,
            )
            if branch is not None:
                dataset = dataset.checkout_version((branch, version))
        return self._handle(dataset, path, branch)

    def _handle(self, dataset: LanceDataset, path: str, branch: str | None) -> TableHandle:
        return TableHandle(dataset, path=path, branch=branch, read_only=self.read_only, is_kept=self._is_kept)

    def _is_kept(self, handle: TableHandle) -> bool:
        """False when the version of a handle was removed since it was opened, or its branch deleted."""
        if handle.branch is not None and self.branch_mark(handle.path, handle.branch) is None:
            return False
        try:
            now = self.open(handle.path, branch=handle.branch, version=handle.version)
        except StorageError as exc:
            if exc.kind != "not_found":
                raise
            return False
        # A branch made anew may have another version of this number.
        return now.fragments() == handle.fragments()

    def open_pinned(self, path: str, *, branch: str | None, version: int, tag: str | None = None) -> TableHandle:
        """A version that is published, kept open for the next reader; `tag` tells recreated tables apart."""
        handle = self._kept.get((path, branch, version, tag))
        if handle is None:
            handle = self.open(path, branch=branch, version=version)
            self._kept.put(handle, tag)
        return handle

    def remember(self, handle: TableHandle, *, tag: str | None = None) -> None:
        """Keep a handle for `open_pinned`, dropping the least recently used one beyond the bound."""
        self._kept.put(handle, tag)

    def forget(self) -> None:
        """Drop every kept handle."""
        self._kept.clear()

    @classmethod
    def close_root(cls, root: str) -> None:
        """Give back what this process keeps for a root; whoever still uses a store of it goes on without."""
        with cls._shared_lock:
            stores = [cls._shared.pop(key) for key in list(cls._shared) if key[0] == root]
        for store in stores:
            store.close()

    def close(self) -> None:
        """Give back what is kept in memory for the tables of this store."""
        forget_files(self._kept.files())
        self._kept.clear()
        # Its caches go with the old one, once no handle is left that somebody else holds.
        self._session = new_session()

    # --- another graph in the same place ---------------------------------------------------------------------------

    def anchor(self, path: str, version: int) -> None:
        """Remember the file of a version that is there now, to notice when a graph is put in the place of this one."""
        file = f"{path}/{version_file(version)}"
        self._anchor = (file, self.objects.mark(file))

    def renew_if_replaced(self) -> None:
        """Let go of everything kept when the graph at this root is not the one that was known.

        Its folder was removed and made again, or a copy was put back. Versions are known by their numbers, here and in
        the caches of Lance, and the graph that is there now has the same numbers for other content. A version that was
        cleaned up looks the same; then only time is lost.
        """
        anchor = self._anchor
        if anchor is not None and self.objects.mark(anchor[0]) != anchor[1]:
            self._anchor = None
            self.generation += 1
            self.close()

    def head_version(self, path: str, branch: str | None = None, *, known: int | None = None) -> int:
        """The newest version of a table's branch.

        With a `known` version that certainly existed, only the next numbers are probed, which costs the same however
        long the history is; without it the versions are listed. Versions at or above a published pin are never
        removed while younger ones exist, so the probe meets no gap.
        """
        if known is None:
            return self.open(path, branch=branch).version
        folder = branch_location(path, branch)
        with step("probe_head", path):
            version = known
            while self.objects.has(f"{folder}/{version_file(version + 1)}"):
                version += 1
                if version - known > PROBED_VERSIONS:
                    return self.open(path, branch=branch).version
        return version

    def branch_mark(self, path: str, branch: str) -> object:
        """A value that tells a branch of a table from one made anew under its name; None when there is none."""
        return self.objects.mark(branch_ref(path, branch))

    def branch_identity(self, path: str, branch: str) -> str | None:
        """What a branch of a table has for ever and no other of its name ever had; None when there is no such branch.

        Unlike a mark it is kept by whoever copies the table elsewhere.
        """
        return self.objects.read_text_if_exists(branch_ref(path, branch))

    def has_version(self, path: str, branch: str | None, version: int) -> bool:
        """Whether a version of a table's branch is still there; costs one look."""
        return self.objects.has(f"{branch_location(path, branch)}/{version_file(version)}")

    # --- writing ---------------------------------------------------------------------------------------------------

    def create(self, path: str, schema: pa.Schema, rows: pa.Table | None = None) -> TableHandle:
        """Create a table with our fixed options: stable row ids, storage version 2.2, no automatic cleanup.

        Raises:
            StorageError: a table is already there (`kind` precondition); it is not touched.
        """
        location = self.location(path)
        with translated(f"creating {path}"), step("create", path):
            staged = write_fragments(
                schema.empty_table() if rows is None else rows,
                location,
                schema=schema,
                mode="create",
                return_transaction=True,
                data_storage_version=STORAGE_VERSION,
                storage_options=self._options,
                enable_stable_row_ids=True,
            )
            if self.exists(path):
                raise StorageError(f"creating {path}: a table is already there", kind="precondition")
            dataset = self._commit_creation(path, location, staged)
        handle = self._handle(dataset, path, None)
        self._sync(handle, [data_file(file) for fragment in handle.fragments() for file in fragment.files])
        return handle

    def _commit_creation(self, path: str, location: str, staged: Transaction) -> LanceDataset:
        try:
            return LanceDataset.commit(
                location,
                staged,
                max_retries=0,
                storage_options=self._options,
                enable_v2_manifest_paths=True,
                enable_stable_row_ids=True,
            )
        except OSError as exc:
            # Whoever loses the race for the first version is told that version zero is missing.
            if self.exists(path):
                raise StorageError(f"creating {path}: a table is already there", kind="precondition") from exc
            raise

    def ensure_config(self, path: str, config: Mapping[str, str]) -> None:
        """Set configuration keys of a table that are not set yet; content and schema stay as they are."""
        handle = self.open(path)
        if any(handle.config.get(name) != value for name, value in config.items()):
            self.annotate(handle, config=config)

    def without_removal(self, handle: TableHandle) -> TableHandle:
        """The table, after taking off settings of other programs that would make commits to it remove versions."""
        gone = dict.fromkeys(handle.removal_settings)
        return self.annotate(handle, config=gone) if gone else handle

    def annotate(
        self,
        base: TableHandle,
        *,
        schema: Mapping[str, str] | None = None,
        fields: Mapping[str, Mapping[str, str]] | None = None,
        config: Mapping[str, str | None] | None = None,
    ) -> TableHandle:
        """Set facts of the schema, of columns and of the configuration as one version; None removes a setting.

        The rows stay. Rows that others committed since `base` stay as well.

        Raises:
            ConflictError: somebody else set one of these facts since `base`; nothing happened.
        """
        operation = LanceOperation.UpdateConfig(
            config_updates=_updates(config),
            schema_metadata_updates=_updates(schema),
            field_metadata_updates={base.field_ids[name]: _updates(facts) for name, facts in (fields or {}).items()},
        )
        transaction = Transaction(base.version, operation)
        with translated(f"configuring {base.path}"), step("configure", base.path):
            dataset = LanceDataset.commit(base.dataset, transaction, max_retries=0, storage_options=self._options)
        handle = self._handle(dataset, base.path, base.branch)
        self._sync(handle, [])
        return handle

    def commit(self, base: TableHandle, staged: StagedWrite, properties: Mapping[str, str]) -> TableHandle:
        """Make a staged write the next version of its table.

        Raises:
            ConflictError: the table is not at the base version any more; nothing happened, if the write is strict.
            LateCommitError: it landed behind the commits of others; the caller has to undo it.
        """
        if staged.base_version != base.version and not (staged.keeps_rows and staged.base_version < base.version):
            raise InternalError(f"a write staged on version {staged.base_version} of {base.path} met {base.version}")
        self.sync_staged(base, staged)
        handle = self._handle(self._commit(base, staged, dict(properties)), base.path, base.branch)
        handle.written_by = properties.get(OPERATION_ID)
        if staged.touched is not None and staged.base_version == base.version:
            handle.follow(base, staged.touched)
        if handle.version != base.version + 1:
            if not staged.strict:
                raise ConflictError(f"another writer committed to {base.path} first — retry")
            # Lance compares a commit with those since its base, and cleanup has removed some of them.
            raise LateCommitError(
                f"a commit to {base.path} became version {handle.version} instead of {base.version + 1}: this process"
                " stood still, and others have gone on — retry"
            )
        self._sync(handle, [])
        return handle

    def _commit(self, base: TableHandle, staged: StagedWrite, properties: dict[str, str]) -> LanceDataset:
        transaction = as_transaction(staged, properties)
        try:
            with translated(f"committing to {base.path}"), step("commit", base.path):
                return LanceDataset.commit(base.dataset, transaction, max_retries=0, storage_options=self._options)
        except ConflictError:
            landed = None if self.is_local else self._landed(base, transaction.uuid)
            if landed is None:
                raise
            return landed

    def _landed(self, base: TableHandle, uuid: str) -> LanceDataset | None:
        """The version after `base`, if this very transaction made it.

        When an object store's answer to a conditional put is lost, its client asks again and is refused by its own
        first try: the commit is there although it was reported as a conflict.
        """
        dataset = self.open(base.path, branch=base.branch, version=base.version + 1).dataset
        found = read_transaction(dataset, base.path, base.version + 1)
        return dataset if found.uuid == uuid else None

    def restore(self, path: str, branch: str | None, version: int, properties: Mapping[str, str]) -> TableHandle:
        """Make the content of an earlier version the newest one.

        Lance never refuses a restore, so only the owner of everything above `version` may call this.
        """
        head = self.open(path, branch=branch)
        transaction = Transaction(
            head.version, LanceOperation.Restore(version), transaction_properties=dict(properties)
        )
        with translated(f"restoring {path}"), step("restore", path):
            dataset = LanceDataset.commit(head.dataset, transaction, storage_options=self._options)
        handle = self._handle(dataset, path, branch)
        self._sync(handle, [])
        return handle

    # --- looking around --------------------------------------------------------------------------------------------

    def transactions(self, path: str, branch: str | None, *, after: int, upto: int) -> list[TransactionInfo]:
        """What made each of the versions `after + 1 … upto`, in order."""
        if upto <= after:
            return []
        dataset = self.open(path, branch=branch).dataset
        found = []
        for version in range(after + 1, upto + 1):
            with step("read_transaction", path):
                found.append(read_transaction(dataset, path, version))
        return found

    def table_branches(self, path: str) -> list[str]:
        """The refs of a table, sorted."""
        return sorted(self._refs.of(path))

    def branch_parents(self, path: str) -> dict[str, str | None]:
        """The refs of a table with the branch each was created from (None is main)."""
        return {name: ref.parent for name, ref in self._refs.of(path).items()}

    def fork_points(self, path: str) -> dict[str, tuple[str | None, int]]:
        """The refs of a table with the branch (None is main) and the version each was created from."""
        return {name: (ref.parent, ref.version) for name, ref in self._refs.of(path).items()}

    def branch_points(self, path: str) -> dict[str, int]:
        """The refs of a table that were created from main, and the version of main each was created at."""
        return {name: version for name, (parent, version) in self.fork_points(path).items() if parent is None}

    def branch_folders(self, path: str) -> list[str]:
        """The names of branches that have files, sorted; one without a ref is what a cut-short deletion left."""
        top = f"{path}/{BRANCH_TREE}"
        found, places = [], self.objects.list_folders(top)
        while places:
            place = places.pop()
            below = self.objects.list_folders(place)
            if f"{place}/{VERSIONS}" in below:
                found.append(place.removeprefix(f"{top}/"))
                below = [name for name in below if name.rpartition("/")[2] not in TABLE_FOLDERS]
            places.extend(below)
        return sorted(found)

    def tags(self, path: str, branch: str | None = None) -> dict[str, int]:
        """The tags of versions on one branch of a table, and these versions: somebody wants to keep them."""
        if not self.objects.exists(f"{path}/{TAG_REFS}"):
            return {}
        dataset = self.open(path).dataset
        with translated(f"listing the tags of {path}"), step("list_tags", path):
            tags = sorted(dataset.tags.list().items())
        return {name: int(tag["version"]) for name, tag in tags if (tag.get("branch") or None) == branch}

    def versions(self, path: str) -> list[int]:
        """The versions of a table's main lineage that still exist, ascending."""
        dataset = self.open(path).dataset
        with translated(f"listing the versions of {path}"), step("list_versions", path):
            return sorted(int(ref["version"]) for ref in dataset.version_refs())

    def version_times(self, path: str) -> dict[int, datetime]:
        """When each version of a table's main lineage that still exists was written, by one listing."""
        found = {}
        for entry in self.objects.entries(f"{path}/{VERSIONS}"):
            version = version_of(str(entry["path"]))
            if version is not None:
                found[version] = entry["last_modified"]
        return dict(sorted(found.items()))

    # --- syncing ---------------------------------------------------------------------------------------------------

    @property
    def _syncs(self) -> bool:
        return self.is_local and is_full(self.durability)

    @property
    def waits(self) -> bool:
        """True when a write mostly waits, for a disk that syncs or for a network, and not for a processor."""
        return not self.is_local or is_full(self.durability)

    def sync_staged(self, base: TableHandle, staged: StagedWrite) -> StagedWrite:
        """Sync the files a commit is about to name, and say so in what is returned: no file is synced twice.

        A staged file never changes again, and to sync one that is on the medium still makes the medium empty its cache.
        """
        if not self._syncs or staged.synced == staged.files:
            return staged
        folder = _folder(base)
        files = [f"{folder}/{file}" for file in staged.files]
        if isinstance(staged.operation, LanceOperation.CreateIndex):
            for index in staged.operation.new_indices:
                parts = f"{folder}/{INDICES}/{index.uuid}"
                files.extend(entry.path for entry in os.scandir(parts))
        sync_files(files)
        return replace(staged, synced=staged.files)

    def sync_head(self, path: str, branch: str | None = None) -> None:
        """Sync the newest version of a branch that something other than `commit` made, and the refs of its table."""
        if not self._syncs:
            return
        handle = self.open(path, branch=branch)
        folder = _folder(handle)
        data = [data_file(file) for fragment in handle.fragments() for file in fragment.files]
        self._sync(handle, [file for file in data if os.path.exists(f"{folder}/{file}")])
        refs = f"{self.location(path)}/{BRANCH_REFS}"
        if os.path.isdir(refs):
            sync_files(entry.path for entry in os.scandir(refs))

    def _sync(self, handle: TableHandle, files: Sequence[str]) -> None:
        """Sync a new version: the file that makes it one, and what else is named."""
        if not self._syncs:
            return
        folder = _folder(handle)
        sync_files(f"{folder}/{name}" for name in (*files, version_file(handle.version)))


def _updates(facts: Mapping[str, str | None] | None) -> LanceOperation.UpdateMap | None:
    return LanceOperation.UpdateMap(dict(facts)) if facts else None


def _folder(handle: TableHandle) -> str:
    """The local directory that holds the files of a table's branch."""
    return handle.uri.removeprefix("file://")
