"""Structured Streaming into a graph: one commit per micro-batch, exactly once.

Spark repeats a micro-batch when it cannot know whether it ended, with the same number and the same rows. Every commit
therefore records the name of its stream and the number of its batch; a batch whose number is in the history is done
and is not loaded again. A write that a crash cut short is finished by recovery with the same record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.engine.ingest.entities import entity_of
from omnigraph.engine.ingest.sources import ColumnMap
from omnigraph.engine.operations.open import open_graph
from omnigraph.engine.recovery import heal
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import ExpectedVersionMismatchError, InputError
from omnigraph.ids import MAIN, check_text, parse_branch
from omnigraph.pipeline.job import MODES, run_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

STREAM, BATCH = "omnigraph.stream", "omnigraph.batch"
RECENT_COMMITS = 64


def write_stream(
    context: GraphContext,
    stream: DataFrame,
    *,
    name: str,
    checkpoint: str,
    type_name: str | None = None,
    mode: str = "append",
    branch: str = MAIN,
    actor: str | None = None,
    columns: ColumnMap | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start loading a stream: rows of `type_name`, or JSON lines in a column `value` when it is None.

    `name` identifies the stream in the history of the branch and must stay the same across restarts, as must
    `checkpoint`, where Spark keeps how far it has read. `trigger` is what Spark's `trigger` takes.

    Raises:
        InputError: the mode or type is not one there is.
    """
    if mode not in MODES or mode == "overwrite":
        raise InputError(f"a stream is loaded with append, merge or update, not '{mode}'")
    check_text(name, "the name of a stream")
    if type_name is not None:
        entity_of(type_name, context.catalog)
    target = parse_branch(branch)
    author = context.admit("change", actor, branch=target)
    sink = BatchSink(context, name, type_name, mode, target, author, dict(columns or {}))
    writer = stream.writeStream.queryName(name).foreachBatch(sink.load).option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()


ATTEMPTS = 5
"""Updates of a batch are judged against what they read, as mutations are; others may write between."""


class BatchSink:
    """Loads the micro-batches of one stream; a batch that is in the history already is passed over.

    A Spark Connect server runs it in a process of its own, where it opens the graph anew.
    """

    def __init__(
        self,
        context: GraphContext,
        name: str,
        type_name: str | None,
        mode: str,
        branch: str,
        actor: str | None,
        columns: ColumnMap,
    ) -> None:
        self._context, self._name, self._type = context, name, type_name
        self._mode, self._branch, self._actor, self._columns = mode, branch, actor, columns
        self._done: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_context": self._context.root, "_done": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._context = open_graph(TableStore.at(state["_context"]))

    def load(self, batch: DataFrame, number: int) -> None:
        """Load one micro-batch, unless it is loaded already."""
        if self._done is None:
            # A crash may have left this very batch half done; only after recovery does the history tell.
            heal(self._context.recovery)
            self._done = last_batch(self._context, self._branch, self._name)
        if number <= self._done:
            return None
        for _ in range(ATTEMPTS - 1):
            try:
                return self._run(batch, number)
            except ExpectedVersionMismatchError:
                continue  # Others wrote first, and nothing changed: the batch is read again on what is there now.
        return self._run(batch, number)

    def _run(self, batch: DataFrame, number: int) -> None:
        run_job(
            self._context,
            batch if self._type is None else {self._type: batch},
            mode=self._mode,
            branch=self._branch,
            actor=self._actor,
            columns={self._type: self._columns} if self._type and self._columns else None,
            spark=batch.sparkSession,
            properties={STREAM: self._name, BATCH: str(number)},
            unless=lambda: last_batch(self._context, self._branch, self._name) >= number,
        )
        self._done = number


def last_batch(context: GraphContext, branch: str, name: str) -> int:
    """The number of the newest batch of a stream in a branch's history, -1 when there is none."""
    looked_at = 0
    while True:
        # A stream that runs has committed a moment ago, so most of the history is rarely looked at.
        limit = max(RECENT_COMMITS, looked_at * 8)
        commits = context.manifest.history.list(branch, limit=limit)
        for commit in commits[looked_at:]:
            if commit.properties.get(STREAM) == name:
                return int(commit.properties[BATCH])
        if len(commits) < limit:
            return -1
        looked_at = len(commits)
