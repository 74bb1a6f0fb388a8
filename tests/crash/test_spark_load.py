"""A load on Spark, crashed at every storage operation of its driver, leaves its rows whole or not at all.

Executors only write files that nobody references; everything that can be seen is done by the driver. The drivers that
are killed are processes of their own on the JVM of this one; what is left behind is repeated by the local engine,
which gives the same graph.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.amounts import always_first
from tests.crash.driver import Jvm, SparkLoad
from tests.crash.everywhere import Record, crash_everywhere, faults_and_death
from tests.crash.test_reclaiming import clean, data_files
from tests.crash.writes import CHANGED, GIVEN, PEOPLE, WHOLE

from omnigraph import connect, failpoints
from omnigraph.engine.recovery import audit
from omnigraph.testing.children import run_child
from omnigraph.testing.crash import baseline, check_recovered, content_of, copy_graph, crash_at_failpoint
from omnigraph.testing.faults import Fault, RecordingStore

pytestmark = [pytest.mark.long, pytest.mark.spark]

DATA = {"append": PEOPLE, "merge": CHANGED, "update": GIVEN, "overwrite": WHOLE}
FAULTS = faults_and_death(among=[Fault.RAISE_BEFORE, Fault.RAISE_AFTER])
_GENERATED = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-f]{40,}\b")


def source_of(scratch: Path, mode: str) -> str:
    source = scratch / f"{mode}.jsonl"
    source.write_bytes(DATA[mode])
    return str(source)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mode", always_first(1, ["merge", "append", "update", "overwrite"]))
def test_a_load_on_spark_survives(
    mode: str, fault: Fault | None, spark: Any, seeded: Path, scratch: Path, record_property: Record
) -> None:
    jvm = Jvm.of(spark) if fault is None else None
    crash_everywhere(SparkLoad(source_of(scratch, mode), mode, jvm), seeded, scratch, fault, record_property)


def recorded(write: SparkLoad, root: str, notes: str) -> None:
    """Run a load and note every storage operation of its driver."""
    with RecordingStore() as store:
        write.run(root)
    lines = [f"{step.name} {step.target.removeprefix(root)}" for step in store.seen]
    Path(notes).write_text(_GENERATED.sub("generated", "\n".join(lines)), encoding="utf-8")


@pytest.mark.parametrize("mode", DATA)
def test_a_driver_on_a_shared_jvm_does_exactly_what_any_driver_does(
    mode: str, spark: Any, seeded: Path, scratch: Path
) -> None:
    source = source_of(scratch, mode)
    ordinary, attached = copy_graph(seeded, scratch / "a"), copy_graph(seeded, scratch / "b")
    recorded(SparkLoad(source, mode), ordinary, f"{ordinary}.txt")
    assert run_child(recorded, SparkLoad(source, mode, Jvm.of(spark)), attached, f"{attached}.txt") == 0
    operations = Path(f"{ordinary}.txt").read_text(encoding="utf-8")
    assert Path(f"{attached}.txt").read_text(encoding="utf-8") == operations
    assert operations.count("\ncommit ") >= 3, "two tables and the manifest at least"
    assert content_of(connect(ordinary)) == content_of(connect(attached))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("mode", ["merge", "overwrite"])
def test_repeating_a_load_on_either_engine_gives_the_same_graph(mode: str, seeded: Path, scratch: Path) -> None:
    write = SparkLoad(source_of(scratch, mode), mode)
    base = baseline(write, seeded, scratch)
    root = copy_graph(seeded, scratch / "twice")
    write.run(root)
    write.run(root)
    assert content_of(connect(root)) == base.twice


def test_a_load_on_spark_survives_the_death_of_driver_and_jvm_together(seeded: Path, scratch: Path) -> None:
    write = SparkLoad(source_of(scratch, "append"), "append")
    root = copy_graph(seeded, scratch / "graph")
    before = content_of(connect(root))
    plan = f"{failpoints.MUTATION_POST_TABLE_COMMIT}=exit"
    assert crash_at_failpoint(write, root, plan, timeout_seconds=300)
    check_recovered(root, (before,))
    assert len(audit.rows(connect(root).context.store)) == 1


@pytest.mark.parametrize("mode", DATA)
def test_what_executors_wrote_for_a_driver_that_was_killed_is_reclaimed_at_once(
    mode: str, spark: Any, seeded: Path, scratch: Path
) -> None:
    graph = connect(copy_graph(seeded, scratch / "graph"))
    before, content = data_files(graph), content_of(graph)
    write = SparkLoad(source_of(scratch, mode), mode, Jvm.of(spark))
    assert crash_at_failpoint(write, graph.uri, f"{failpoints.MUTATION_POST_STAGE}=exit")
    left = data_files(graph) - before
    assert left
    assert clean(graph) == len(left)
    assert data_files(graph) == before
    check_recovered(graph.uri, (content,))
    write.run(graph.uri)
