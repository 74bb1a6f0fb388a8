"""Files of a table that no version refers to.

A write that was refused, or whose process died before its commit, leaves data and deletion files behind. They are found
in two steps, because whether they are nobody's has to be asked in between: `list_files` says what is there, and
`unreferenced` which of that no version of any branch knows.
"""

from __future__ import annotations

from collections.abc import Mapping

import lance

from omnigraph.engine.storage.lance_internals.files import DATA, DELETIONS, branch_location
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.translate import translated
from omnigraph.errors import StorageError


def list_files(store: TableStore, path: str) -> dict[str, int]:
    """The data and deletion files of a table and its branches: path below the root, and size."""
    found = {}
    for branch in [None, *store.table_branches(path)]:
        place = branch_location(path, branch)
        for folder in (DATA, DELETIONS):
            for entry in store.objects.entries(f"{place}/{folder}"):
                name = str(entry["path"]).rpartition("/")[2]
                found[f"{place}/{folder}/{name}"] = int(entry["size"])
    return found


def unreferenced(store: TableStore, path: str, files: Mapping[str, int]) -> dict[str, int]:
    """Those of the files that no version refers to, the newest versions first: usually they know them all.

    A file is known by its place and its name: a merge copies files under the names they have, and a copy that it has
    not lived to commit is nobody's. Where a version looks outside of the root, the name alone counts.
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
        opened = dataset if version == dataset.version else store.open(path, branch=branch, version=version).dataset
        places, names = files_of(store, opened, branch_location(path, branch))
        left = {
            name: size for name, size in left.items() if name not in places and name.rpartition("/")[2] not in names
        }
    return left


def remove_files(store: TableStore, files: Mapping[str, int]) -> None:
    """Remove data and deletion files, and the blobs that lie beside a data file."""
    for name in sorted(files):
        folder = name.removesuffix(".lance")
        if folder != name and store.objects.entries(folder):
            store.objects.delete_prefix(folder)
        store.objects.delete(name)


def files_of(store: TableStore, dataset: lance.LanceDataset, own: str) -> tuple[set[str], set[str]]:
    """The files one version refers to, and the names of those that it looks for outside of the root."""
    bases: dict[int | None, str] = {None: own, **places_below(store, dataset)}
    places: set[str] = set()
    names: set[str] = set()

    def add(base: int | None, folder: str, name: str) -> None:
        if base in bases:
            places.add(f"{bases[base]}/{folder}/{name}")
        else:
            names.add(name)

    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        for file in metadata.files:
            add(file.base_id, DATA, str(file.path).rpartition("/")[2])
        if metadata.deletion_file is not None:
            name = metadata.deletion_file.path(metadata.id).rpartition("/")[2]
            add(metadata.deletion_file.base_id, DELETIONS, name)
    return places, names


def places_below(store: TableStore, dataset: lance.LanceDataset) -> dict[int | None, str]:
    """The places below the root that a version refers to, by the number it knows them by."""
    with translated("reading the bases of a table"):
        known = dataset.base_paths()
    root = _plain(store.root) + "/"
    found: dict[int | None, str] = {}
    for number, base in known.items():
        path = _plain(str(base.path))
        if path.startswith(root):
            found[int(number)] = path.removeprefix(root)
    return found


def _plain(location: str) -> str:
    return location.removeprefix("file://").rstrip("/")
