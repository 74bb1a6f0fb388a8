"""The grouped verbs of a graph behind a server: `branches`, `history`, `schema`, `maintenance`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypedDict

from omnigraph.boundary import text, verb
from omnigraph.catalog.resolve import compile_schema
from omnigraph.choices import Engine, MergeStrategy, ToldValues
from omnigraph.client import decode
from omnigraph.client.connection import Connection, moment_of, only_direct
from omnigraph.client.transport import Call, segment
from omnigraph.drawing.schema import schema_svg
from omnigraph.engine.manifest.listed import Commits
from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.engine.manifest.references import micros
from omnigraph.engine.manifest.tags import Tag
from omnigraph.engine.operations.branch import BranchInfo
from omnigraph.engine.operations.merge import MergeConflict, MergePlan, MergeResult
from omnigraph.engine.operations.merge.conflicts import Order
from omnigraph.engine.operations.merge.resolutions import Resolutions
from omnigraph.engine.operations.migrate import SchemaApplyResult
from omnigraph.engine.operations.texts import read_schema
from omnigraph.errors import GraphError, InputError, MergeConflictError
from omnigraph.ids import MAIN, Moment, check_message, parse_branch

_CONFLICTS_AT_ONCE = 4_096
"""Conflicts that one answer tells; the server looks at the whole merge for each."""


class _How(TypedDict):
    """What conflicts depend on, besides the branches."""

    strategy: MergeStrategy | None
    strategies: Mapping[str, str] | None
    base: str | None


class RemoteBranches:
    """The branches of a graph."""

    def __init__(self, at: Connection) -> None:
        self._at = at

    @verb()
    def list(self) -> list[str]:
        """Every branch, main first, the others by name."""
        names = [str(name) for name in self._at.get("/branches")["branches"]]
        return sorted(names, key=lambda name: (name != MAIN, name))

    @verb()
    def create(
        self, name: str, from_: str = MAIN, *, at: Moment | None = None, actor: str | None = None
    ) -> decode.RemoteSnapshot:
        """Create a branch at the newest state of another one, or `at` a moment of the past. Returns its state.

        Raises:
            AlreadyExistsError: there is a branch of this name.
            BranchNotFoundError: there is no branch to create it from.
        """
        self._at.writing(actor)
        body = {"name": parse_branch(name), "from": parse_branch(from_), "at": moment_of(from_, at)}
        self._at.post("/branches", body, writes=True)
        return decode.snapshot(self._at.get("/snapshot", branch=parse_branch(name)))

    @verb()
    def show(self, name: str, into: str = MAIN) -> BranchInfo:
        """Where a branch stands: its newest commit, where it was created, how many commits it is ahead and behind.

        Raises:
            BranchNotFoundError: there is no such branch.
        """
        return decode.branch(self._at.get(f"/branches/{segment(parse_branch(name))}", into=parse_branch(into)))

    @verb()
    def delete(self, name: str, *, force: bool = False, actor: str | None = None) -> None:
        """Delete a branch, with what only it has; with `force` also one at which two others have parted.

        Raises:
            BranchNotFoundError: there is none of this name.
            ConflictError: another branch builds on it, or a write on it is in flight.
        """
        self._at.writing(actor)
        params = {"force": "true"} if force else {}
        self._at.send(Call("DELETE", f"/branches/{segment(parse_branch(name))}", params, writes=True))

    @verb(source=text)
    def diff(
        self,
        source: str,
        into: str = MAIN,
        *,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: ToldValues = "changed",
    ) -> decode.RemoteDiff:
        """What a branch would bring into another one: its changes since the two parted."""
        wanted = {"kind": list(kinds), "type": list(types), "op": list(ops), "values": values}
        named = {"source": parse_branch(source), "target": parse_branch(into)}
        return decode.diff(self._at.get("/branches/diff", **named, **wanted))

    @verb(source=text)
    def plan_merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: MergeStrategy | None = None,
        strategies: Mapping[str, str] | None = None,
        resolve: Resolutions | None = None,
        base: str | None = None,
        engine: Engine = "auto",
    ) -> MergePlan:
        """What `merge` would do with these arguments, and what is in conflict; reads only."""
        _check_engine(engine)
        how: _How = {"strategy": strategy, "strategies": strategies, "base": base}
        body = {**_merging(source, into, how), "resolve": self._resolved(source, into, how, resolve), "dry_run": True}
        return decode.merge_plan(self._at.post("/branches/merge", body))

    @verb(source=text)
    def conflicts(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: MergeStrategy | None = None,
        strategies: Mapping[str, str] | None = None,
        base: str | None = None,
        after: str | None = None,
    ) -> Iterator[MergeConflict]:
        """Everything that keeps a branch from being merged, by type and id; `after` goes on behind that token."""
        how: _How = {"strategy": strategy, "strategies": strategies, "base": base}
        asked = {**_merging(source, into, how), "after": after, "limit": _CONFLICTS_AT_ONCE}
        return self._pages(asked, self._at.post("/branches/conflicts", asked))

    def _pages(self, asked: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[MergeConflict]:
        """The conflicts of an answer, and of those that follow it."""
        while True:
            yield from (decode.conflict(each) for each in body["merge_conflicts"])
            if body.get("next_page_token") is None:
                return
            body = self._at.post("/branches/conflicts", {**asked, "after": body["next_page_token"]})

    @verb(source=text)
    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: MergeStrategy | None = None,
        strategies: Mapping[str, str] | None = None,
        resolve: Resolutions | None = None,
        expect_source: str | None = None,
        expect_target: str | None = None,
        base: str | None = None,
        delete_branch: bool = False,
        actor: str | None = None,
        message: str | None = None,
        progress: Callable[[Any], None] | None = None,
        engine: Engine = "auto",
    ) -> MergeResult:
        """Bring what one branch has changed into another one, as one commit, or nothing at all.

        A function given as `resolve` is called here, with the conflicts that the server lists; its decisions go along.
        `progress` hears nothing: the server merges in one answer, and chooses its engine.

        Raises:
            MergeConflictError: something stays in conflict; nothing changed.
            PreconditionFailedError: a branch is not at the expected commit; nothing changed.
        """
        _check_engine(engine)
        self._at.writing(actor)
        how: _How = {"strategy": strategy, "strategies": strategies, "base": base}
        body = {
            **_merging(source, into, how),
            "expect_source": expect_source,
            "expect_target": expect_target,
            "delete_branch": delete_branch,
            "message": check_message(message),
        }
        lines = self._resolved(source, into, how, resolve)
        return settled(self._at, "/branches/merge", body, lines, resolve)

    def _resolved(
        self, source: str, into: str, how: _How, resolve: Resolutions | None
    ) -> Sequence[Mapping[str, Any]] | None:
        """Resolutions as lines; a function is asked about each conflict."""
        if resolve is None:
            return None
        if not callable(resolve):
            return [dict(line) for line in resolve]
        told = (decided(conflict, resolve) for conflict in self.conflicts(source, into, **how))
        return [line for line in told if line is not None]


def _check_engine(engine: str) -> None:
    """A server chooses its engine itself."""
    if engine not in ("auto", "local", "spark"):
        raise InputError(f"an engine is 'auto', 'local' or 'spark', not '{engine}'")
    if engine == "spark":
        only_direct("a merge with Spark")


def reverted(at: Connection, body: Mapping[str, Any], resolve: Resolutions | None) -> MergeResult:
    """What became of a commit that was to be undone."""
    lines = [] if resolve is None or callable(resolve) else [dict(line) for line in resolve]
    return settled(at, "/revert", body, lines, resolve)


def settled(
    at: Connection,
    place: str,
    body: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]] | None,
    resolve: Resolutions | None,
) -> MergeResult:
    """What became of a merge. A function is asked about whatever the server refuses it for, each conflict once.

    An error tells so many conflicts, and what was decided for an entity may break a rule that nothing broke before.
    """
    asked: set[Order] = set()
    refusal: MergeConflictError | None = None
    while True:
        try:
            return decode.merged(at.post(place, {**body, "resolve": lines or None}, writes=True))
        except MergeConflictError as refused:
            if not callable(resolve):
                raise
            fresh = [each for each in map(decode.conflict, refused.conflicts) if each.order not in asked]
            told = [line for line in (decided(each, resolve) for each in fresh) if line is not None]
            if not told:
                raise
            asked.update(each.order for each in fresh)
            lines, refusal = [*(lines or ()), *told], refused
        except InputError as unfit:
            # Decisions are applied once: what only they have brought cannot be decided along with them.
            if refusal is None or unfit.code != "stale_resolution":
                raise
            raise refusal from unfit


def decided(conflict: MergeConflict, resolve: Callable[[MergeConflict], Any]) -> dict[str, Any] | None:
    """A conflict as a line with what a function takes for it, None where it decides nothing."""
    take = resolve(conflict)
    if take is None:
        return None
    if not isinstance(take, str | Mapping):
        take = {"set": dict(take.properties)} if take.properties else str(take.take)
    return {**conflict.to_json(), "take": take}


def _merging(source: str, into: str, how: _How) -> dict[str, Any]:
    by_type = how["strategies"]
    named = {"source": parse_branch(source), "target": parse_branch(into)}
    return {**named, **how, "strategies": dict(by_type) if by_type else None}


class RemoteHistory:
    """The commits of a graph."""

    def __init__(self, at: Connection) -> None:
        self._at = at

    @verb()
    def list(
        self,
        branch: str = MAIN,
        limit: int | None = None,
        actor: str | None = None,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Commits:
        """The commits of a branch, newest first; `actor`, `since` and `until` keep only some of them."""
        oldest = None if since is None else micros(since)
        newest = None if until is None else micros(until)
        # A bound on time is applied here, so only without one does the number bound the listing itself.
        asked = limit if oldest is None and newest is None else None
        body = self._at.get("/commits", branch=parse_branch(branch), limit=asked, actor=actor)
        found = [decode.commit_record(each) for each in body["commits"]]
        kept = (
            commit
            for commit in found
            if (oldest is None or commit.created_at >= oldest) and (newest is None or commit.created_at <= newest)
        )
        return Commits(islice(kept, limit))

    @verb()
    def show(self, commit_id: str) -> CommitRecord:
        """One commit.

        Raises:
            CommitNotFoundError: there is none of this id.
        """
        return decode.commit_record(self._at.get(f"/commits/{segment(_named(commit_id))}"))

    @verb()
    def changes(
        self,
        commit_id: str,
        *,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: ToldValues = "changed",
    ) -> decode.RemoteDiff:
        """What one commit changed, entity by entity; fetched page by page.

        Raises:
            CommitNotFoundError: there is none of this id.
            ChangesUnavailableError: it is the first commit, or it changed the schema.
            VersionReclaimedError: cleanup has removed what it would be compared with.
        """
        path = f"/commits/{segment(_named(commit_id))}/changes"
        wanted = {"kind": [*kinds], "type": [*types], "op": [*ops], "values": values}
        found, page = [], None
        while True:
            body = self._at.get(path, page_token=page, **wanted)
            found += [decode.change(each) for each in body["changes"]]
            page = body.get("next_page_token")
            if page is None:
                break
        newer = self.show(commit_id)
        older = self.show(newer.parent_commit_id) if newer.parent_commit_id else newer
        counts = Counter((change.kind, change.type_name, str(change.op)) for change in found)
        names = sorted({(kind, name) for kind, name, _ in counts}, key=lambda each: (each[0] != "node", each[1]))
        return decode.RemoteDiff(
            _state_of(older),
            _state_of(newer),
            tuple(
                decode.TypeCounts(kind, name, *(counts[kind, name, op] for op in ("insert", "update", "delete")))
                for kind, name in names
            ),
            (),
            tuple(found),
        )


def _state_of(commit: CommitRecord) -> decode.RemoteSnapshot:
    return decode.RemoteSnapshot(commit.manifest_branch or MAIN, commit.manifest_version, commit.graph_commit_id, {})


def _named(commit_id: str) -> str:
    if not commit_id.strip():
        raise InputError("the id of the commit is empty")
    return commit_id


class RemoteSchema:
    """The accepted schema of a graph; a notebook shows its types as a diagram."""

    def __init__(self, at: Connection) -> None:
        self._at = at

    @verb()
    def to_svg(self) -> str:
        """The types as a diagram, an SVG document."""
        return schema_svg(compile_schema(self.source))

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __repr__(self) -> str:
        try:
            return self.source
        except GraphError as exc:  # A prompt shows this; an error there would hide what it was asked for.
            return f"<the schema cannot be read: {exc}>"

    @property
    @verb()
    def source(self) -> str:
        """The accepted schema as it was written."""
        return str(self._at.get("/schema")["schema_source"])

    @verb()
    def plan(self, desired: str | os.PathLike[str], *, allow_data_loss: bool = False) -> decode.RemotePlan:
        """The steps from the accepted schema to another one, and whether all of them are supported; writes nothing."""
        body = {"schema_source": read_schema(desired), "allow_data_loss": allow_data_loss}
        return decode.schema_plan(self._at.post("/schema/plan", body))

    @verb()
    def apply(
        self,
        desired: str | os.PathLike[str],
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
        *,
        confirm_drops: bool = False,
    ) -> SchemaApplyResult:
        """Accept another schema, as text or as the path of a `.pg` file, as one commit.

        A type or property that holds data is dropped only with `confirm_drops`, which keeps the data in earlier
        commits, or with `allow_data_loss`, which keeps it nowhere.

        Raises:
            ParseError, SchemaError: it is not valid, or a step of the plan is not supported; nothing changed.
            ConflictError: there are other branches, or others kept changing the graph; nothing changed.
        """
        self._at.writing(actor)
        body = {
            "schema_source": read_schema(desired),
            "allow_data_loss": allow_data_loss,
            "confirm_drops": confirm_drops,
            "message": check_message(message),
        }
        return decode.schema_applied(self._at.post("/schema/apply", body, writes=True))

    @verb()
    def unlock(self) -> bool:
        """The lock is a file of the storage; refused."""
        only_direct("removing the schema lock")


class RemoteTags:
    """The tags of a graph: names that stay with one commit."""

    def __init__(self, at: Connection) -> None:
        self._at = at

    @verb()
    def list(self) -> list[Tag]:
        """Every tag, by name."""
        return [decode.tag(each) for each in self._at.get("/tags")["tags"]]

    @verb()
    def create(
        self,
        name: str,
        at: Moment | None = None,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
    ) -> Tag:
        """Name a commit: the newest of a branch, or one of its past. Its state is kept from `cleanup` meanwhile.

        Raises:
            AlreadyExistsError: there is a tag or a branch of this name.
            CommitNotFoundError, VersionReclaimedError: there is no such moment, or it can no longer be read.
        """
        self._at.writing(actor)
        named = {"name": name, "branch": parse_branch(branch), "at": moment_of(branch, at)}
        body = {**named, "message": check_message(message)}
        return decode.tag(self._at.post("/tags", body, writes=True))

    @verb()
    def delete(self, name: str, *, actor: str | None = None) -> None:
        """Remove a tag; what only it kept is for the next cleanup.

        Raises:
            NotFoundError: there is none of this name.
        """
        self._at.writing(actor)
        self._at.send(Call("DELETE", f"/tags/{segment(name)}", writes=True))


class RemoteMaintenance:
    """What is done where a graph is stored; every verb is refused and says so."""

    def __init__(self, at: Connection) -> None:
        self._at = at

    @verb()
    def optimize(self, *, actor: str | None = None, message: str | None = None) -> Any:
        """Refused: it works on storage."""
        only_direct("optimize")

    @verb()
    def cleanup(self, *, keep: int | None = None, older_than: timedelta | None = None) -> Any:
        """Refused: it works on storage."""
        only_direct("cleanup")

    @verb()
    def plan_cleanup(self, *, keep: int | None = None, older_than: timedelta | None = None) -> Any:
        """Refused: it works on storage."""
        only_direct("planning a cleanup")

    @verb()
    def repair(
        self, *, confirm: bool = False, force: bool = False, discard: bool = False, message: str | None = None
    ) -> Any:
        """Refused: it works on storage."""
        only_direct("repair")

    @verb()
    def verify(self) -> Any:
        """Refused: it works on storage."""
        only_direct("verify")

    @verb()
    def unfinished(self) -> Any:
        """Refused: it works on storage."""
        only_direct("listing unfinished writes")
