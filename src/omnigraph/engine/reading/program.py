"""A plan made ready for one state of the graph: prepared, put in order, and kept for the next call.

Whoever asks the same question of the same state again finds everything decided but the values of the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.engine.reading.context import OpensTables, Tables
from omnigraph.engine.reading.prepare import Prepared, prepare
from omnigraph.engine.reading.schedule import Counting, Counts, Schedule, schedule
from omnigraph.plan.operators import ReadPlan

PROGRAMS_MAX = 1024
"""Programs kept per state; when there are more, all are dropped and those still in use made again."""


@dataclass(frozen=True, eq=False)
class Program:
    """A plan, what is known of it before it runs, and the order in which its pattern is matched."""

    plan: ReadPlan
    prepared: Prepared
    schedule: Schedule


def program_of(plan: ReadPlan, snapshot: OpensTables) -> Program:
    """The program of a plan, kept with the state; it holds its plan, so that an identity is never another's."""
    programs: dict[int, Program] = snapshot.memo.setdefault("programs", {})
    found = programs.get(id(plan))
    if found is not None and found.plan is plan:
        return found
    prepared = prepare(plan)
    tables = Tables.of(snapshot)
    counts = Counts(
        lambda type_name: tables.node_view(snapshot, type_name).live_count,
        lambda edge_type: tables.edge_view(snapshot, edge_type).live_count,
    )
    made = Program(plan, prepared, schedule(prepared.pattern, counts, prepared.asked, Counting.NUMBERS))
    if len(programs) >= PROGRAMS_MAX:
        programs.clear()
    programs[id(plan)] = made
    return made
