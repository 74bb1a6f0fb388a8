"""The set questions answered by Spark, as joins.

Staged rows are read back from the fragments themselves, so what is checked is what would be committed. Nothing is
collected but violations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.engine.ingest.staged import POSITION, Staged, StagedLoad
from omnigraph.engine.rules.questions import NONE, SHOWN_MAX, Answers
from omnigraph.engine.rules.statement import NOWHERE, Answer, Degree, End, Identity, Unique
from omnigraph.ids import TableKey, node_key
from omnigraph.pipeline.frames import staged_frame, table_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BROADCAST_ROWS_MAX = 2_000_000


class SparkQuestions:
    """The questions about one load."""

    def __init__(self, session: SparkSession, load: StagedLoad, *, shown_max: int = SHOWN_MAX) -> None:
        self._session, self._load, self._shown_max = session, load, shown_max
        self.read: set[TableKey] = set()
        """Tables of the snapshot the verdict depends on."""

    @property
    def changed(self) -> Sequence[TableKey]:
        """The tables of the load."""
        return sorted(self._load.staged)

    def repeated(self, rule: Unique) -> Answers:
        """Groups the rows by their values and compares with the first of each group; joins them with what stays."""
        from pyspark.sql import functions as F

        key, values = rule.entity.table_key, _numbered(rule.columns)
        rows = self._pending(key, rule.columns, names=values).dropna(subset=values)
        first = rows.groupBy(*values).agg(F.count(F.lit(1)).alias("times"), F.min(POSITION).alias("first"))
        twice = first.where("times > 1").drop("times")
        found = NONE
        if twice.limit(1).collect():
            found = self._collect(rows.join(twice, values).where(F.col(POSITION) > F.col("first")), values)
        if isinstance(rule, Identity) or not self._load.stays(key):
            return found
        holders = self._published(key, ["id", *rule.columns], names=["id", *values]).dropna(subset=values)
        if self._load.replaces:
            holders = holders.join(self._pending(key, ("id",)).select("id"), "id", "left_anti")
        held = rows.join(holders.select(*values).distinct(), values, "left_semi")
        return found + self._collect(held, values)

    def taken(self, rule: Identity) -> Answer | None:
        """Joins the ids with those that are there."""
        from pyspark.sql import functions as F

        key = rule.entity.table_key
        taken = self._pending(key, ("id",)).join(self._ids(key), "id", "left_semi")
        first = taken.orderBy(F.col(POSITION)).limit(1).collect()
        return Answer(first[0][POSITION], (first[0]["id"],)) if first else None

    def missing(self, ends: Sequence[End]) -> Answers:
        """Looks both ends up in one pass; of an edge that misses both, the first is told."""
        from pyspark.sql import functions as F

        rows = self._pending(ends[0].edge.table_key, [end.column for end in ends])
        number: Column = F.lit(None)
        for at, end in reversed(list(enumerate(ends))):
            nodes, count = self._nodes(end.node_type)
            has = f"has_{end.column}"
            known = nodes.select(F.col("id").alias(end.column), F.lit(True).alias(has))
            known = F.broadcast(known) if count <= BROADCAST_ROWS_MAX else known
            rows = rows.join(known, end.column, "left")
            number = F.when(F.col(has).isNull(), F.lit(at)).otherwise(number)
        wrong = rows.withColumn("end", number).where("end is not null")
        node = F.coalesce(*(F.when(F.col("end") == at, F.col(end.column)) for at, end in enumerate(ends)))
        return self._collect(wrong.withColumn("node", node), ("end", "node"))

    def orphaned(self, end: End) -> Answers:
        """Joins the edges that stay with the nodes that are there afterwards."""
        from pyspark.sql import functions as F

        nodes, _ = self._nodes(end.node_type)
        kept = self._published(end.edge.table_key, ["id", "src", "dst"])
        gone = kept.join(nodes.select(F.col("id").alias(end.column)), end.column, "left_anti")
        return self._collect(gone.withColumn(POSITION, F.lit(NOWHERE)), ("id", end.column))

    def _nodes(self, type_name: str) -> tuple[DataFrame, int]:
        """The ids of a node type once the load is done, and about how many they are."""
        key = node_key(type_name)
        stays = self._load.stays(key)
        if key not in self._load.staged:
            return self._ids(key), stays
        pending, rows = self._pending(key, ("id",)).select("id"), self._load.staged_rows(key)
        if not stays:
            return pending, rows
        both = pending.union(self._ids(key))
        return (both.distinct() if self._load.replaces else both), rows + stays

    def miscounted(self, rule: Degree) -> Answers:
        """Counts edges by source, those that come in and those that stay."""
        from pyspark.sql import functions as F

        key = rule.edge.table_key
        rows = self._pending(key, ("id", "src")).select("src", POSITION, F.lit(1).alias("edges"))
        rows = rows.withColumn("touched", F.lit(True))
        if self._load.stays(key):
            rows = rows.unionByName(self._surviving(self._load.staged[key]))
        counts = rows.groupBy("src").agg(
            F.sum("edges").alias("edges"), F.min(POSITION).alias(POSITION), F.bool_or("touched").alias("touched")
        )
        bad = counts.where(F.col("touched") & rule.is_broken(F.col("edges")))
        return self._collect(bad.withColumn(POSITION, F.coalesce(F.col(POSITION), F.lit(NOWHERE))), ("src", "edges"))

    def _surviving(self, staged: Staged) -> DataFrame:
        """Committed edges by source: those that stay count, those that are replaced only make their source touched."""
        from pyspark.sql import functions as F

        key = staged.entity.table_key
        committed = self._published(key, ["id", "src"])
        replaced: Column = F.lit(False)
        if self._load.replaces and staged.ids_given:
            incoming = self._pending(key, ("id",)).select("id", F.lit(True).alias("replaced"))
            committed = committed.join(incoming, "id", "left")
            replaced = F.coalesce(F.col("replaced"), F.lit(False))
        return committed.select(
            "src",
            F.lit(None).cast("long").alias(POSITION),
            F.when(replaced, 0).otherwise(1).alias("edges"),
            replaced.alias("touched"),
        )

    def _collect(self, bad: DataFrame, values: Sequence[str]) -> Answers:
        """The first violations by position, and how many there are; a rule that holds costs one job."""
        from pyspark.sql import functions as F

        rows = bad.orderBy(F.col(POSITION)).limit(self._shown_max + 1).collect()
        count = len(rows) if len(rows) <= self._shown_max else bad.count()
        shown = [Answer(row[POSITION], tuple(row[name] for name in values)) for row in rows[: self._shown_max]]
        return Answers(shown, count)

    def _pending(self, key: TableKey, columns: Sequence[str], *, names: Sequence[str] | None = None) -> DataFrame:
        staged = self._load.staged[key]
        target = staged.target
        return staged_frame(self._session, staged.fragments, target.uri, target.schema, list(columns), names=names)

    def _published(self, key: TableKey, columns: Sequence[str], *, names: Sequence[str] | None = None) -> DataFrame:
        self.read.add(key)
        return table_frame(self._session, self._load.committed[key][0], list(columns), names=names)

    def _ids(self, key: TableKey) -> DataFrame:
        return self._published(key, ["id"])


def _numbered(group: Sequence[str]) -> list[str]:
    """What the columns of a group are called in a frame: to Spark `aB` is `ab`, and a check has names of its own."""
    return [f"value_{number}" for number in range(len(group))]
