"""Every writer, crashed before and after every storage operation it performs, leaves its write whole or not at all.

Lost acknowledgements of mutations and loads always run; what else `make test` runs is marked long, and the rest is
exhaustive, which CI runs as well. Some writes of each kind, those in `WHOLE`, are crashed at operations that only look,
too; with `--thorough` all are.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.crash.everywhere import Record, cases_of, crash_everywhere, faults_and_death
from tests.crash.writes import (
    LOADS,
    MERGES,
    MUTATIONS,
    ON_A_BRANCH,
    REVERTS,
    SCHEMAS,
    TOGETHER,
    CreateBranch,
    DeleteBranch,
    Open,
    Optimize,
    Repair,
    TakeOffSettings,
)

from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.write.settings import tables_with_removal
from omnigraph.graph import connect
from omnigraph.ids import TableKey
from omnigraph.testing.children import run_child
from omnigraph.testing.crash import Write, copy_graph, deaths
from omnigraph.testing.failpoints import CRASH_EXIT_CODE
from omnigraph.testing.faults import Fault, FaultyStore

WRITES: dict[str, Write] = {**MUTATIONS, **LOADS, **TOGETHER}
MERGING: dict[str, Write] = {**MERGES, **REVERTS}
WHOLE = frozenset(
    {
        "insert nodes and an edge",
        "load merge",
        "first write on a branch",
        "fast-forward main to a branch",
        "after some tables",
        "after all tables",
    }
)
CHOSEN = frozenset(
    {
        "several writes together",
        "merge a branch into its sibling",
        "apply a schema with steps of every kind",
        "between the commits of a merge",
    }
)
FAULTS = faults_and_death()
REFUSED = faults_and_death(always=[Fault.RAISE_BEFORE, Fault.RAISE_AFTER])
INTERRUPTED = (
    "after some tables",
    "after all tables",
    "after the publish",
    "after all tables of an overwrite",
    "between the commits of a merge",
    "after the confirmation of a merge",
)
"""Where the write ended that recovery finishes or undoes."""
CASES = ("name", "fault", "every")


@pytest.mark.parametrize(CASES, cases_of(WRITES, whole=WHOLE, chosen=CHOSEN, quick=[Fault.RAISE_AFTER]))
def test_a_write_survives(
    name: str,
    fault: Fault | None,
    every: bool,
    seeded: Path,
    scratch: Path,
    record_property: Record,
    thorough: bool,
) -> None:
    crash_everywhere(WRITES[name], seeded, scratch, fault, record_property, every=every, thorough=thorough)


@pytest.mark.parametrize(CASES, cases_of(ON_A_BRANCH, whole=WHOLE, chosen=CHOSEN))
def test_a_write_on_a_branch_survives(
    name: str,
    fault: Fault | None,
    every: bool,
    branched: Path,
    scratch: Path,
    record_property: Record,
    thorough: bool,
) -> None:
    crash_everywhere(ON_A_BRANCH[name], branched, scratch, fault, record_property, every=every, thorough=thorough)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_creation_of_a_branch_survives(
    fault: Fault | None, seeded: Path, scratch: Path, record_property: Record, thorough: bool
) -> None:
    crash_everywhere(CreateBranch(), seeded, scratch, fault, record_property, thorough=thorough)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_deletion_of_a_branch_survives(
    fault: Fault | None, diverged: Path, scratch: Path, record_property: Record, thorough: bool
) -> None:
    crash_everywhere(DeleteBranch(), diverged, scratch, fault, record_property, thorough=thorough)


@pytest.mark.parametrize(CASES, cases_of(MERGING, whole=WHOLE, chosen=CHOSEN))
def test_a_merge_survives(
    name: str,
    fault: Fault | None,
    every: bool,
    to_merge: dict[str, Path],
    scratch: Path,
    record_property: Record,
    thorough: bool,
) -> None:
    crash_everywhere(MERGING[name], to_merge[name], scratch, fault, record_property, every=every, thorough=thorough)


@pytest.mark.parametrize(CASES, cases_of(SCHEMAS, whole=WHOLE, chosen=CHOSEN))
def test_a_change_of_the_schema_survives(
    name: str,
    fault: Fault | None,
    every: bool,
    seeded: Path,
    scratch: Path,
    record_property: Record,
    thorough: bool,
) -> None:
    crash_everywhere(SCHEMAS[name], seeded, scratch, fault, record_property, every=every, thorough=thorough)


@pytest.mark.parametrize("fault", REFUSED)
def test_maintenance_survives(
    fault: Fault | None, seeded: Path, scratch: Path, record_property: Record, thorough: bool
) -> None:
    crash_everywhere(Optimize(), seeded, scratch, fault, record_property, thorough=thorough)


@pytest.mark.parametrize("fault", REFUSED)
def test_taking_off_settings_survives(
    fault: Fault | None, configured: Path, scratch: Path, record_property: Record, thorough: bool
) -> None:
    assert tables_with_removal(connect(configured, read_only=True).snapshot()) == ["node:Company", "node:Person"]
    crash_everywhere(TakeOffSettings(), configured, scratch, fault, record_property, thorough=thorough)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_writer_that_only_publishes_survives(
    fault: Fault | None, seeded: Path, scratch: Path, record_property: Record, thorough: bool
) -> None:
    drifted = scratch / "drifted"
    context = connect(copy_graph(seeded, drifted)).context
    base = context.store.open(context.manifest.snapshot().entry(TableKey("node:Company")).path)
    staged = stage_changes(base, new_rows=base.schema.empty_table().from_pydict({"id": ["x"], "name": ["x"]}))
    assert staged is not None
    context.store.commit(base, staged, {})
    crash_everywhere(Repair(), drifted, scratch, fault, record_property, open_heals=False, thorough=thorough)


@pytest.mark.parametrize(CASES, cases_of(INTERRUPTED, whole=WHOLE, chosen=CHOSEN))
def test_recovery_itself_survives(
    name: str,
    fault: Fault | None,
    every: bool,
    interrupted: dict[str, Path],
    scratch: Path,
    record_property: Record,
    thorough: bool,
) -> None:
    crash_everywhere(
        Open(), interrupted[name], scratch, fault, record_property, opening=True, every=every, thorough=thorough
    )


@pytest.mark.long
@pytest.mark.parametrize("fault", [Fault.EXIT_BEFORE, Fault.EXIT_AFTER])
def test_a_copy_is_what_a_kill_leaves(fault: Fault, seeded: Path, scratch: Path) -> None:
    write, side = MUTATIONS["delete a node and its edges"], fault.value.removeprefix("exit ")
    copies = {moment: stored_in(death.root) for death in deaths(write, seeded, scratch) for moment in death.moments}
    copied = [found for moment, found in copies.items() if moment.startswith(side)]
    for number in sorted({*range(1, len(copied) + 1, 5), len(copied)}):
        root = copy_graph(seeded, scratch / f"killed-{number}")
        assert run_child(killed, write, root, fault.value, number) == CRASH_EXIT_CODE
        assert stored_in(Path(root)) == copied[number - 1], number


def killed(write: Write, root: str, fault: str, number: int) -> None:
    """Write until the process is ended at an operation."""
    with FaultyStore(Fault(fault), number):
        write.run(root)


def stored_in(root: Path) -> Counter[str]:
    """The names of everything a graph consists of, in which one generated name looks like another."""
    generated = re.compile(r"[0-9a-f]{8}-?[0-9a-f-]{20,}|\b[0-9A-HJKMNP-TV-Z]{26}\b|[01]{20,}[0-9a-f]*|[0-9]{12,}")
    return Counter(generated.sub("…", str(path.relative_to(root))) for path in root.rglob("*"))
