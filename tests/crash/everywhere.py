"""One write, one kind of fault, every storage operation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.crash.summary import PROPERTY

from omnigraph.testing.crash import Write, baseline, crash_at
from omnigraph.testing.faults import Fault

OPERATIONS_MIN = 8

Record = Callable[[str, object], None]


def crash_everywhere(
    write: Write, template: Path, scratch: Path, fault: Fault, record_property: Record, *, open_heals: bool = True
) -> None:
    """Visit N = 1, 2, … until no fault is met, and record how many cases there were."""
    base = baseline(write, template, scratch)
    number = 1
    while crash_at(write, base, template, scratch, fault, number, open_heals=open_heals) is not None:
        number += 1
    record_property(PROPERTY, number - 1)
    assert number > OPERATIONS_MIN
