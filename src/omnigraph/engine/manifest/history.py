"""The commits of a graph: where they are kept, listed and found.

The manifest holds the newest commits, because they must become visible with what they commit. Older ones move to
`_graph_commits.lance` in batches, always before they leave the manifest, so that the two together are complete at any
moment and a publish never rewrites a long history. Both tables of this module are projections: if one is missing or
behind, it is completed from the manifest, and what left the manifest long ago from its earlier versions. A commit takes
along everything that is known of it, so that it can be told as well after years as on its first day.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute
from msgspec.structs import replace

from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.engine.manifest.commit_rows import actor_rows, commit_rows, read_commits
from omnigraph.engine.manifest.records import CommitRecord, Head
from omnigraph.engine.manifest.references import ULID_LENGTH, Spelling, micros, spelling, told
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.manifest.state import ManifestState
from omnigraph.engine.manifest.states import States
from omnigraph.engine.manifest.tags import Tags
from omnigraph.engine.manifest.walk import Walk
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.evolve import stage_columns
from omnigraph.engine.storage.handle import RowFilter, TableHandle
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    ConflictError,
    FormatError,
    InputError,
    NotFoundError,
    StorageError,
    VersionReclaimedError,
)
from omnigraph.ids import MAIN, CommitId, Moment, parse_branch, spelled, stored_branch

logger = logging.getLogger(__name__)

ARCHIVE_ATTEMPTS = 5
VERSION_DIGITS_MAX = 18
FOUND_COMMITS = 1_024
CANDIDATES = 8
"""How many commits are named where a shortened id fits several."""
CLOCKS_APART_SECONDS = 600
"""How much newer than a commit the one before it may be: commits are in the order of their publication, and the times
are those of the clocks of whoever made them, taken a moment before."""
_SEARCHED = 256
"""Manifest versions in which a commit of an earlier format is looked for first."""


def _among(ids: Sequence[str]) -> pa.compute.Expression:
    return pa.compute.field("graph_commit_id").isin(list(ids))


def _below(version: int, count: int) -> str:
    """The commits of `count` manifest versions up to this one, on whatever branch."""
    return f"manifest_version <= {version} AND manifest_version > {max(0, version - count)}"


def _is_branch(name: str) -> bool:
    """Whether a branch could have this name; it is a part of a path, so nothing else is looked for."""
    try:
        return parse_branch(name) == name
    except InputError:
        return False


def _version(at: int | str) -> int:
    """A version as a number.

    Raises:
        CommitNotFoundError: there cannot be so many.
    """
    if isinstance(at, str) and len(at) > VERSION_DIGITS_MAX:
        raise CommitNotFoundError(f"there is no version '{at[:40]}'")
    return int(at)


class History:
    """The commits of one graph."""

    def __init__(self, manifest: States) -> None:
        self._manifest = manifest
        self.tags = Tags(manifest.store.objects)
        self._genesis: CommitRecord | None = None
        self._found: dict[CommitId, CommitRecord] = {}

    def forget(self) -> None:
        """Let go of commits that were found, for they are those of another graph."""
        self._genesis = None
        self._found.clear()

    # --- the projection --------------------------------------------------------------------------------------------

    def archive(self, commits: Sequence[CommitRecord]) -> list[CommitId]:
        """Make sure the commit table holds these commits; returns their ids once it provably does.

        A table that turns out to lack their parents has been lost and begun anew, so the older history is put back.

        Raises:
            ConflictError: other processes kept archiving at the same time.
        """
        ids = [commit.graph_commit_id for commit in commits]
        outside = {parent: commit for commit in commits for parent in commit.parents if parent not in set(ids)}
        self._complete(layout.COMMIT_ACTORS, actor_rows(commits))
        held = self._complete(layout.GRAPH_COMMITS, commit_rows(commits), list(outside))
        lost = [(parent, child) for parent, child in outside.items() if parent not in held]
        if lost:
            self._put_back(lost)
        return ids

    def _put_back(self, lost: Sequence[tuple[CommitId, CommitRecord]]) -> None:
        known = self.archived()
        found: dict[CommitId, CommitRecord] = {}
        try:
            for parent, child in lost:
                found.update(self.recovered(parent, child, {**known, **found}))
        except FormatError as exc:
            logger.warning("the commit table lacks older commits: %s", exc)
        self._complete(layout.COMMIT_ACTORS, actor_rows(list(found.values())))
        self._complete(layout.GRAPH_COMMITS, commit_rows(sorted(found.values(), key=lambda commit: commit.order)))

    def _complete(self, path: str, rows: pa.Table, asked: Sequence[CommitId] = ()) -> set[str]:
        """Append the rows whose commit the table does not hold yet, strictly, so that no commit is there twice.

        Returns which of the rows' commits and of those asked about the table held before.
        """
        for _ in range(ARCHIVE_ATTEMPTS):
            try:
                handle = self._open_or_create(path, rows.schema)
                held = self._held(handle, [*rows["graph_commit_id"].to_pylist(), *asked])
                missing = rows.filter(pa.compute.invert(pa.compute.is_in(rows["graph_commit_id"], value_set=held)))
                staged = stage_changes(handle, new_rows=missing, read_soon=False)
                if staged is not None:
                    self._manifest.store.commit(handle, staged, {})
                return set(held.to_pylist())
            except ConflictError:
                continue
        raise ConflictError(f"{path} kept changing while commits were added to it")

    @staticmethod
    def _held(handle: TableHandle, ids: Sequence[str]) -> pa.Array:
        if not ids or not handle.fragments():
            return pa.array([], pa.utf8())
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

    def recovered(
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
        # A branch that was deleted since the commit table was read has left its commits there.
        if late := self.archived(_among([commit_id])):
            return late
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

    def archived(self, filter: RowFilter | None = None) -> dict[CommitId, CommitRecord]:
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

    def list(
        self,
        branch: str = MAIN,
        *,
        limit: int | None = None,
        actor: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> list[CommitRecord]:
        """The commits reachable from a branch's head, newest first; times are Unix microseconds, both included.

        A bound on their number, or on their age, bounds what is read.
        """
        state = self._manifest.snapshot(branch).state
        found: list[CommitRecord] = []
        walk = Walk(_Archive(self), state.commits, all_of_it=limit is None and since is None)
        for commit in walk.by_age(state.head) if limit != 0 else ():
            if since is not None and commit.created_at < since:
                if commit.created_at < since - CLOCKS_APART_SECONDS * 1_000_000:
                    break
                continue
            if (actor is None or commit.is_by(actor)) and (until is None or commit.created_at <= until):
                found.append(commit)
                if len(found) == limit:
                    break
        return found

    def genesis(self) -> CommitRecord:
        """The first commit of the graph, which tells it from every other one."""
        if self._genesis is None:
            known = [*self._manifest.snapshot(MAIN).state.commits.values()]
            first = [commit for commit in known if commit.parent_commit_id is None]
            first = first or list(self.archived("parent_commit_id IS NULL").values()) or [*self.line(MAIN)][-1:]
            self._genesis = min(first, key=lambda commit: commit.order)
        return self._genesis

    def newest(self, branch: str = MAIN) -> CommitRecord:
        """The head of a branch.

        Raises:
            BranchNotFoundError: there is no such branch.
        """
        for commit in self.line(branch):
            return commit
        raise CommitNotFoundError(f"'{branch}' has no commit")

    def line(self, branch: str = MAIN) -> Iterator[CommitRecord]:
        """The commits that were the head of a branch, or of what it was created from, newest first; read as asked."""
        state = self._manifest.snapshot(branch).state
        return Walk(_Archive(self), state.commits).line(state.head)

    def find(self, commit_id: str) -> CommitRecord:
        """One commit, wherever it was made; its id may be shortened to a beginning that no other commit has.

        Raises:
            CommitNotFoundError: there is no such commit.
            InputError: several commits begin so.
        """
        if spelling(commit_id) is Spelling.COMMIT:
            commit_id = commit_id.upper()
            if len(commit_id) < ULID_LENGTH:
                return self._shortened(commit_id)
        found = self.look_up(commit_id) or self._search(CommitId(commit_id))
        if found is None:
            raise CommitNotFoundError(f"there is no commit '{commit_id}'")
        return found

    def _shortened(self, start: str) -> CommitRecord:
        """The one commit whose id begins so."""
        found = {
            id: commit
            for snapshot in self._manifest.snapshots()
            for id, commit in snapshot.state.commits.items()
            if id.startswith(start)
        }
        found.update(self.archived(f"graph_commit_id >= '{start}' AND graph_commit_id < '{start}~'"))
        if not found:
            raise CommitNotFoundError(f"there is no commit whose id begins with '{start}'")
        if len(found) > 1:
            ids = sorted(found, reverse=True)
            more = f" and {len(ids) - CANDIDATES} more" if len(ids) > CANDIDATES else ""
            raise InputError(
                f"{len(ids)} commits begin with '{start}': {', '.join(ids[:CANDIDATES])}{more} — write more of the id",
                code="ambiguous_commit",
            )
        return next(iter(found.values()))

    def commit_at(self, at: Moment, branch: str = MAIN) -> CommitRecord:
        """The commit that a name of the past stands for, whichever way it is spelled.

        Raises:
            CommitNotFoundError: nothing has this name, or it is a state without a commit.
        """
        at = spelled(at)
        if isinstance(at, str) and spelling(at) is Spelling.NAME:
            tag = self.tags.find(at.strip())
            found = self.look_up(at if tag is None else tag.graph_commit_id)
            if found is None:
                hint = ", but a branch: pass it as the branch" if at.strip() in self._manifest.branches() else ""
                hint = hint or did_you_mean(at.strip(), [tag.name for tag in self.tags.list()])
                raise CommitNotFoundError(f"there is no commit and no tag '{at}'{hint}")
            return found
        if isinstance(at, str) and spelling(at) is Spelling.COMMIT:
            return self.find(at)
        if isinstance(at, datetime) or (isinstance(at, str) and spelling(at) is Spelling.TIME):
            return self._newest_by(micros(at), branch)
        head = self.snapshot_at(at, branch).head
        if head is None:
            raise CommitNotFoundError(f"'{at}' is a state of the graph that no commit made")
        return self.find(head)

    def whole_id(self, name: str) -> CommitId:
        """The id of the commit that a condition names; a name that no commit has stays as it is, and fits no head."""
        try:
            return self.commit_at(name).graph_commit_id
        except CommitNotFoundError:
            return CommitId(name)

    def _newest_by(self, moment: int, branch: str) -> CommitRecord:
        """The commit that was the head of a branch at a time."""
        oldest: CommitRecord | None = None
        for commit in self.line(branch):
            if commit.created_at <= moment:
                return commit
            oldest = commit
        began = "" if oldest is None else f": its first commit was made at {told(oldest.created_at)}"
        raise CommitNotFoundError(f"'{branch}' had no commit at {told(moment)}{began}")

    def look_up(self, commit_id: str) -> CommitRecord | None:
        """One commit from where commits are kept: the manifests of all branches, and the commit table."""
        wanted = CommitId(commit_id)
        self._manifest.leave_replaced()
        if wanted in self._found:
            return self._found[wanted]
        main = self._manifest.snapshot(MAIN).state.commits
        if wanted in main:
            return main[wanted]
        archived = self.archived(_among([wanted]))
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

    def snapshot_at(self, at: Moment, branch: str = MAIN) -> Snapshot:
        """The state that a commit, a tag, a time, a snapshot id (`manifest:<branch>:v<version>`) or a version names.

        A time and a version are those of the branch.

        Raises:
            CommitNotFoundError: nothing has this name.
        """
        at = spelled(at)
        if isinstance(at, int) or (isinstance(at, str) and spelling(at) is Spelling.VERSION):
            return self._manifest.snapshot(branch, version=_version(at))
        if isinstance(at, str) and spelling(at) is Spelling.SNAPSHOT:
            place, separator, version = at.removeprefix("manifest:").partition(":v")
            if not separator or not version.isdecimal() or not _is_branch(place):
                raise CommitNotFoundError(f"'{at[:80]}' is not a snapshot id: it reads manifest:<branch>:v<version>")
            return self._manifest.snapshot(place, version=_version(version))
        return self.snapshot_of(self.commit_at(at, branch))

    def snapshot_of(self, commit: CommitRecord) -> Snapshot:
        """The state that a commit made.

        Raises:
            CommitNotFoundError: it was made on a branch that has been deleted.
            VersionReclaimedError: cleanup has removed it.
        """
        branch = commit.manifest_branch or MAIN
        gone = CommitNotFoundError(
            f"commit {commit.graph_commit_id} was made on a branch '{branch}' that has been deleted, and its state went"
            " with it: name the commit that merged it, or another of a branch that is there"
        )
        try:
            snapshot = self._manifest.snapshot(branch, version=commit.manifest_version)
        except CommitNotFoundError as missing:
            if branch == MAIN:
                raise
            raise gone from missing
        if snapshot.head != commit.graph_commit_id:
            raise gone
        return snapshot

    def whole_snapshot(self, commit: CommitRecord) -> Snapshot:
        """The state that a commit made, after a look at each of its tables.

        Raises:
            CommitNotFoundError: it was made on a branch that has been deleted.
            VersionReclaimedError: cleanup has removed it, or a table that it needs.
        """
        snapshot = self.snapshot_of(commit)
        for entry in snapshot.entries.values():
            if not self._manifest.store.has_version(entry.path, entry.branch, entry.version):
                raise VersionReclaimedError(
                    f"commit {commit.graph_commit_id} needs version {entry.version} of '{entry.table_key}', which"
                    " cleanup has removed; choose a newer commit",
                    table_key=entry.table_key,
                    version=entry.version,
                )
        return snapshot


class _Archive:
    """The commit table, as a walk through the history asks it."""

    def __init__(self, history: History) -> None:
        self._history = history

    def page(self, version: int, count: int) -> Mapping[CommitId, CommitRecord]:
        return self._history.archived(_below(version, count))

    def named(self, commit_id: CommitId) -> Mapping[CommitId, CommitRecord]:
        return self._history.archived(_among([commit_id]))

    def everything(self) -> Mapping[CommitId, CommitRecord]:
        return self._history.archived()

    def recovered(
        self, missing: CommitId, child: CommitRecord, known: Mapping[CommitId, CommitRecord]
    ) -> Mapping[CommitId, CommitRecord]:
        return self._history.recovered(missing, child, known)
