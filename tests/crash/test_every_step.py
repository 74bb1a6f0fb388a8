"""Every writer, crashed before and after every storage operation it performs, leaves its write whole or not at all.

Lost acknowledgements run always. Refusals, outages and kills, each in a process of its own, are marked long.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.everywhere import Record, crash_everywhere
from tests.crash.writes import (
    LOADS,
    MUTATIONS,
    ON_A_BRANCH,
    SCHEMAS,
    CreateBranch,
    DeleteBranch,
    Open,
    Optimize,
    Repair,
)

from omnigraph.engine.storage.staged import stage_changes
from omnigraph.graph import connect
from omnigraph.ids import TableKey
from omnigraph.testing.crash import Write, copy_graph
from omnigraph.testing.faults import Fault

WRITES: dict[str, Write] = {**MUTATIONS, **LOADS}
QUICK = (Fault.RAISE_AFTER,)
FAULTS = [pytest.param(fault, marks=() if fault in QUICK else pytest.mark.long) for fault in Fault]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_survives(name: str, fault: Fault, seeded: Path, scratch: Path, record_property: Record) -> None:
    crash_everywhere(WRITES[name], seeded, scratch, fault, record_property)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ON_A_BRANCH)
def test_a_write_on_a_branch_survives(
    name: str, fault: Fault, branched: Path, scratch: Path, record_property: Record
) -> None:
    crash_everywhere(ON_A_BRANCH[name], branched, scratch, fault, record_property)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_creation_of_a_branch_survives(fault: Fault, seeded: Path, scratch: Path, record_property: Record) -> None:
    crash_everywhere(CreateBranch(), seeded, scratch, fault, record_property)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_deletion_of_a_branch_survives(
    fault: Fault, diverged: Path, scratch: Path, record_property: Record
) -> None:
    crash_everywhere(DeleteBranch(), diverged, scratch, fault, record_property)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_change_of_the_schema_survives(
    name: str, fault: Fault, seeded: Path, scratch: Path, record_property: Record
) -> None:
    crash_everywhere(SCHEMAS[name], seeded, scratch, fault, record_property)


@pytest.mark.parametrize("fault", FAULTS)
def test_maintenance_survives(fault: Fault, seeded: Path, scratch: Path, record_property: Record) -> None:
    crash_everywhere(Optimize(), seeded, scratch, fault, record_property)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_writer_that_only_publishes_survives(
    fault: Fault, seeded: Path, scratch: Path, record_property: Record
) -> None:
    drifted = scratch / "drifted"
    context = connect(copy_graph(seeded, drifted)).context
    base = context.store.open(context.manifest.snapshot().entry(TableKey("node:Company")).path)
    staged = stage_changes(base, new_rows=base.schema.empty_table().from_pydict({"id": ["x"], "name": ["x"]}))
    assert staged is not None
    context.store.commit(base, staged, {})
    crash_everywhere(Repair(), drifted, scratch, fault, record_property, open_heals=False)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "where", ["after some tables", "after all tables", "after the publish", "after all tables of an overwrite"]
)
def test_recovery_itself_survives(
    where: str, fault: Fault, interrupted: dict[str, Path], scratch: Path, record_property: Record
) -> None:
    crash_everywhere(Open(), interrupted[where], scratch, fault, record_property)
