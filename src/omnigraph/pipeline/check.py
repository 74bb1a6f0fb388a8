"""The rules that hold across rows, asked of Spark as joins.

The same questions as the engine's validator, in the same order and the same words: uniqueness, then references, then
cardinality; the first kind that is broken is reported. Staged rows are read back from the fragments themselves, so
what is checked is what would be committed. Nothing is collected but violations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.engine.staging import wording
from omnigraph.ids import TableKey, node_key
from omnigraph.pipeline.frames import POSITION, TableAt, staged_frame, table_frame
from omnigraph.pipeline.stage import StagedFragment, Target

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SHOWN_MAX = 20
BROADCAST_ROWS_MAX = 2_000_000

Entity = NodeType | EdgeType


@dataclass(frozen=True)
class Found:
    """A broken rule: the table and position of the staged row to blame (-1: none is), and the sentence."""

    table_key: TableKey
    position: int
    message: str


@dataclass
class Findings:
    """Violations of one kind: some of them in full, and how many there are.

    `conflict` is an id that had to be new and is taken, its text in place of a sentence; it goes before all others.
    """

    shown: list[Found] = field(default_factory=list)
    count: int = 0
    conflict: Found | None = None

    def add(self, found: Sequence[Found], count: int) -> None:
        """Take over the violations of one rule."""
        self.shown += found
        self.count += count


@dataclass(frozen=True)
class Staged:
    """One table's part of the load, before it is published."""

    entity: Entity
    target: Target
    fragments: tuple[StagedFragment, ...]
    committed: TableAt
    committed_rows: int

    @property
    def rows(self) -> int:
        """Staged rows."""
        return sum(fragment.rows for fragment in self.fragments)

    @property
    def keyed(self) -> bool:
        """True when a key decides the ids."""
        return isinstance(self.entity, NodeType) and bool(self.entity.key)

    @property
    def ids_given(self) -> bool:
        """True when the input decides some ids, so that two of them can meet."""
        return self.keyed or any(fragment.supplied_ids for fragment in self.fragments)


