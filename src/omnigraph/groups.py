"""The verbs of a graph that belong together, by the name of their group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from omnigraph.change_verbs import ChangeVerbs
from omnigraph.engine.operations.bulk import BulkEngine
from omnigraph.engine.write.context import GraphContext
from omnigraph.verbs import BranchVerbs, HistoryVerbs, MaintenanceVerbs, SchemaVerbs, TagVerbs


class Groups(ABC):
    """What every opened graph offers besides its own verbs."""

    _bulk: BulkEngine | None

    @property
    @abstractmethod
    def context(self) -> GraphContext:
        """What operations work with."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True when the graph was closed."""

    @cached_property
    def branches(self) -> BranchVerbs:
        """The branches of the graph."""
        return BranchVerbs(self, self._bulk)

    @cached_property
    def history(self) -> HistoryVerbs:
        """The commits of the graph."""
        return HistoryVerbs(self)

    @cached_property
    def tags(self) -> TagVerbs:
        """The tags of the graph."""
        return TagVerbs(self)

    @cached_property
    def schema(self) -> SchemaVerbs:
        """The accepted schema of the graph."""
        return SchemaVerbs(self)

    @cached_property
    def maintenance(self) -> MaintenanceVerbs:
        """Keeping the graph fast, small and sound."""
        return MaintenanceVerbs(self)

    @cached_property
    def changes(self) -> ChangeVerbs:
        """What happens on the graph, for whoever follows."""
        return ChangeVerbs(self)
