"""Driver processes that share one JVM: each is a driver of its own, and none has to start Spark.

What a load or a merge makes visible is done by the Python process of its driver. So a process that attaches to the
Spark context of a JVM that is running already, and then is killed, leaves exactly what a killed driver leaves, some
seconds sooner.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.conftest import SPARK_SETTINGS

from omnigraph import connect
from omnigraph.choices import Engine
from omnigraph.graph import Graph
from omnigraph.ids import MAIN
from omnigraph.pipeline.session import obtain_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Jvm:
    """How another process reaches the JVM of a session."""

    port: int
    secret: str

    @classmethod
    def of(cls, session: SparkSession) -> Jvm:
        reached = session.sparkContext._gateway.java_parameters  # type: ignore[union-attr]
        return cls(int(reached.port), str(reached.auth_token))

    def attach(self) -> SparkSession:
        """A session of this process on the one Spark context of the JVM, which its first process has anyway."""
        from pyspark import SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            return active
        os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(self.port), self.secret
        gateway = launch_gateway()
        running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        context = SparkContext(
            gateway=gateway, jsc=gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(running)
        )
        return SparkSession(context)


@dataclass(frozen=True)
class SparkLoad:
    """A load on Spark, by a driver that attaches itself or has a session of its own; repeated by the local engine."""

    source: str
    mode: str
    jvm: Jvm | None = None

    def run(self, root: str) -> None:
        session = self.jvm.attach() if self.jvm is not None else obtain_session(master="local[2]", conf=SPARK_SETTINGS)
        connect(root).load(
            self.source, mode=self.mode, engine="spark", spark=session, actor="act-bob", durability="fast"
        )

    def again(self, graph: Graph) -> None:
        graph.load(self.source, mode=self.mode, engine="local", actor="act-bob", durability="fast")


@dataclass(frozen=True)
class SparkMerge:
    """A merge on Spark, by a driver that attaches itself or has a session of its own; repeated by the local engine."""

    jvm: Jvm | None = None
    source: str = "review"
    into: str = MAIN
    strategy: str = "theirs"

    def run(self, root: str) -> None:
        self.attach()
        self._merge(connect(root), "spark")

    def again(self, graph: Graph) -> None:
        self._merge(graph, "local")

    def attach(self) -> None:
        """Have a session, which a merge finds by itself."""
        if self.jvm is not None:
            self.jvm.attach()
        else:
            obtain_session(master="local[2]", conf=SPARK_SETTINGS)

    def _merge(self, graph: Graph, engine: Engine) -> None:
        how = {"strategy": self.strategy, "actor": "act-mia", "engine": engine}
        result = graph.branches.merge(self.source, self.into, **how)  # type: ignore[arg-type]
        assert result.commit_id is None or result.plan.engine == engine
