"""What a server serves: its graphs with their stored queries, who may reach them, and where the work is done."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field

from omnigraph.errors import GraphError
from omnigraph.graph import Graph
from omnigraph.server.access import Access
from omnigraph.server.metrics import Metrics
from omnigraph.server.requests_seen import RequestsSeen, Room
from omnigraph.server.settings import Settings
from omnigraph.server.stored import StoredQueries
from omnigraph.server.work import Work

_log = logging.getLogger("omnigraph.server")


class Served(Struct, frozen=True, dict=True):
    """One graph."""

    graph_id: str
    graph: Graph
    queries: StoredQueries = field(default_factory=StoredQueries)

    @property
    def uri(self) -> str:
        """Where the graph is stored."""
        return self.graph.uri

    @cached_property
    def groups_writes(self) -> bool:
        """Whether writes of a branch that come at the same moment are published together."""
        return self.graph.context.queues is not None

    def is_readable(self) -> bool:
        """Whether the newest state of the graph can be read at this moment."""
        try:
            self.graph.snapshot()
        except GraphError as exc:
            _log.warning("graph '%s' cannot be read: %s", self.graph_id, exc)
            return False
        return True


class ServerState(Struct, frozen=True, dict=True):
    """Everything the routes work with."""

    graphs: Mapping[str, Served]
    access: Access
    settings: Settings
    work: Work
    metrics: Metrics

    @cached_property
    def requests(self) -> Mapping[str, RequestsSeen]:
        """The requests with a key that were answered, by graph."""
        room = Room(self.settings.keys_max, self.settings.keys_bytes_max)
        return {name: RequestsSeen(served.graph.context.store.objects, room) for name, served in self.graphs.items()}
