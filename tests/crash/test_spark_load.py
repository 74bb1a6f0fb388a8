"""A load on Spark, crashed at every storage operation of its driver, leaves its rows whole or not at all.

Executors only write files that nobody references; everything that can be seen is done by the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import SPARK_SETTINGS
from tests.crash.test_every_step import crash_everywhere
from tests.crash.writes import CHANGED, PEOPLE, WHOLE

from omnigraph import failpoints
from omnigraph.engine.recovery import audit
from omnigraph.graph import Graph, connect
from omnigraph.testing.crash import baseline, check_recovered, copy_graph, crash_at_failpoint
from omnigraph.testing.faults import Fault

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.usefixtures("spark")]

DATA = {"append": PEOPLE, "merge": CHANGED, "overwrite": WHOLE}


@dataclass(frozen=True)
class SparkLoad:
    """A load on Spark, in the session of its process."""

    source: str
    mode: str

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        from omnigraph.pipeline.session import obtain_session

        session = obtain_session(master="local[2]", conf=SPARK_SETTINGS)
        graph.load(self.source, mode=self.mode, engine="spark", spark=session, actor="act-bob", durability="fast")


def spark_load(scratch: Path, mode: str) -> SparkLoad:
    source = scratch / f"{mode}.jsonl"
    source.write_bytes(DATA[mode])
    return SparkLoad(str(source), mode)


@pytest.mark.parametrize(
    ("mode", "fault"),
    [(mode, Fault.RAISE_AFTER) for mode in DATA] + [("append", Fault.RAISE_BEFORE)],
)
def test_a_load_on_spark_survives_failing_storage(
    mode: str, fault: Fault, seeded: Path, scratch: Path, record_property: Callable[[str, object], None]
) -> None:
    crash_everywhere(spark_load(scratch, mode), seeded, scratch, fault, record_property)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        (failpoints.MUTATION_POST_STAGE, False),
        (failpoints.MUTATION_POST_TABLE_COMMIT, False),
        (failpoints.MUTATION_POST_FINALIZE, True),
        (failpoints.PUBLISH_AFTER_COMMIT, True),
    ],
)
def test_a_load_on_spark_survives_the_death_of_its_driver(name: str, counts: bool, seeded: Path, scratch: Path) -> None:
    write = spark_load(scratch, "append")
    base = baseline(write, seeded, scratch)
    root = copy_graph(seeded, scratch / "graph")
    assert crash_at_failpoint(write, root, f"{name}=exit", timeout_seconds=300)
    check_recovered(root, (base.once if counts else base.before,))
    assert len(audit.rows(connect(root).context.store)) == (name != failpoints.MUTATION_POST_STAGE)