class SetChecks:
    """The checks of one load; `staged` has every table the input names, `committed` every table of the snapshot."""

    def __init__(
        self,
        session: SparkSession,
        catalog: Catalog,
        staged: Mapping[TableKey, Staged],
        committed: Mapping[TableKey, tuple[TableAt, int]],
        mode: str,
        *,
        shown_max: int = SHOWN_MAX,
    ) -> None:
        self._session = session
        self._catalog = catalog
        self._staged = staged
        self._committed = committed
        self._mode = mode
        self._shown_max = shown_max
        self.read: set[TableKey] = set()
        """Tables of the snapshot the verdict depends on."""

    def replace(self, staged: Mapping[TableKey, Staged]) -> None:
        """Go on with other staged rows."""
        self._staged = staged

    def kinds(self) -> Iterator[tuple[str, Callable[[], Findings]]]:
        """The kinds of rules in the order in which they are reported."""
        yield "uniqueness", self._uniqueness
        yield "references", self._references
        yield "cardinality", self._cardinality

    # --- uniqueness --------------------------------------------------------------------------------------------------

    def _uniqueness(self) -> Findings:
        findings = Findings()
        for key, staged in sorted(self._staged.items()):
            if not staged.rows:
                continue
            if staged.ids_given and (staged.keyed or self._mode != "merge"):
                findings.add(*self._repeats(staged, ("id",), self._duplicate_word(staged)))
            if staged.ids_given and self._mode == "append" and staged.committed_rows and not findings.count:
                findings.conflict = self._taken_id(key, staged)
                if findings.conflict is not None:
                    return findings
            for group in unique_groups(staged.entity):
                word = _unique_word(staged.entity, group)
                findings.add(*self._repeats(staged, group, word))
                if self._mode != "overwrite" and staged.committed_rows:
                    findings.add(*self._taken(staged, group, word))
        return findings

    @staticmethod
    def _duplicate_word(staged: Staged) -> Callable[[Any], str]:
        word = wording.duplicate_key if staged.keyed else wording.duplicate_id
        return lambda row: word(staged.entity, row["id"])

    def _repeats(self, staged: Staged, group: tuple[str, ...], word: Callable[[Any], str]) -> tuple[list[Found], int]:
        """Rows whose complete tuple an earlier row of the input has."""
        from pyspark.sql import functions as F

        rows = self._pending(staged, group).dropna(subset=list(group))
        first = rows.groupBy(*group).agg(F.count(F.lit(1)).alias("times"), F.min(POSITION).alias("first"))
        twice = first.where("times > 1").drop("times")
        if not twice.limit(1).collect():
            return [], 0
        later = rows.join(twice, list(group)).where(F.col(POSITION) > F.col("first"))
        return self._collect(staged.entity.table_key, later, word)

    def _taken_id(self, key: TableKey, staged: Staged) -> Found | None:
        """The first staged row whose id must be new and is taken."""
        from pyspark.sql import functions as F

        taken = self._pending(staged, ("id",)).join(self._ids(key), "id", "left_semi")
        first = taken.orderBy(F.col(POSITION)).limit(1).collect()
        return Found(key, first[0][POSITION], first[0]["id"]) if first else None

    def _taken(self, staged: Staged, group: tuple[str, ...], word: Callable[[Any], str]) -> tuple[list[Found], int]:
        """Rows whose tuple a different entity holds that stays as it is."""
        key = staged.entity.table_key
        holders = self._published(key, ["id", *group]).dropna(subset=list(group))
        if self._mode == "merge":
            holders = holders.join(self._pending(staged, ("id",)).select("id"), "id", "left_anti")
        rows = self._pending(staged, group).dropna(subset=list(group))
        return self._collect(key, rows.join(holders.select(*group).distinct(), list(group), "left_semi"), word)

    # --- references --------------------------------------------------------------------------------------------------

    def _references(self) -> Findings:
        findings = Findings()
        for _, staged in sorted(self._staged.items()):
            entity = staged.entity
            if isinstance(entity, EdgeType):
                if staged.rows:
                    findings.add(*self._missing_ends(entity, staged))
            elif self._mode == "overwrite":
                for edge in self._catalog.edges_touching(entity.name):
                    if edge.table_key not in self._staged:
                        findings.add(*self._orphans(entity, edge))
        return findings

    def _missing_ends(self, edge: EdgeType, staged: Staged) -> tuple[list[Found], int]:
        """Edges with an end that is no node once the load is done; both ends are looked up in one pass."""
        from pyspark.sql import functions as F

        rows = self._pending(staged, ("src", "dst"))
        for end, type_name in (("src", edge.source), ("dst", edge.target)):
            nodes, count = self._nodes(type_name)
            known = nodes.select(F.col("id").alias(end), F.lit(True).alias(f"has_{end}"))
            known = F.broadcast(known) if count <= BROADCAST_ROWS_MAX else known
            rows = rows.join(known, end, "left")
        missing = rows.where("has_src is null or has_dst is null")

        def word(row: Any) -> str:
            end, type_name = ("src", edge.source) if row["has_src"] is None else ("dst", edge.target)
            return wording.missing_end(edge, end, row[end], type_name)

        return self._collect(edge.table_key, missing, word)

    def _orphans(self, node: NodeType, edge: EdgeType) -> tuple[list[Found], int]:
        """Edges that stay while the node they name disappears with the old content of its table."""
        from pyspark.sql import functions as F

        found: list[Found] = []
        total = 0
        for end, type_name in (("src", edge.source), ("dst", edge.target)):
            if type_name != node.name or not self._committed[edge.table_key][1]:
                continue
            nodes, _ = self._nodes(node.name)
            kept = self._published(edge.table_key, ["id", "src", "dst"])
            gone = kept.join(nodes.select(F.col("id").alias(end)), end, "left_anti").withColumn(POSITION, F.lit(-1))
            shown, count = self._collect(edge.table_key, gone, _orphan_word(edge, end, node))
            found, total = [*found, *shown], total + count
        return found, total

    def _nodes(self, type_name: str) -> tuple[DataFrame, int]:
        """The ids of a node type once the load is done, and about how many they are."""
        key = node_key(type_name)
        staged = self._staged.get(key)
        committed_rows = self._committed[key][1]
        if staged is None:
            return self._ids(key), committed_rows
        pending = self._pending(staged, ("id",)).select("id")
        if self._mode == "overwrite" or not committed_rows:
            return pending, staged.rows
        both = pending.union(self._ids(key))
        return (both.distinct() if self._mode == "merge" else both), staged.rows + committed_rows

    # --- cardinality -------------------------------------------------------------------------------------------------

    def _cardinality(self) -> Findings:
        findings = Findings()
        for _, staged in sorted(self._staged.items()):
            edge = staged.entity
            if isinstance(edge, EdgeType) and not edge.cardinality.is_default and staged.rows:
                findings.add(*self._miscounted(edge, staged))
        return findings

    def _miscounted(self, edge: EdgeType, staged: Staged) -> tuple[list[Found], int]:
        """Sources the load touches that end up with too many or too few edges."""
        from pyspark.sql import functions as F

        rows = self._pending(staged, ("id", "src")).select("src", POSITION, F.lit(1).alias("edges"))
        rows = rows.withColumn("touched", F.lit(True))
        if self._mode != "overwrite" and staged.committed_rows:
            rows = rows.unionByName(self._surviving(edge, staged))
        counts = rows.groupBy("src").agg(
            F.sum("edges").alias("edges"), F.min(POSITION).alias(POSITION), F.bool_or("touched").alias("touched")
        )
        wrong: Column = F.col("edges") < edge.cardinality.low
        if edge.cardinality.high is not None:
            wrong = wrong | (F.col("edges") > edge.cardinality.high)
        bad = counts.where(F.col("touched") & wrong).withColumn(POSITION, F.coalesce(F.col(POSITION), F.lit(-1)))
        return self._collect(edge.table_key, bad, lambda row: wording.cardinality(edge, row["src"], row["edges"]))

    def _surviving(self, edge: EdgeType, staged: Staged) -> DataFrame:
        """Committed edges by source: those that stay count, those that are replaced only make their source touched."""
        from pyspark.sql import functions as F

        committed = self._published(edge.table_key, ["id", "src"])
        replaced: Column = F.lit(False)
        if self._mode == "merge" and staged.ids_given:
            incoming = self._pending(staged, ("id",)).select("id", F.lit(True).alias("replaced"))
            committed = committed.join(incoming, "id", "left")
            replaced = F.coalesce(F.col("replaced"), F.lit(False))
        return committed.select(
            "src",
            F.lit(None).cast("long").alias(POSITION),
            F.when(replaced, 0).otherwise(1).alias("edges"),
            replaced.alias("touched"),
        )

    def _collect(self, key: TableKey, bad: DataFrame, word: Callable[[Any], str]) -> tuple[list[Found], int]:
        """The first violations by position, and how many there are; a rule that holds costs one job."""
        from pyspark.sql import functions as F

        rows = bad.orderBy(F.col(POSITION)).limit(self._shown_max + 1).collect()
        count = len(rows) if len(rows) <= self._shown_max else bad.count()
        return [Found(key, row[POSITION], word(row)) for row in rows[: self._shown_max]], count

    # --- rows --------------------------------------------------------------------------------------------------------

    def _pending(self, staged: Staged, columns: Sequence[str]) -> DataFrame:
        names = list(dict.fromkeys(columns))
        return staged_frame(self._session, staged.fragments, staged.target.uri, staged.target.schema, names)

    def _published(self, key: TableKey, columns: Sequence[str]) -> DataFrame:
        self.read.add(key)
        return table_frame(self._session, self._committed[key][0], list(dict.fromkeys(columns)))

    def _ids(self, key: TableKey) -> DataFrame:
        return self._published(key, ["id"])


def unique_groups(entity: Entity) -> list[tuple[str, ...]]:
    """The `@unique` groups that are not the key itself, whose uniqueness is that of ids."""
    key = entity.key if isinstance(entity, NodeType) else ()
    return [group for group in entity.unique if tuple(sorted(group)) != tuple(sorted(key))]


def _unique_word(entity: Entity, group: tuple[str, ...]) -> Callable[[Any], str]:
    return lambda row: wording.unique(entity, group, tuple(row[name] for name in group))


def _orphan_word(edge: EdgeType, end: str, node: NodeType) -> Callable[[Any], str]:
    return lambda row: wording.orphan(edge, row["id"], end, row[end], node.name)
