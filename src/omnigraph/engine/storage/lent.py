"""Files of a table's main line that its branches refer to.

A branch is given whole files of main by reference, by a merge or where a commit is undone, and these need not be files
of the version it was made from. Lance asks what a branch refers to only when it is told to remove that version; where
that version stays, Lance takes it for all that the branch needs of main.
"""

from __future__ import annotations

from collections.abc import Collection

from omnigraph.engine.storage.lance_internals.files import DATA, branch_location
from omnigraph.engine.storage.orphans import files_of
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.translate import translated
from omnigraph.errors import StorageError


def lenders(store: TableStore, path: str, doomed: Collection[int]) -> set[int]:
    """Those of the versions of main that must stay: without them a file would go that a branch refers to.

    A file is looked for in the versions that stay anyway, then in the newest of the others.
    """
    lent = _lent(store, path) if doomed else set()
    found: set[int] = set()
    for version in sorted(store.versions(path), key=lambda each: (each in doomed, -each)) if lent else ():
        held = lent & _files(store, path, None, version)
        if held and version in doomed:
            found.add(version)
        lent -= held
        if not lent:
            break
    return found


def _lent(store: TableStore, path: str) -> set[str]:
    """The data files of main that any version of a branch has and the version it was made from has not."""
    found: set[str] = set()
    for branch, (_, point) in store.fork_points(path).items():
        try:
            dataset = store.open(path, branch=branch).dataset
            with translated(f"listing the versions of {path}"), step("list_versions", path):
                versions = [int(each["version"]) for each in dataset.versions()]
            files = {version: _files(store, path, branch, version) for version in versions}
        except StorageError:
            if store.branch_mark(path, branch) is not None:
                raise
            continue  # It was deleted since the branches were listed, and refers to nothing any more.
        found |= set().union(*files.values()) - files.get(point, set())
    return {file for file in found if file.startswith(f"{path}/{DATA}/")}


def _files(store: TableStore, path: str, branch: str | None, version: int) -> set[str]:
    """The files that a version refers to; of those outside of the root only the name is known, so main may have it."""
    dataset = store.open(path, branch=branch, version=version).dataset
    places, outside = files_of(store, dataset, branch_location(path, branch))
    return places | {f"{path}/{DATA}/{name}" for name in outside}
