"""Close a graph: give back what this process keeps for it, once nobody has it open any more.

Memory, threads and notes belong to a root and are shared by all handles of it, so they go with the last one. What is
not closed is kept until the process ends, within the bounds of each cache.
"""

from __future__ import annotations

from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.lease import KEEPER
from omnigraph.engine.storage.cache import SHARED
from omnigraph.engine.storage.memory import return_memory
from omnigraph.engine.storage.opened import open_handles
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.written import WRITTEN


def forget_unless_open(root: str) -> None:
    """Give back what is kept for a root that no handle has open, and with the last root what is kept for all."""
    if open_handles(root):
        return
    Heartbeat.leave(root)
    TableStore.close_root(root)
    if not open_handles():
        KEEPER.rest()
        # What is left is of earlier states; nobody is there to ask for it.
        SHARED.clear()
        WRITTEN.clear()
        return_memory()
