"""Going forward along a branch: the commits that came after one, oldest first.

Commits know their parents and not their children, so going forward takes a way back. From the newest commit it is short
for whoever is nearly up to date, and on a branch, which is seldom long. On main, which may be very long, the versions
of the manifest tell: the commits right after one have the next numbers.
"""

from __future__ import annotations

from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.errors import InputError

SPAN_FACTOR = 2
"""How many versions are looked at for each commit that is wanted: some versions have none."""


def following(manifest: Manifest, position: CommitRecord, branch: str, count: int) -> list[CommitRecord]:
    """Up to `count` commits of a branch's line of first parents that came right after one of them, oldest first.

    Raises:
        InputError: the commit is not on that line.
    """
    newer: list[CommitRecord] = []
    window = manifest.snapshot(branch).state.commits
    for commit in manifest.history.line(branch):
        if commit.graph_commit_id == position.graph_commit_id:
            return newer[::-1][:count]
        on_main = commit.manifest_branch is None
        if on_main and position.manifest_branch is None and commit.manifest_version <= position.manifest_version:
            break  # Main has one commit of each version, so it cannot come any more.
        if on_main and position.manifest_branch is None and commit.graph_commit_id not in window:
            found = _forward_on_main(manifest, position, commit.manifest_version, count)
            if found is not None:
                return [*found, *newer[::-1]][:count] if found[-1:] == [commit] else found
        newer.append(commit)
    raise InputError(
        f"commit {position.graph_commit_id} is not in the history of '{branch}' itself, only merged into it"
    )


def _forward_on_main(manifest: Manifest, position: CommitRecord, upto: int, count: int) -> list[CommitRecord] | None:
    """The commits of main after one, up to a version; None when some on the way are missing from the commit table."""
    span, found = count * SPAN_FACTOR, [position]
    reached = position.manifest_version
    while len(found) <= count and reached < upto:
        end = min(reached + span, upto)
        archived = manifest.history.archived(
            f"manifest_branch IS NULL AND manifest_version > {reached} AND manifest_version <= {end}"
        )
        for commit in sorted(archived.values(), key=lambda each: each.order):
            if commit.parent_commit_id != found[-1].graph_commit_id:
                return None
            found.append(commit)
        reached, span = end, span * 2
    return found[1 : count + 1]
