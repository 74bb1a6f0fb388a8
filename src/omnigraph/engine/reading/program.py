"""A plan made ready for one state of the graph: prepared, put in order, and kept for the next call.

Whoever asks the same question of the same state again finds everything decided but the values of the parameters.
"""

from __future__ import annotations

from functools import partial

from omnigraph.dataclass import dataclass
from omnigraph.engine.reading.context import OpensTables, Tables
from omnigraph.engine.reading.prepare import Prepared, prepare
from omnigraph.engine.reading.schedule import Counting, Counts, Schedule, schedule
from omnigraph.plan.operators import ReadPlan

PROGRAMS_MAX = 1024
"""Programs kept per state; when there are more, all are dropped and those still in use made again."""
COUNT_CHANGE_SHARE = 8
"""An order is chosen anew when a count it rests on has changed by more than one in this many."""


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
    made = Program(plan, prepared, _schedule(prepared, snapshot))
    if len(programs) >= PROGRAMS_MAX:
        programs.clear()
    programs[id(plan)] = made
    return made


def _schedule(prepared: Prepared, snapshot: OpensTables) -> Schedule:
    """The order of a plan on a snapshot; after a small commit it is the one it was before."""
    tables = Tables.of(snapshot)
    asked: dict[tuple[str, str], int] = {}

    def count(kind: str, name: str) -> int:
        view = tables.node_view(snapshot, name) if kind == "node" else tables.edge_view(snapshot, name)
        return view.live_count

    def noted(kind: str, name: str) -> int:
        found = asked[kind, name] = count(kind, name)
        return found

    held: tuple[dict[tuple[str, str], int], Schedule] | None = prepared.memo.get("schedule")
    if held is not None and all(_is_close(count(*which), then) for which, then in held[0].items()):
        return held[1]
    counts = Counts(partial(noted, "node"), partial(noted, "edge"))
    made = schedule(prepared.pattern, counts, prepared.asked, Counting.NUMBERS)
    prepared.memo["schedule"] = (asked, made)
    return made


def _is_close(now: int, then: int) -> bool:
    """Whether a count has changed so little that no choice would be worth making again."""
    return abs(now - then) * COUNT_CHANGE_SHARE <= then
