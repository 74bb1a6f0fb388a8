"""Files of a table that no version refers to.

A write that was refused, or whose process died before its commit, leaves data and deletion files behind. They are found
in two steps, because whether they are nobody's has to be asked in between: `list_files` says what is there, and
`unreferenced` which of that no version of any branch knows.
"""

from __future__ import annotations

from collections.abc import Mapping

import lance

from omnigraph.engine.storage.layout import branch_location
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.translate import translated
from omnigraph.errors import StorageError

_DATA, _DELETIONS = "data", "_deletions"


def list_files(store: TableStore, path: str) -> dict[str, int]:
    """The data and deletion files of a table and its branches: path below the root, and size."""
    found = {}
    for branch in [None, *store.table_branches(path)]:
        place = branch_location(path, branch)
        for folder in (_DATA, _DELETIONS):
            for entry in store.objects.entries(f"{place}/{folder}"):
                name = str(entry["path"]).rpartition("/")[2]
                found[f"{place}/{folder}/{name}"] = int(entry["size"])
    return found


def unreferenced(store: TableStore, path: str, files: Mapping[str, int]) -> dict[str, int]:
    """Those of the files that no version refers to, the newest versions first: usually they know them all.

    Names are unique, so a file counts as known wherever a version looks for it.
    """
    left = dict(files)
    for branch in [None, *store.table_branches(path)]:
        try:
            left = _unknown_to(store, path, branch, left)
        except StorageError:
            if branch is None or store.branch_mark(path, branch) is not None:
                raise  # Otherwise it was deleted since they were listed, and refers to nothing any more.
    return left


def _unknown_to(store: TableStore, path: str, branch: str | None, files: Mapping[str, int]) -> dict[str, int]:
    left = dict(files)
    dataset = store.open(path, branch=branch).dataset
    with translated(f"listing the versions of {path}"), step("list_versions", path):
        versions = sorted((int(each["version"]) for each in dataset.versions()), reverse=True)
    for version in versions:
        if not left:
            return {}
        known = _names(
            dataset if version == dataset.version else store.open(path, branch=branch, version=version).dataset
        )
        left = {name: size for name, size in left.items() if name.rpartition("/")[2] not in known}
    return left


def remove_files(store: TableStore, files: Mapping[str, int]) -> None:
    """Remove data and deletion files, and the blobs that lie beside a data file."""
    for name in sorted(files):
        folder = name.removesuffix(".lance")
        if folder != name and store.objects.entries(folder):
            store.objects.delete_prefix(folder)
        store.objects.delete(name)


def _names(dataset: lance.LanceDataset) -> set[str]:
    """The names of the files one version refers to."""
    found: set[str] = set()
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        found.update(str(file.path).rpartition("/")[2] for file in metadata.files)
        if metadata.deletion_file is not None:
            found.add(metadata.deletion_file.path(metadata.id).rpartition("/")[2])
    return found
