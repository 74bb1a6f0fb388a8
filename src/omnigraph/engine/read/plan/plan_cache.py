"""Plans made ready: prepared once, and put in an order that stays while the counts it rests on do.

A plan is one object for as long as whoever compiled it keeps it, and is told from others as that object. What can be
known of it before it meets a state is worked out once. Its order follows from how many rows its tables have, and after
a small commit it is the one it was before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial

from msgspec import Struct

from omnigraph.engine.read.plan.join_order import Counts, schedule
from omnigraph.engine.read.plan.operations import Counting, Schedule
from omnigraph.engine.read.plan.prepare import Prepared, prepare
from omnigraph.engine.read.state import Tables
from omnigraph.plan.operators import ReadPlan

PREPARED_MAX = 1024
"""Plans that are kept prepared; the one that was prepared first goes first."""
COUNT_CHANGE_SHARE = 8
"""An order is chosen anew when a count it rests on has changed by more than one in this many."""


class Program(Struct, frozen=True, eq=False):
    """What is known of a plan before it runs, and the order in which its pattern is matched."""

    prepared: Prepared
    schedule: Schedule


class _Ordered(Struct, frozen=True):
    """A program and the counts its order rests on, by kind and type."""

    program: Program
    counts: dict[tuple[str, str], int]


class PlanCache:
    """The plans that the queries of one graph have used lately. Safe to share between threads."""

    def __init__(self) -> None:
        self._ordered: OrderedDict[ReadPlan, _Ordered] = OrderedDict()
        self._lock = threading.Lock()

    def program(self, plan: ReadPlan, tables: Tables) -> Program:
        """The program of a plan for one state of the graph."""
        with self._lock:
            held = self._ordered.get(plan)
        if held is not None and all(_is_close(_count(tables, *of), then) for of, then in held.counts.items()):
            return held.program
        prepared = prepare(plan) if held is None else held.program.prepared
        asked: dict[tuple[str, str], int] = {}

        def noted(kind: str, name: str) -> int:
            found = asked[kind, name] = _count(tables, kind, name)
            return found

        order = _order(prepared, Counts(partial(noted, "node"), partial(noted, "edge")))
        made = _Ordered(Program(prepared, order), asked)
        with self._lock:
            self._ordered[plan] = made
            while len(self._ordered) > PREPARED_MAX:
                self._ordered.popitem(last=False)
        return made.program


def careful_order(prepared: Prepared, tables: Tables) -> Schedule:
    """The order in which no condition fails for a row that another one leaves out."""
    return _order(prepared, Counts(partial(_count, tables, "node"), partial(_count, tables, "edge")), careful=True)


def _order(prepared: Prepared, counts: Counts, *, careful: bool = False) -> Schedule:
    counting = Counting.EXISTENCE if prepared.ignores_repeats else Counting.NUMBERS
    return schedule(prepared.pattern, counts, prepared.asked, counting, nullable=prepared.nullable, careful=careful)


def _count(tables: Tables, kind: str, name: str) -> int:
    view = tables.node_view(name) if kind == "node" else tables.edge_view(name)
    return view.live_count


def _is_close(now: int, then: int) -> bool:
    """Whether a count has changed so little that no choice would be worth making again."""
    return abs(now - then) * COUNT_CHANGE_SHARE <= then
