"""The commits of a graph: where they are kept, listed and found.

The manifest holds the newest commits, because they must become visible with what they commit. Older ones move to
`_graph_commits.lance` in batches, always before they leave the manifest, so that the two together are complete at any
moment and a publish never rewrites a long history. Both tables of this module are projections: if one is missing or
behind, it is completed from the manifest, and what left the manifest long ago from its earlier versions. A commit takes
along everything that is known of it, so that it can be told as well after years as on its first day.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute

from omnigraph.catalog import arrays
from omnigraph.engine.manifest.records import CommitRecord, Head
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.manifest.state import ManifestState
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.evolve import stage_columns
from omnigraph.engine.storage.handle import RowFilter, TableHandle
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    ConflictError,
    FormatError,
    NotFoundError,
    StorageError,
)
from omnigraph.ids import MAIN, CommitId, stored_branch

if TYPE_CHECKING:
    from omnigraph.engine.manifest.publish import Manifest

logger = logging.getLogger(__name__)

_MICROS = pa.timestamp("us")

COMMITS_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.utf8(), nullable=False),
        pa.field("manifest_branch", pa.utf8()),
        pa.field("manifest_version", pa.uint64(), nullable=False),
        pa.field("parent_commit_id", pa.utf8()),
        pa.field("merged_parent_commit_id", pa.utf8()),
        pa.field("created_at", _MICROS, nullable=False),
        pa.field("actor_id", pa.utf8()),
        pa.field("properties", pa.utf8()),
    ]
)
"""`properties` is JSON, null without any. A commit table without the last two columns gets them when it is next
written; until then the table of actors tells who made a commit."""
ACTORS_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.utf8(), nullable=False),
        pa.field("actor_id", pa.utf8(), nullable=False),
        pa.field("created_at", _MICROS, nullable=False),
    ]
)
ARCHIVE_ATTEMPTS = 5
FOUND_COMMITS = 1_024
PAGE = 64
"""Commits read from the commit table at least, when only the newest are wanted."""
_SEARCHED = 256
"""Manifest versions in which a commit of an earlier format is looked for first."""


def _commit_rows(commits: Sequence[CommitRecord]) -> pa.Table:
    columns: dict[str, list[object]] = {
        name: [getattr(commit, name) for commit in commits] for name in COMMITS_SCHEMA.names if name != "properties"
    }
    columns["properties"] = [json.dumps(dict(c.properties)) if c.properties else None for c in commits]
    return pa.table(columns, schema=COMMITS_SCHEMA)


def _actor_rows(commits: Sequence[CommitRecord]) -> pa.Table:
    named = [commit for commit in commits if commit.actor_id is not None]
    return pa.table(
        {
            "graph_commit_id": [commit.graph_commit_id for commit in named],
            "actor_id": [commit.actor_id for commit in named],
            "created_at": [commit.created_at for commit in named],
        },
        schema=ACTORS_SCHEMA,
    )


def _among(ids: Sequence[str]) -> pa.compute.Expression:
    return pa.compute.field("graph_commit_id").isin(list(ids))


def _below(version: int, count: int) -> str:
    """The commits of `count` manifest versions up to this one, on whatever branch."""
    return f"manifest_version <= {version} AND manifest_version > {max(0, version - count)}"


def read_commits(rows: pa.Table, actors: pa.Table | None) -> dict[CommitId, CommitRecord]:
    """The commits that rows of the commit table stand for; `actors` names those of rows that do not tell theirs."""
    if not rows.num_rows:
        return {}
    named: dict[str, str] = {}
    if actors is not None:
        named = dict(zip(actors["graph_commit_id"].to_pylist(), actors["actor_id"].to_pylist(), strict=True))
    for later in {"actor_id", "properties"}.difference(rows.schema.names):
        rows = rows.append_column(later, pa.nulls(rows.num_rows, pa.utf8()))
    created = rows.schema.get_field_index("created_at")
    rows = rows.set_column(created, "created_at", rows["created_at"].cast(pa.int64()))
    columns = (rows[name].to_pylist() for name in COMMITS_SCHEMA.names)
    return {
        commit_id: CommitRecord(
            commit_id,
            branch,
            version,
            parent,
            merged,
            actor or named.get(commit_id),
            created_at,
            json.loads(properties) if properties else {},
        )
        for commit_id, branch, version, parent, merged, created_at, actor, properties in zip(*columns, strict=True)
    }


class History:
    """The commits of one graph."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._found: dict[CommitId, CommitRecord] = {}

    # --- the projection --------------------------------------------------------------------------------------------

    def archive(self, commits: Sequence[CommitRecord]) -> list[CommitId]:
        """Make sure the commit table holds these commits; returns their ids once it provably does.

        A table that turns out to lack their parents has been lost and begun anew, so the older history is put back.

        Raises:
            ConflictError: other processes kept archiving at the same time.
        """
        ids = [commit.graph_commit_id for commit in commits]
        outside = {parent: commit for commit in commits for parent in commit.parents if parent not in set(ids)}
        self._complete(layout.COMMIT_ACTORS, _actor_rows(commits))
        held = self._complete(layout.GRAPH_COMMITS, _commit_rows(commits), list(outside))
        lost = [(parent, child) for parent, child in outside.items() if parent not in held]
        if lost:
            self._put_back(lost)
        return ids

    def _put_back(self, lost: Sequence[tuple[CommitId, CommitRecord]]) -> None:
        known = self._archived()
        found: dict[CommitId, CommitRecord] = {}
        try:
            for parent, child in lost:
                found.update(self._recover(parent, child, {**known, **found}))
        except FormatError as exc:
            logger.warning("the commit table lacks older commits: %s", exc)
        self._complete(layout.COMMIT_ACTORS, _actor_rows(list(found.values())))
        self._complete(layout.GRAPH_COMMITS, _commit_rows(sorted(found.values(), key=lambda commit: commit.order)))

    def _complete(self, path: str, rows: pa.Table, asked: Sequence[CommitId] = ()) -> set[str]:
        """Append the rows whose commit the table does not hold yet, strictly, so that no commit is there twice.

        Returns which of the rows' commits and of those asked about the table held before.
        """
        for _ in range(ARCHIVE_ATTEMPTS):
            try:
                handle = self._open_or_create(path, rows.schema)
                held = self._held(handle, [*rows["graph_commit_id"].to_pylist(), *asked])
                missing = rows.filter(pa.compute.invert(pa.compute.is_in(rows["graph_commit_id"], value_set=held)))
                staged = stage_changes(handle, new_rows=missing)
                if staged is not None:
                    self._manifest.store.commit(handle, staged, {})
                return set(held.to_pylist())
            except ConflictError:
                continue
        raise ConflictError(f"{path} kept changing while commits were added to it")

    @staticmethod
    def _held(handle: TableHandle, ids: Sequence[str]) -> pa.Array:
        if not ids or not handle.fragments():
            return arrays.array([], pa.utf8())
        return handle.scan(["graph_commit_id"], _among(ids))["graph_commit_id"].combine_chunks()

    def _open_or_create(self, path: str, schema: pa.Schema) -> TableHandle:
        store = self._manifest.store
        try:
            handle = store.without_removal(store.open(path))
            if set(schema.names) <= set(handle.schema.names):
                return handle
            return store.commit(handle, stage_columns(handle, schema, {}), {})
        except StorageError as exc:
            if exc.kind != "not_found":
                raise
        try:
            return store.create(path, schema)
        except StorageError as exc:
            if exc.kind not in ("precondition", "not_found"):
                raise
            return store.open(path)

    def project(self, branch: str = MAIN) -> None:
        """Complete the commit tables from the manifest of a branch."""
        commits = self._manifest.snapshot(branch).state.commits
        self.archive(sorted(commits.values(), key=lambda commit: commit.order))

    def _recover(
        self, missing: CommitId, child: CommitRecord, known: Mapping[CommitId, CommitRecord]
    ) -> dict[CommitId, CommitRecord]:
        """A commit that is not known and its ancestors up to known ones, from earlier versions of the manifest.

        The version right before a commit has its parent as the head of the window, so one version in every few dozen
        is read.
        """
        found: dict[CommitId, CommitRecord] = {}
        lost = [(missing, child)]
        while lost:
            commit_id, child = lost.pop()
            if commit_id in found or commit_id in known:
                continue
            window = self._window_with(commit_id, child)
            fresh = [commit for commit in window.values() if commit.graph_commit_id not in found]
            found.update(window)
            lost.extend((parent, commit) for commit in fresh for parent in commit.parents if parent not in found)
        return found

    def _window_with(self, commit_id: CommitId, child: CommitRecord) -> Mapping[CommitId, CommitRecord]:
        """The commits of a manifest version that has this one: below its child, or at the head of some branch."""
        places: list[tuple[str, int | None]] = []
        if child.manifest_version > 1:
            places.append((child.manifest_branch or MAIN, child.manifest_version - 1))
        places.extend((branch, None) for branch in self._manifest.branches())
        for branch, version in places:
            try:
                commits = self._manifest.snapshot(branch, version=version).state.commits
            except (NotFoundError, StorageError):
                continue
            if commit_id in commits:
                return commits
        raise FormatError(
            f"commit {commit_id}, a parent of {child.graph_commit_id}, is recorded nowhere:"
            f" {layout.GRAPH_COMMITS} lost it and the manifest version that had it has been removed"
        )

    # --- earlier formats -------------------------------------------------------------------------------------------

    def with_lineage(self, state: ManifestState, *, window: int) -> ManifestState:
        """A state of a format whose manifest told no commits, with its newest ones and its head.

        The commit table of that format had the branches of the manifest, and a commit was added to it after the
        publish, so the newest commit may be missing.
        """
        found = self._of_branch(state.branch, _below(state.version, _SEARCHED)) or self._of_branch(
            state.branch, f"manifest_version <= {state.version}"
        )
        newest = sorted({**found, **state.commits}.values(), key=lambda commit: commit.order)[-window:]
        if not newest:
            return state
        head = Head(state.branch, newest[-1].graph_commit_id, newest[-1].parent_commit_id)
        return replace(state, commits={c.graph_commit_id: c for c in newest}, heads={**state.heads, state.branch: head})

    def adopt(self, branch: str, *, keep: Collection[CommitId]) -> None:
        """Make sure that the one commit table holds what a branch of it held, but for the commits to `keep`."""
        if branch == MAIN:
            return
        own = self._of_branch(branch, f"manifest_branch = '{branch}'")
        self.archive([commit for commit in own.values() if commit.graph_commit_id not in keep])

    def _of_branch(self, branch: str, filter: str) -> dict[CommitId, CommitRecord]:
        """The commits of the commit table's branch; a branch without commits of its own has none there."""
        store = self._manifest.store
        if not store.exists(layout.GRAPH_COMMITS):
            return {}
        own = stored_branch(branch)
        if own is not None and own not in store.table_branches(layout.GRAPH_COMMITS):
            own = None
        rows = store.open(layout.GRAPH_COMMITS, branch=own).scan(filter=filter)
        return read_commits(rows, self._actors(rows, filter))

    # --- asking ----------------------------------------------------------------------------------------------------

    def _archived(self, filter: RowFilter | None = None) -> dict[CommitId, CommitRecord]:
        """The commits of the commit tables: all, or those a filter selects."""
        store = self._manifest.store
        if not store.exists(layout.GRAPH_COMMITS):
            return {}
        rows = store.open(layout.GRAPH_COMMITS).scan(filter=filter)
        return read_commits(rows, self._actors(rows, filter))

    def _actors(self, commits: pa.Table, filter: RowFilter | None) -> pa.Table | None:
        store = self._manifest.store
        if not commits.num_rows or not store.exists(layout.COMMIT_ACTORS):
            return None
        wanted = None if filter is None else _among(commits["graph_commit_id"].to_pylist())
        return store.open(layout.COMMIT_ACTORS).scan(["graph_commit_id", "actor_id"], wanted)

    def list(self, branch: str = MAIN, *, limit: int | None = None) -> list[CommitRecord]:
        """The commits reachable from a branch's head, newest first."""
        state = self._manifest.snapshot(branch).state
        known: dict[CommitId, CommitRecord] = dict(state.commits)
        found: dict[CommitId, CommitRecord] = {}
        everything = False
        todo: list[tuple[CommitId, CommitRecord | None]] = [] if state.head is None else [(state.head, None)]
        while todo:
            commit_id, child = todo.pop()
            if commit_id in found:
                continue
            if commit_id not in known and not everything:
                everything = limit is None or self._has_merges(found.values())
                known = {**self._older(commit_id, child, None if everything else limit), **known}
            if commit_id not in known and child is not None:
                known.update(self._recover(commit_id, child, known))
            commit = known.get(commit_id)
            if commit is None:
                raise FormatError(f"commit {commit_id} is the head of '{branch}' but recorded nowhere")
            found[commit_id] = commit
            todo.extend((parent, commit) for parent in commit.parents)
            if limit is not None and len(found) >= limit and not everything and not self._has_merges(found.values()):
                break
        ordered = sorted(found.values(), key=lambda commit: commit.order, reverse=True)
        return ordered if limit is None else ordered[:limit]

    def _older(
        self, wanted: CommitId, child: CommitRecord | None, limit: int | None
    ) -> Mapping[CommitId, CommitRecord]:
        """Commits from the commit table: all of them, or the wanted one and some that are likely wanted next."""
        if limit is None or child is None:
            return self._archived()
        page = self._archived(_below(child.manifest_version, max(limit, PAGE)))
        return page if wanted in page else {**page, **self._archived(_among([wanted]))}

    @staticmethod
    def _has_merges(commits: Iterable[CommitRecord]) -> bool:
        return any(commit.merged_parent_commit_id is not None for commit in commits)

    def find(self, commit_id: str) -> CommitRecord:
        """One commit, wherever it was made.

        Raises:
            CommitNotFoundError: there is no such commit.
        """
        found = self.look_up(commit_id) or self._search(CommitId(commit_id))
        if found is None:
            raise CommitNotFoundError(f"there is no commit '{commit_id}'")
        return found

    def look_up(self, commit_id: str) -> CommitRecord | None:
        """One commit from where commits are kept: the manifests of all branches, and the commit table."""
        wanted = CommitId(commit_id)
        main = self._manifest.snapshot(MAIN).state.commits
        if wanted in main:
            return main[wanted]
        if wanted in self._found:
            return self._found[wanted]
        archived = self._archived(_among([wanted]))
        if wanted in archived:
            if len(self._found) >= FOUND_COMMITS:
                self._found.clear()
            # A commit never changes, so it need not be looked for again.
            return self._found.setdefault(wanted, archived[wanted])
        for snapshot in self._manifest.snapshots()[1:]:
            if wanted in snapshot.state.commits:
                return snapshot.state.commits[wanted]
        return None

    def _search(self, wanted: CommitId) -> CommitRecord | None:
        """A commit that the commit table has lost, from the history of some branch, which is read whole."""
        for branch in self._manifest.branches():
            try:
                reachable = {commit.graph_commit_id: commit for commit in self.list(branch)}
            except BranchNotFoundError:
                continue  # deleted meanwhile
            if wanted in reachable:
                return reachable[wanted]
        return None

    def snapshot_at(self, at: str | int, branch: str = MAIN) -> Snapshot:
        """The state a commit id, a snapshot id (`manifest:<branch>:v<version>`) or a manifest version names.

        Raises:
            CommitNotFoundError: nothing has this name.
        """
        if isinstance(at, int) or at.isdecimal():
            return self._manifest.snapshot(branch, version=int(at))
        if at.startswith("manifest:"):
            place, separator, version = at.removeprefix("manifest:").partition(":v")
            if not separator or not version.isdecimal():
                raise CommitNotFoundError(f"'{at}' is not a snapshot id: it reads manifest:<branch>:v<version>")
            return self._manifest.snapshot(place, version=int(version))
        commit = self.find(at)
        snapshot = self._manifest.snapshot(commit.manifest_branch or MAIN, version=commit.manifest_version)
        if snapshot.head != commit.graph_commit_id:
            raise CommitNotFoundError(
                f"commit {commit.graph_commit_id} was made on a branch '{commit.manifest_branch}' that has been deleted"
            )
        return snapshot
