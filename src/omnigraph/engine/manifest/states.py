"""The states of a graph as those see them who look for one: what `History` needs to know of the manifest."""

from __future__ import annotations

from typing import Protocol

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage.tables import TableStore


class States(Protocol):
    """Gives the states of every branch, as the manifest does."""

    store: TableStore

    def snapshot(self, branch: str = ..., *, version: int | None = None) -> Snapshot:
        """The newest state of a branch, or an earlier one."""
        ...

    def snapshots(self) -> list[Snapshot]:
        """The newest state of every branch, main first."""
        ...

    def leave_replaced(self) -> None:
        """Forget a graph that another was put in the place of."""
        ...

    def branches(self) -> list[str]:
        """Every public branch, main first."""
        ...
