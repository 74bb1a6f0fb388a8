"""One write, one kind of fault or the death of its process, every storage operation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.amounts import EXHAUSTIVE
from tests.crash.summary import PROPERTY

from omnigraph.testing.crash import Baseline, Write, baseline, check_death, crash_at, deaths
from omnigraph.testing.faults import LOOKS, Fault

OPERATIONS_MIN = 8
CHANGES_MIN = 1
"""How many operations at least change something, which are those that not every fault goes beyond."""

Record = Callable[[str, object], None]


def faults_and_death(
    *quick: Fault, among: Iterable[Fault] = Fault, always: Collection[Fault] = tuple(Fault)
) -> list[Any]:
    """Parameters: every fault that a process survives, and None for its death.

    Those that are not quick are long, and those that are not wanted `always` exhaustive.
    What the two faults leave that end a process is looked at together, because the state before an operation is as a
    rule the one after the operation before it.
    """
    alive = [fault for fault in among if not fault.kills]
    found = [
        pytest.param(fault, marks=() if fault in quick else pytest.mark.long if fault in always else EXHAUSTIVE)
        for fault in alive
    ]
    return [*found, pytest.param(None, marks=pytest.mark.long, id="death")]


def cases_of(
    writes: Iterable[str], *, whole: Collection[str], chosen: Collection[str] = (), quick: Collection[Fault] = ()
) -> list[Any]:
    """Parameters: each write with each fault, and whether every operation is visited.

    Writes of one kind share how they take faults. `make test` has all of them for the writes that are `whole`, and what
    a death and a lost answer leave for the `chosen` ones; the exhaustive run has the rest, where the chosen ones meet
    failures and interrupts at every operation, too, and the others at those that change something and the next of each.
    """
    found = []
    for name in writes:
        for fault in (fault for fault in Fault if not fault.kills):
            always = name in whole or (name in chosen and fault is Fault.RAISE_AFTER)
            every = name in whole or (name in chosen and fault in (Fault.RAISE_BEFORE, Fault.INTERRUPT_BEFORE))
            mark = () if fault in quick else pytest.mark.long if always else EXHAUSTIVE
            found.append(pytest.param(name, fault, every, marks=mark, id=f"{name}-{fault}"))
        mark = pytest.mark.long if name in whole or name in chosen else EXHAUSTIVE
        found.append(pytest.param(name, None, True, marks=mark, id=f"{name}-death"))
    return found


def crash_everywhere(
    write: Write,
    template: Path,
    scratch: Path,
    fault: Fault | None,
    record_property: Record,
    *,
    open_heals: bool = True,
    opening: bool = False,
    every: bool = True,
    thorough: bool = False,
) -> None:
    """Visit storage operations with a fault, or with the death of the process, and record the number of cases.

    `open_heals` is False for writes that only their repetition completes; `opening` says that a write is no more than
    the opening of the graph. Unless `every` operation is wanted, the graph is open before the fault, and faults before
    an operation meet those that change something and the next of each: what is stored, and what the writer holds, is
    the same before the others, and how a writer of its kind takes a failure of one that only looks is shown by a write
    that every operation of is visited. An outage never needs more: from where it begins nothing is stored any more, so
    that all that begin between two changes leave the same. `thorough` visits everything all the same.
    """
    base = baseline(write, template, scratch)
    if fault is None:
        _die_everywhere(write, base, template, scratch, record_property, open_heals=open_heals)
        return
    every = every or thorough
    sparse = not every or (fault is Fault.OUTAGE and not thorough)
    number = 1
    while crash_at(
        write,
        base,
        template,
        scratch,
        fault,
        number,
        opening=opening or (every and not fault.interrupts),
        sparse=sparse,
    ):
        number += 1
    record_property(PROPERTY, number - 1)
    assert number > (CHANGES_MIN if fault.follows or sparse else OPERATIONS_MIN)


def operation_of(moment: str) -> str:
    """The name in a text like `after operation 7, commit of …`."""
    return moment.partition(", ")[2].partition(" of ")[0]


def _die_everywhere(
    write: Write, base: Baseline, template: Path, scratch: Path, record_property: Record, *, open_heals: bool
) -> None:
    met = dict.fromkeys((Fault.EXIT_BEFORE, Fault.EXIT_AFTER), 0)
    last = ""
    for death in deaths(write, template, scratch):
        if death.moments[0] == last.replace("before", "after", 1):
            assert operation_of(last) not in LOOKS, f"it is said to look only, and changed something: {last}"
        last = death.moments[-1]
        check_death(write, base, death, open_heals=open_heals)
        for moment in death.moments:
            met[Fault.EXIT_BEFORE if moment.startswith("before") else Fault.EXIT_AFTER] += 1
    for fault, count in met.items():
        record_property(f"{PROPERTY}: {fault.value}", count)
        assert count >= OPERATIONS_MIN
