"""Bringing the work of one branch into another, row by row, as one commit. Start at `merge_branch`.

`look` finds where the branches parted (`virtual` where that is several states) and `plan` decides for every entity that
was changed since; `rules` checks the outcome, `conflicts` says what cannot be decided and `resolutions` what counts
then; `stage` writes it, and `run` makes all of it visible, or nothing.
"""

from omnigraph.engine.operations.merge.conflicts import MergeConflict
from omnigraph.engine.operations.merge.outcome import MergePlan, MergeResult
from omnigraph.engine.operations.merge.run import find_conflicts, merge_branch, plan_merge

__all__ = [
    "MergeConflict",
    "MergePlan",
    "MergeResult",
    "find_conflicts",
    "merge_branch",
    "plan_merge",
]
