"""Many small fragments become one, and every row keeps its id and its versions.

A rewritten fragment takes the number of one it replaces. Lance derives the row versions of fragments with new numbers
from the commit that adds them, which would make every folded row look updated; a fragment that keeps its number is
taken as it is given. A number that an index covers will not do, because the index would vouch for rows it has never
seen under it; so fragments that an index covers are left to `optimize`, which rewrites them in another way.
"""

from __future__ import annotations

from collections.abc import Iterable

from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask, RewriteResult
from msgspec import Struct, field

from omnigraph.engine.storage import batches
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.lance_internals.compaction import among, in_batches
from omnigraph.engine.storage.lance_internals.row_versions import bound_row_versions
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.translate import translated

# A fragment below this many rows is small, and this many small ones are folded into one by the next write. Commit and
# open cost follow the number of fragments, so folding keeps them flat over any number of small writes.
FOLD_ROWS = 8_192
FOLD_FRAGMENTS = 32
FOLD_RUN = FOLD_FRAGMENTS // 2


class Folded(Struct):
    """Fragments that hold the rows of others, each `kept` under the number of one it replaces."""

    kept: list[FragmentMetadata] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    ahead: bool = False
    """True when it was made before the write that takes it."""

    @property
    def replaced(self) -> set[int]:
        """The numbers of all fragments whose rows moved."""
        return {fragment.id for fragment in self.kept} | set(self.removed)

    def take(self, base: TableHandle, originals: list[int], done: RewriteResult) -> None:
        """Add the outcome of one rewrite of some fragments, given by their numbers, ascending."""
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
        small -= covered_by_index(base)
    if len(small) < FOLD_FRAGMENTS:
        return folded
    options = {"target_rows_per_fragment": FOLD_ROWS, "materialize_deletions": False, "num_threads": 1}
    with translated(f"folding small fragments of {base.path}"):
        for task in Compaction.plan(base.dataset, options).tasks:
            members, run = among(task, small)
            # A run is folded only when it has so many members: otherwise every commit would rewrite the tail again.
            if len(members) < FOLD_RUN:
                continue
            with step("fold_fragments", base.path):
                folded.take(base, members, rewrite(base, run))
    return folded


def rewrite(base: TableHandle, task: CompactionTask) -> RewriteResult:
    """Carry out a compaction task, in batches as small as its rows demand."""

    def run(rows: int) -> RewriteResult:
        if rows == batches.DEFAULT_ROWS:
            return task.execute(base.dataset)
        return in_batches(task, rows).execute(base.dataset)

    return batches.retried(run)


def covered_by_index(base: TableHandle) -> set[int]:
    """The fragments that an index vouches for, which are not folded."""
    covered: set[int] = set()
    return covered.union(*(index.fragment_ids for index in base.indexes()))
