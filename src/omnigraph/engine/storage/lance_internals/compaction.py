"""Compaction tasks with other fragments, or in other batches, than Lance has planned.

A task travels between processes as JSON; what it says is changed there.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from lance.optimize import CompactionTask


def in_batches(task: CompactionTask, rows: int) -> CompactionTask:
    """The task, reading so many rows at once."""
    document = json.loads(task.json())
    document["options"]["batch_size"] = rows
    return CompactionTask.from_json(json.dumps(document))


def among(task: CompactionTask, fragments: Collection[int]) -> tuple[list[int], CompactionTask]:
    """The numbers of those fragments that a task has of some, ascending, and the task without others.

    Read from its text: as objects, its fragments are translated one by one each time they are asked for.
    """
    document = json.loads(task.json())
    every = document["task"]["fragments"]
    members = [part for part in every if part["id"] in fragments]
    numbers = sorted(int(part["id"]) for part in members)
    if len(members) == len(every) or not members:
        return numbers, task
    document["task"]["fragments"] = members
    return numbers, CompactionTask.from_json(json.dumps(document))
