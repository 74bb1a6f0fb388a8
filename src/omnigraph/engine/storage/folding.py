"""Many small fragments become one, and every row keeps its id and its versions.

A rewritten fragment takes the number of one it replaces. Lance derives the row versions of fragments with new numbers
from the commit that adds them, which would make every folded row look updated; a fragment that keeps its number is
taken as it is given. A number that an index covers will not do, because the index would vouch for rows it has never
seen under it; so fragments that an index covers are left to `optimize`, which rewrites them in another way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field

from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask, RewriteResult

from omnigraph.dataclass import dataclass
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.row_versions import bound_row_versions
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.translate import translated

# A fragment below this many rows is small, and this many small ones are folded into one by the next write. Commit and
# open cost follow the number of fragments, so folding keeps them flat over any number of small writes.
FOLD_ROWS = 8_192
FOLD_FRAGMENTS = 32
# A run is folded only when it has this many members: otherwise every commit would rewrite the tail again.
FOLD_RUN = FOLD_FRAGMENTS // 2


@dataclass
class Folded:
    """Fragments that hold the rows of others, each `kept` under the number of one it replaces."""

    kept: list[FragmentMetadata] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)

    @property
    def replaced(self) -> set[int]:
        """The numbers of all fragments whose rows moved."""
        return {fragment.id for fragment in self.kept} | set(self.removed)

    def take(self, base: TableHandle, done: RewriteResult) -> None:
        """Add the outcome of one rewrite task."""
        originals = sorted(int(fragment.id) for fragment in done.original_fragments)
        fresh = list(done.new_fragments)
        bound_row_versions(base, originals, fresh)
        for fragment, number in zip(fresh, originals, strict=False):
            fragment.id = number
        self.kept.extend(fresh)
        self.removed.extend(originals[len(fresh) :])


def fold_small(base: TableHandle, touched: Iterable[int]) -> Folded:
    """Fold runs of small fragments that the write does not touch itself, once there are many of them."""
    folded = Folded()
    busy = set(touched)
    small = {f.id for f in base.fragments() if f.physical_rows < FOLD_ROWS and f.id not in busy}
    if len(small) >= FOLD_FRAGMENTS:
        small = small.difference(*(index.fragment_ids for index in base.indexes()))
    if len(small) < FOLD_FRAGMENTS:
        return folded
    options = {"target_rows_per_fragment": FOLD_ROWS, "materialize_deletions": False, "num_threads": 1}
    with translated(f"folding small fragments of {base.path}"):
        for task in Compaction.plan(base.dataset, options).tasks:
            run = _without(task, keep=small)
            if run is None:
                continue
            with step("fold_fragments", base.path):
                folded.take(base, run.execute(base.dataset))
    return folded


def _without(task: CompactionTask, *, keep: set[int]) -> CompactionTask | None:
    """The task limited to some fragments, or None when too few are left to be worth a rewrite."""
    members = [fragment for fragment in task.fragments if fragment.id in keep]
    if len(members) < FOLD_RUN:
        return None
    if len(members) == len(task.fragments):
        return task
    document = json.loads(task.json())
    document["task"]["fragments"] = [part for part in document["task"]["fragments"] if part["id"] in keep]
    return CompactionTask.from_json(json.dumps(document))
