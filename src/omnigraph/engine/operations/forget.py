"""Remove states of the graph that cannot be read any more.

Every commit writes the manifest anew, so a graph has as many manifests as it has had commits. Once cleanup has removed
a version of a table, no state that had it can be read again. Versions only grow, so these states are the oldest ones,
up to a point that a few looks find. The commits themselves stay: their lineage is in the commit table.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta

from omnigraph.engine.manifest.lineage import live_bases
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.residual import CleanupStats
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import NotFoundError
from omnigraph.ids import MAIN

YOUNG = timedelta(hours=1)
"""No state younger than this is removed: whoever has looked at the newest one a moment ago goes on from its number."""


def forget_unreadable_states(context: GraphContext) -> CleanupStats:
    """Remove the manifests of main that name versions of tables that are gone.

    What a tag names stays, and so does what a branch was created at, because it reads that manifest's file.
    """
    store = context.store
    settled = datetime.now(UTC) - YOUNG
    newest = context.manifest.snapshot(MAIN).version
    times = store.version_times(layout.MANIFEST)
    tagged = {tag.manifest_version for tag in context.manifest.history.tags.list() if tag.manifest_branch is None}
    kept = {*tagged, *_parted(context)}
    kept |= {*store.tags(layout.MANIFEST).values(), *store.branch_points(layout.MANIFEST).values()}
    # What is kept stays readable although later states are not, so it has no place in a search for the first that is.
    old = [v for v in sorted(times) if times[v] < settled and v < newest and v not in kept]
    doomed = old[: bisect_left(old, True, key=lambda version: _is_readable(context, version))]
    if not doomed:
        return CleanupStats(0, 0)
    # The commits that only the manifest has are put where all the others are, should anything go wrong with it.
    context.manifest.history.project(MAIN)
    return store.residual.cleanup_versions(layout.MANIFEST, versions=doomed)


def _parted(context: GraphContext) -> set[int]:
    """The states of main that merges between branches are compared with."""
    found = set()
    for commit in live_bases(context.manifest):
        try:
            record = context.manifest.history.find(commit)
        except NotFoundError:
            continue  # It was on a branch that is gone, and no state of main.
        if record.manifest_branch is None:
            found.add(record.manifest_version)
    return found


def _is_readable(context: GraphContext, version: int) -> bool:
    try:
        entries = context.manifest.snapshot(MAIN, version=version).entries
    except NotFoundError:
        return False
    return all(context.store.has_version(entry.path, entry.branch, entry.version) for entry in entries.values())
