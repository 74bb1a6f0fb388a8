"""Many small fragments become one, and every row keeps its id and its versions.

A rewritten fragment takes the number of one it replaces. Lance derives the row versions of fragments with new numbers
from the commit that adds them, which would make every folded row look updated; a fragment that keeps its number is
taken as it is given. Only a number that no index covers will do, and where there is none the fragment gets a new one:
then its rows keep their ids and look updated, which readers of changes see through by comparing values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask, RewriteResult

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
class Rewrite:
    """Fragments that hold the rows of others: `kept` under a replaced number, `added` under new ones."""

    kept: list[FragmentMetadata] = field(default_factory=list)
    added: list[FragmentMetadata] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)

    @property
    def replaced(self) -> set[int]:
        """The numbers of all fragments whose rows moved."""
        return {fragment.id for fragment in self.kept} | set(self.removed)

    @property
    def written(self) -> list[FragmentMetadata]:
        """The fragments whose files are new."""
        return [*self.kept, *self.added]

    def take(self, base: TableHandle, done: RewriteResult) -> None:
        """Add the outcome of one rewrite task."""
        originals = [int(fragment.id) for fragment in done.original_fragments]
        fresh = list(done.new_fragments)
        bound_row_versions(base, originals, fresh)
        numbers = _numbers(base, originals)[: len(fresh)]
        for fragment, number in zip(fresh, numbers, strict=False):
            fragment.id = number
            self.kept.append(fragment)
        self.added.extend(fresh[len(numbers) :])
        self.removed.extend(sorted(set(originals) - set(numbers)))


def _numbers(base: TableHandle, originals: Sequence[int]) -> list[int]:
    """The numbers a rewritten fragment may take: those no index covers.

    An index ignores what it knows about rows of a covered fragment that is gone, so those rows must be scanned, and a
    fragment is scanned only if its number is not covered.
    """
    return sorted(set(originals).difference(*(index.fragment_ids for index in base.indexes())))


def fold_small(base: TableHandle, touched: Iterable[int]) -> Rewrite:
    """Fold runs of small fragments that the write does not touch itself, once there are many of them."""
    rewrite = Rewrite()
    busy = set(touched)
    small = {f.id for f in base.fragments() if f.physical_rows < FOLD_ROWS and f.id not in busy}
    if len(small) < FOLD_FRAGMENTS:
        return rewrite
    options = {"target_rows_per_fragment": FOLD_ROWS, "materialize_deletions": False, "num_threads": 1}
    with translated(f"folding small fragments of {base.path}"):
        for task in Compaction.plan(base.dataset, options).tasks:
            run = _without(task, keep=small)
            if run is None:
                continue
            with step("fold_fragments", base.path):
                rewrite.take(base, run.execute(base.dataset))
    return rewrite


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
