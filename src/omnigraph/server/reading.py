"""Which state a read is meant to see, and whether its caller may see it."""

from __future__ import annotations

from omnigraph.ids import MAIN
from omnigraph.server.access import State
from omnigraph.server.call import Call, named_branch
from omnigraph.server.errors import HttpRefusal


async def readable(call: Call, branch: str | None, snapshot: str | None, action: str) -> tuple[str, str | None]:
    """The branch and the moment of a read, once the caller may do this to it.

    A snapshot belongs to a branch, and its policy is that branch's.

    Raises:
        HttpRefusal: 400 for both, 403.
        CommitNotFoundError: there is no such snapshot.
    """
    if branch is not None and snapshot is not None:
        raise HttpRefusal(400, "branch and snapshot exclude each other: pass one of them")
    if snapshot is None:
        name = named_branch(branch)
        call.demand(action, branch=name)
        return name, None
    if call.state.access.state is not State.POLICY:
        call.demand(action)
        return MAIN, snapshot
    found = await call.read(lambda: call.graph.snapshot(MAIN, snapshot))
    call.demand(action, branch=found.branch)
    return found.branch, snapshot
