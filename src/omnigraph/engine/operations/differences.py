"""Comparing states of a graph by name: two branches or commits, or a commit and the one before it."""

from __future__ import annotations

from collections.abc import Collection

from omnigraph.engine.changes import Diff, Op, Values, diff
from omnigraph.engine.changes.diff import State, Wanted, check_types
from omnigraph.engine.manifest.lineage import merge_bases
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import BranchNotFoundError, ChangesUnavailableError, ConflictError, InputError, InternalError
from omnigraph.ids import MAIN, Moment, parse_branch

KINDS = ("node", "edge")


def wanted_changes(types: Collection[str] = (), kinds: Collection[str] = (), ops: Collection[str] = ()) -> Wanted:
    """What somebody wants to hear of, from its spellings.

    Raises:
        InputError: a kind is not `node` or `edge`, or an op not `insert`, `update` or `delete`.
    """
    for given, known, what in ((kinds, KINDS, "kind"), (ops, tuple(Op), "op")):
        for name in given:
            if name not in known:
                raise InputError(f"'{name}' is none of the {what}s of changes: write {' or '.join(known)}")
    return Wanted(frozenset(types), frozenset(kinds), frozenset(Op(name) for name in ops))


def told_values(name: str) -> Values:
    """How much of a change is told, from its spelling.

    Raises:
        InputError: it is not `none`, `changed` or `full`.
    """
    if name not in tuple(Values):
        raise InputError(f"values are 'none', 'changed' or 'full', not '{name}'")
    return Values(name)


def compare(context: GraphContext, older: Moment, newer: Moment, wanted: Wanted, values: Values) -> Diff:
    """What it takes to get from one state to another; each is a branch, or a moment of the past of main.

    Raises:
        NotFoundError: there is no such state.
        InputError: a type that is asked for is in neither schema.
    """
    return _compared(named_state(context, older), named_state(context, newer), wanted, values)


def branch_changes(context: GraphContext, source: str, into: str, wanted: Wanted, values: Values) -> Diff:
    """What a branch has changed since it and another one parted.

    Raises:
        BranchNotFoundError: there is no such branch.
        ConflictError: merges between them have crossed, so that they parted at several commits.
    """
    theirs, ours = (context.manifest.snapshot(parse_branch(name)) for name in (source, into))
    if theirs.head is None or ours.head is None:
        raise InternalError(f"'{source}' or '{into}' has no commit")
    bases = merge_bases(context.manifest, theirs.head, ours.head, near=(theirs, ours))
    if len(bases) > 1:
        raise ConflictError(
            f"merges between '{source}' and '{into}' have crossed, so they parted at {len(bases)} commits:"
            " compare their newest states instead"
        )
    base = _state(context, context.manifest.history.snapshot_at(bases[0]), past=True)
    return _compared(base, _state(context, theirs, past=False), wanted, values)


def commit_changes(context: GraphContext, commit_id: str, wanted: Wanted, values: Values) -> Diff:
    """What one commit changed, against the commit before it on its branch.

    Raises:
        CommitNotFoundError: there is no such commit.
        ChangesUnavailableError: it has no parent, or it changed the schema.
    """
    history = context.manifest.history
    commit = history.commit_at(commit_id)
    if commit.parent_commit_id is None:
        raise ChangesUnavailableError(
            f"commit {commit.graph_commit_id} is the first one: there is nothing before it to compare with",
            reason="parentless_commit",
            graph_commit_id=commit.graph_commit_id,
        )
    older = _state(context, history.snapshot_at(commit.parent_commit_id), past=True)
    newer = _state(context, history.snapshot_at(commit.graph_commit_id), past=True)
    if older.catalog.schema_hash != newer.catalog.schema_hash:
        raise ChangesUnavailableError(
            f"commit {commit.graph_commit_id} changed the schema: compare the two states with diff instead",
            reason="schema_boundary",
            graph_commit_id=commit.graph_commit_id,
        )
    return _compared(older, newer, wanted, values)


def named_state(context: GraphContext, name: Moment) -> State:
    """The state of a branch, or a moment of the past of main; a branch comes first."""
    if isinstance(name, str):
        try:
            return _state(context, context.manifest.snapshot(parse_branch(name)), past=False)
        except (BranchNotFoundError, InputError):
            # Not a branch, so it has to be something in the past.
            return _state(context, context.manifest.history.snapshot_at(name, MAIN), past=True)
    return _state(context, context.manifest.history.snapshot_at(name, MAIN), past=True)


def _compared(older: State, newer: State, wanted: Wanted, values: Values) -> Diff:
    check_types(older.catalog, newer.catalog, wanted.types)
    return diff(older, newer, wanted=wanted, values=values)


def _state(context: GraphContext, snapshot: Snapshot, *, past: bool) -> State:
    return State(snapshot, context.catalog_of(snapshot, past=past))
