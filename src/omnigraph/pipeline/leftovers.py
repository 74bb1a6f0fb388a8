"""Staged files that will certainly never be referenced are removed at once; all others are left to `cleanup`.

Certain are the files of a load that was refused before it had armed anything, and those a merge has rewritten once the
merge is published. Attempts of tasks that did not count left files nobody knows the names of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from omnigraph.engine.storage.fragments import fragment_files
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import GraphError
from omnigraph.ids import TableKey
from omnigraph.pipeline.stage import StageOutcome, Target

_log = logging.getLogger(__name__)


def discard_outcome(store: TableStore, outcome: StageOutcome, targets: dict[TableKey, Target]) -> None:
    """Remove everything a refused load has staged."""
    for key, fragments in outcome.fragments.items():
        discard(store, targets[key], (name for each in fragments for name in fragment_files(each.text)))


def discard(store: TableStore, target: Target, names: Iterable[str]) -> None:
    """Remove files below a table; trouble here is logged, because `cleanup` removes them as well."""
    folder = target.uri.removeprefix("file://").removeprefix(store.root).strip("/")
    for name in names:
        try:
            store.objects.delete(f"{folder}/{name}")
        except GraphError as exc:
            _log.warning("the staged file %s/%s could not be removed: %s", folder, name, exc)
            return
