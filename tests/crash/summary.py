"""How many crash cases a run has been through, per writer and kind of fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from omnigraph.testing.faults import Fault

PROPERTY = "crash cases"
RANDOM = "random kills"
INTERRUPTS = "interrupts"
_COLUMNS = [fault.value for fault in Fault]


class Report(Protocol):
    """What a finished test leaves behind; it also comes home from other test processes."""

    nodeid: str
    when: str | None
    user_properties: list[tuple[str, object]]


def writer_of(nodeid: str, told: str = "") -> tuple[str, str]:
    """The writer and the fault a test is about; a test about several faults has `told` which one.

    >>> writer_of("tests/x.py::test_a_write_survives[insert a node-raise after]@group")
    ('insert a node', 'raise after')
    >>> writer_of("tests/x.py::test_maintenance_survives[outage]")
    ('maintenance', 'outage')
    >>> writer_of("tests/x.py::test_a_write_survives[insert a node-death]", "exit after")
    ('insert a node', 'exit after')
    """
    name, _, parameters = nodeid.rpartition("::")[2].partition("@")[0].rstrip("]").partition("[")
    writer, _, fault = parameters.rpartition("-")
    sentence = name.removeprefix("test_").removesuffix("_survives").replace("_", " ")
    if sentence.startswith("a load on spark"):
        writer = f"load {writer} on Spark"
    elif sentence == "recovery itself":
        writer = f"recovery {writer}"
    return writer or sentence, told or fault


def counted(reports: Iterable[Report]) -> Mapping[str, Mapping[str, int]]:
    """Cases per writer and fault."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for report in reports:
        if report.when != "call":
            continue
        for name, value in report.user_properties:
            label, _, told = name.partition(": ")
            if label == PROPERTY:
                writer, fault = writer_of(report.nodeid, told)
                found[writer][fault] += int(str(value))
    return found


def random_kills(reports: Iterable[Report]) -> list[str]:
    """What runs with random kills found, a line each."""
    return [
        f"random kills: {value}"
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == RANDOM
    ]


def interrupts(reports: Iterable[Report]) -> list[str]:
    """How many interrupts there were apart from those of the crash loop, a line each."""
    return [
        f"interrupts: {value}"
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == INTERRUPTS
    ]


def table(cases: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The lines of the summary; none when no case was run."""
    if not cases:
        return []
    width = max(len(writer) for writer in cases)
    lines = [f"{'writer':{width}}  " + "  ".join(f"{column:>16}" for column in _COLUMNS) + f"  {'cases':>6}"]
    for writer, by_fault in cases.items():
        cells = "  ".join(f"{by_fault.get(column, 0) or '-':>16}" for column in _COLUMNS)
        lines.append(f"{writer:{width}}  {cells}  {sum(by_fault.values()):6}")
    totals = [sum(by_fault.get(column, 0) for by_fault in cases.values()) for column in _COLUMNS]
    lines.append(f"{'all':{width}}  " + "  ".join(f"{total:16}" for total in totals) + f"  {sum(totals):6}")
    return lines
