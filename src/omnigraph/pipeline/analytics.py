"""Measures of whole graphs, computed on DataFrames over one snapshot.

Vertices are numbered once and edges become pairs of numbers; every algorithm is then joins and aggregations over those
pairs, cut off from their history after each round so that plans stay small. Results name entities by type and id, and
can be written back to a property as one commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.outcomes import LoadResult
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import InputError
from omnigraph.pipeline.job import run_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS_MAX = 100


class Frames(Protocol):
    """The types of one snapshot as DataFrames, which is all that algorithms are given."""

    context: GraphContext
    session: SparkSession
    snapshot: Snapshot

    def newest(self, branch: str) -> Frames:
        """The same of the newest state of a branch."""

    def nodes(self, type_name: str, *, columns: Sequence[str] | None = None) -> DataFrame:
        """The nodes of a type."""

    def edges(self, type_name: str, *, columns: Sequence[str] | None = None) -> DataFrame:
        """The edges of a type."""

    def node_type(self, name: str) -> NodeType:
        """The node type of this name."""

    def edge_type(self, name: str) -> EdgeType:
        """The edge type of this name."""


class Analytics:
    """Algorithms over the edges of some types of one snapshot.

    Each returns a DataFrame with `type` and `id` of every vertex and what the algorithm found for it.
    """

    def __init__(self, frames: Frames, edges: Sequence[str] = ()) -> None:
        catalog = frames.context.catalog
        names = list(edges) or sorted(catalog.edges)
        if not names:
            raise InputError("the schema has no edge type to analyse")
        self.frames = frames
        self._types: list[EdgeType] = [frames.edge_type(name) for name in names]
        self._vertices = self._number()
        self._pairs = self._pair()

    # --- the graph as numbers ----------------------------------------------------------------------------------------

    def _number(self) -> DataFrame:
        """Every node of the types the edges touch, with a number."""
        from pyspark.sql import functions as F

        kinds = sorted({name for edge in self._types for name in (edge.source, edge.target)})
        parts = [self.frames.nodes(kind, columns=["id"]).select(F.lit(kind).alias("type"), "id") for kind in kinds]
        every = reduce(lambda left, right: left.unionAll(right), parts)
        return every.withColumn("v", F.monotonically_increasing_id()).localCheckpoint()

    def _pair(self) -> DataFrame:
        """Every edge as the numbers of its source and target."""
        from pyspark.sql import functions as F

        parts = []
        for edge in self._types:
            rows = self.frames.edges(edge.name, columns=["src", "dst"])
            for end, kind, name in (("src", edge.source, "s"), ("dst", edge.target, "t")):
                known = self._vertices.where(F.col("type") == kind).select(
                    F.col("id").alias(end), F.col("v").alias(name)
                )
                rows = rows.join(known, end)
            parts.append(rows.select("s", "t"))
        return reduce(lambda left, right: left.unionAll(right), parts).localCheckpoint()

    def _both_ways(self) -> DataFrame:
        """The pairs without direction: each edge from either end."""
        from pyspark.sql import functions as F

        return self._pairs.unionAll(self._pairs.select(F.col("t").alias("s"), F.col("s").alias("t")))

    def _named(self, found: DataFrame, fill: Mapping[str, int | float]) -> DataFrame:
        """Per vertex what was found for its number; vertices without get the values of `fill`."""
        named = self._vertices.join(found, "v", "left").drop("v")
        return named.fillna(dict(fill)) if fill else named

    # --- measures ----------------------------------------------------------------------------------------------------

    def degrees(self) -> DataFrame:
        """`out_degree`, `in_degree` and `degree` of every vertex; parallel edges count each."""
        from pyspark.sql import functions as F

        out = self._pairs.groupBy(F.col("s").alias("v")).agg(F.count(F.lit(1)).alias("out_degree"))
        into = self._pairs.groupBy(F.col("t").alias("v")).agg(F.count(F.lit(1)).alias("in_degree"))
        named = self._named(out.join(into, "v", "outer"), {"out_degree": 0, "in_degree": 0})
        return named.withColumn("degree", F.col("out_degree") + F.col("in_degree"))

    def degree_statistics(self) -> DataFrame:
        """One row per direction: vertices, edges, least, mean, median, 99th percentile and greatest degree."""
        from pyspark.sql import functions as F

        degrees = self.degrees()
        parts = []
        for name in ("out_degree", "in_degree", "degree"):
            column = F.col(name)
            parts.append(
                degrees.agg(
                    F.lit(name).alias("measure"),
                    F.count(column).alias("vertices"),
                    F.sum(column).alias("total"),
                    F.min(column).alias("least"),
                    F.avg(column).alias("mean"),
                    F.expr(f"percentile({name}, 0.5)").alias("median"),
                    F.expr(f"percentile({name}, 0.99)").alias("p99"),
                    F.max(column).alias("greatest"),
                )
            )
        return reduce(lambda left, right: left.unionAll(right), parts)

    def pagerank(self, *, damping: float = 0.85, rounds: int = 20, tolerance: float | None = None) -> DataFrame:
        """`rank` of every vertex, all of them adding up to 1; vertices without outgoing edges share theirs with all.

        Stops after `rounds`, or earlier once the ranks change by less than `tolerance` in total.
        """
        from pyspark.sql import functions as F

        count = self._vertices.count()
        if count == 0:
            return self._vertices.select("type", "id", F.lit(0.0).alias("rank"))
        outgoing = self._pairs.groupBy("s").agg(F.count(F.lit(1)).alias("outgoing"))
        shares = self._pairs.join(outgoing, "s").localCheckpoint()
        dangling = self._vertices.select("v").join(outgoing, F.col("v") == F.col("s"), "left_anti").localCheckpoint()
        ranks = self._vertices.select("v", F.lit(1.0 / count).alias("rank")).localCheckpoint()
        for _ in range(rounds):
            lost = (
                dangling.join(ranks, "v").agg(F.coalesce(F.sum("rank"), F.lit(0.0)).alias("lost")).collect()[0]["lost"]
            )
            base = (1.0 - damping) / count + damping * lost / count
            received = (
                shares.join(ranks, shares["s"] == ranks["v"])
                .groupBy("t")
                .agg(F.sum(F.col("rank") / F.col("outgoing")).alias("received"))
            )
            fresh = (
                ranks.join(received, ranks["v"] == received["t"], "left")
                .select(
                    "v",
                    (F.lit(base) + damping * F.coalesce("received", F.lit(0.0))).alias("rank"),
                    F.col("rank").alias("old"),
                )
                .localCheckpoint()
            )
            moved = 0.0
            if tolerance is not None:
                moved = fresh.agg(F.sum(F.abs(F.col("rank") - F.col("old"))).alias("moved")).collect()[0]["moved"]
            ranks = fresh.select("v", "rank")
            if tolerance is not None and moved < tolerance:
                break
        return self._named(ranks, {"rank": 0.0})

    def connected_components(self) -> DataFrame:
        """`component` of every vertex: the least vertex number that edges, followed either way, connect it with.

        Each round takes over the least label next door and then the label of that label, so the number of rounds
        grows with the logarithm of the longest path.
        """
        from pyspark.sql import functions as F

        both = self._both_ways().localCheckpoint()
        labels = self._vertices.select("v", F.col("v").alias("label")).localCheckpoint()
        for _ in range(ROUNDS_MAX):
            near = both.join(labels, both["t"] == labels["v"]).groupBy("s").agg(F.min("label").alias("near"))
            least = labels.join(near, labels["v"] == near["s"], "left").select(
                "v", F.col("label").alias("old"), F.least("label", F.coalesce("near", "label")).alias("label")
            )
            least = least.localCheckpoint()
            above = least.select(F.col("v").alias("label"), F.col("label").alias("above"))
            fresh = (
                least.join(above, "label")
                .select("v", "old", F.least("label", "above").alias("label"))
                .localCheckpoint()
            )
            labels = fresh.select("v", "label")
            if not fresh.where("label < old").take(1):
                break
        return self._named(labels.select("v", F.col("label").alias("component")), {})

    def label_propagation(self, *, rounds: int = 10) -> DataFrame:
        """`community` of every vertex: each round it takes over the label most neighbours have, the least on ties."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        both = self._both_ways().localCheckpoint()
        labels = self._vertices.select("v", F.col("v").alias("label")).localCheckpoint()
        first = Window.partitionBy("s").orderBy(F.desc("votes"), F.asc("label"))
        for _ in range(rounds):
            votes = (
                both.join(labels, both["t"] == labels["v"]).groupBy("s", "label").agg(F.count(F.lit(1)).alias("votes"))
            )
            won = (
                votes.withColumn("place", F.row_number().over(first))
                .where("place = 1")
                .select("s", F.col("label").alias("won"))
            )
            fresh = labels.join(won, labels["v"] == won["s"], "left").select(
                "v", F.col("label").alias("old"), F.coalesce("won", "label").alias("label")
            )
            fresh = fresh.localCheckpoint()
            labels = fresh.select("v", "label")
            if not fresh.where("label != old").take(1):
                break
        return self._named(labels.select("v", F.col("label").alias("community")), {})

    def shortest_paths(
        self, sources: Sequence[str], *, type_name: str | None = None, directed: bool = True, hops_max: int = ROUNDS_MAX
    ) -> DataFrame:
        """`distance` in edges from the nearest of `sources` (ids of `type_name`) to every vertex it can reach."""
        from pyspark.sql import functions as F

        start_type = type_name or self._types[0].source
        pairs = (self._pairs if directed else self._both_ways()).distinct().localCheckpoint()
        chosen = (F.col("type") == start_type) & F.col("id").isin(list(sources))
        reached = self._vertices.where(chosen).select("v", F.lit(0).alias("distance")).localCheckpoint()
        frontier = reached
        for hops in range(1, hops_max + 1):
            next_door = pairs.join(frontier, pairs["s"] == frontier["v"]).select(F.col("t").alias("v")).distinct()
            frontier = next_door.join(reached, "v", "left_anti").withColumn("distance", F.lit(hops)).localCheckpoint()
            if not frontier.take(1):
                break
            reached = reached.unionAll(frontier).localCheckpoint()
        return self._vertices.join(reached, "v").drop("v")

    def triangle_counts(self) -> DataFrame:
        """`triangles` each vertex is part of, direction, loops and parallel edges left aside.

        Edges point from the vertex of lower degree to that of higher degree, so a hub starts few of the paths that
        have to be closed.
        """
        from pyspark.sql import functions as F

        plain = self._both_ways().where("s != t").distinct().localCheckpoint()
        degree = plain.groupBy("s").agg(F.count(F.lit(1)).alias("degree"))
        source = degree.select("s", F.struct("degree", "s").alias("source_order"))
        target = degree.select(F.col("s").alias("t"), F.struct("degree", F.col("s").alias("s")).alias("target_order"))
        pointed = plain.join(source, "s").join(target, "t").where("source_order < target_order").select("s", "t")
        pointed = pointed.localCheckpoint()
        paths = pointed.alias("x").join(pointed.alias("y"), F.col("x.s") == F.col("y.s")).where("x.t < y.t")
        ends = paths.select(F.col("x.s").alias("a"), F.col("x.t").alias("b"), F.col("y.t").alias("c"))
        closing = plain.select(F.col("s").alias("b"), F.col("t").alias("c"))
        corners = ends.join(closing, ["b", "c"]).select(F.explode(F.array("a", "b", "c")).alias("v"))
        return self._named(corners.groupBy("v").agg(F.count(F.lit(1)).alias("triangles")), {"triangles": 0})

    # --- writing back ------------------------------------------------------------------------------------------------

    def write_back(
        self,
        found: DataFrame,
        column: str,
        type_name: str,
        prop: str,
        *,
        branch: str = "main",
        actor: str | None = None,
        message: str | None = None,
    ) -> LoadResult:
        """Store a result column in a property of a node type: one commit, every other property as it is by then.

        Raises:
            PreconditionFailedError: somebody else wrote to the branch at that moment; nothing changed, do it again.
        """
        from pyspark.sql import functions as F

        node = self.frames.node_type(type_name)
        if prop not in node.properties:
            raise InputError(f"'{prop}' is not a property of {type_name}")
        if column not in found.columns:
            raise InputError(f"the result has no column '{column}'")
        values = found.where(F.col("type") == type_name).select("id", F.col(column).alias(prop))
        # The nodes may have changed while the algorithm ran, and whole rows are written.
        newest = self.frames.newest(branch)
        rows = newest.nodes(type_name).drop(prop).join(values, "id")
        return run_job(
            self.frames.context,
            {f"node:{type_name}": rows},
            mode="merge",
            branch=branch,
            actor=actor,
            message=message,
            spark=self.frames.session,
            if_commit=newest.snapshot.head,
        )
