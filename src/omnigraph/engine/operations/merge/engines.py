"""Which engine a merge runs on: this process, or workers elsewhere; both give the same commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from omnigraph.engine.ingest.choice import EngineChoice, choose_by_rows
from omnigraph.errors import ExecutionError, InputError

if TYPE_CHECKING:
    from omnigraph.engine.operations.merge.progress import Watch
    from omnigraph.engine.operations.merge.workers import Workers


class MergeEngine(Protocol):
    """An engine with workers of its own, as a merge needs it."""

    @property
    def is_installed(self) -> bool:
        """Whether it can be used at all."""

    def merge_workers(self, watch: Watch) -> Workers:
        """Its workers; starts it if need be, and says so."""


class EngineQuestion(Struct, frozen=True):
    """What the caller of a merge says about its engine."""

    engine: str = "auto"
    bulk: MergeEngine | None = None

    def __post_init__(self) -> None:
        if self.engine not in ("auto", "local", "spark"):
            raise InputError(f"an engine is 'auto', 'local' or 'spark', not '{self.engine}'")

    def choose(self, rows: int, watch: Watch) -> tuple[EngineChoice, Workers | None]:
        """The engine for a merge whose largest table has so many rows to look at, and its workers.

        Raises:
            ExecutionError: Spark was asked for, and the graph was opened without it, or it does not start.
        """
        installed = self.bulk is not None and self.bulk.is_installed
        choice = EngineChoice(self.engine, "it was asked for")
        if self.engine == "auto":
            choice = choose_by_rows(rows, spark_installed=installed)
        if choice.engine == "local":
            return choice, None
        if self.bulk is None:
            raise ExecutionError("this graph was opened without Spark: open it with omnigraph.connect")
        return choice, self.bulk.merge_workers(watch)
