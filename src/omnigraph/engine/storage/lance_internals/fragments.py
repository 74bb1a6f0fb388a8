"""The fragments of a version as the library below Lance's Python has them.

The public list makes an object around each of them first, which every commit would pay for every fragment there is.
The guard is in tests/substrate/test_files.py.
"""

from __future__ import annotations

from typing import Protocol

from lance import LanceDataset
from lance.fragment import FragmentMetadata


class BareFragment(Protocol):
    """What is asked of one."""

    def id(self) -> int:
        """Its number."""

    def metadata(self) -> FragmentMetadata:
        """All that the version says of it."""

    def deletion_file(self) -> str | None:
        """The file of its deleted rows, below the table."""


def bare_fragments(dataset: LanceDataset) -> list[BareFragment]:
    """The fragments of a version in scan order."""
    found: list[BareFragment] = dataset._ds.get_fragments()
    return found
