"""The files and folders that Lance keeps for a table, by the names it gives them.

Knowing the names spares opening a table to see whether a version is there, and listing all refs to learn of one. The
guards are in tests/substrate/test_files.py.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from lance.fragment import DataFile

DATA, DELETIONS, INDICES, TRANSACTIONS, VERSIONS = "data", "_deletions", "_indices", "_transactions", "_versions"
TABLE_FOLDERS = (DATA, DELETIONS, INDICES, TRANSACTIONS, VERSIONS)
"""What lies in the folder of a table or branch, in the order of removal: what makes it one goes last."""
BRANCH_REFS = "_refs/branches"
"""Where the refs of a table lie, below it."""
TAG_REFS = "_refs/tags"
BRANCH_TREE = "tree"
"""Where the files of a table's branches lie, below it, each in a folder of the branch's name."""

_SUFFIX = ".manifest"
_U64 = (1 << 64) - 1


@lru_cache(maxsize=256)
def version_file(version: int) -> str:
    """The file of a version, below the folder of its table or branch."""
    return f"{VERSIONS}/{_U64 - version:020d}{_SUFFIX}"


def detached_version_file(version: int) -> str:
    """The file of a version that is on no branch."""
    return f"{VERSIONS}/d{version}{_SUFFIX}"


def version_of(path: str) -> int | None:
    """The version that a file holds; None for what is no version of a branch."""
    number = path.rpartition("/")[2].removesuffix(_SUFFIX)
    return _U64 - int(number) if number.isdigit() else None


def branch_location(location: str, branch: str | None) -> str:
    """Where the files of a table's branch lie, given the location of the table or of that branch."""
    if branch is None:
        return location
    suffix = f"/{BRANCH_TREE}/{branch}"
    return location if location.endswith(suffix) else location + suffix


def table_location(location: str, branch: str | None) -> str:
    """Where a table lies, given the location of one of its branches."""
    return location if branch is None else location.removesuffix(f"/{BRANCH_TREE}/{branch}")


def branch_ref(path: str, branch: str) -> str:
    """The file by which Lance knows a branch of a table; each creation of a branch writes it anew."""
    return f"{path}/{BRANCH_REFS}/{quote(branch, safe='')}.json"


def data_file(name: str) -> str:
    """A data file, below the folder of its table or branch."""
    return f"{DATA}/{name}"


def file_name(file: DataFile) -> str:
    """The name of a data file.

    Its public property makes a class each time it is asked, so the value behind it is taken while there is one.
    """
    return getattr(file, "_path", None) or str(file.path)
