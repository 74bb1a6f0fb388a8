"""The reader of one graph: it owns everything that queries derive, by the state and by the table it follows from.

A state is found by its identity, which names a commit, and a commit never changes: what is kept for one cannot be
stale, and may be dropped at any time. When a newer state of a branch is asked for, the one before it goes; states of
the past stay while they are among the last ones used. Views of tables are shared by the states that have them.

A commit of this graph tells the reader which tables it is about to publish. If queries have used the state that the
commit is based on, the reader derives from the new tables what they had derived from the old ones, in a thread of its
own, while the commit waits for storage; the first query afterwards finds it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping

from omnigraph.engine.manifest.listener import Published, nobody_waits
from omnigraph.engine.manifest.snapshot import Snapshot, StateIdentity
from omnigraph.engine.read.columns.views import Views
from omnigraph.engine.read.plan.plan_cache import PlanCache, Program
from omnigraph.engine.read.state import OpensTables, Successor, Tables
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.errors import GraphError
from omnigraph.ids import TableKey
from omnigraph.plan.operators import ReadPlan

STATES_MAX = 64
"""States kept, of all branches and of the past together."""
PROGRAMS_MAX = 1024
"""Programs kept per state; when there are more, all are dropped and those still in use made again."""

logger = logging.getLogger(__name__)


class ReadState:
    """One state of the graph, ready to be asked: its tables, and the programs of the plans it was asked."""

    __slots__ = ("is_asked", "plans", "programs", "tables")

    def __init__(self, opens: OpensTables, views: Views | None = None, plans: PlanCache | None = None) -> None:
        self.tables = Tables(opens, Views() if views is None else views)
        self.plans = PlanCache() if plans is None else plans
        self.programs: dict[ReadPlan, Program] = {}
        self.is_asked = False
        """Whether a query has used it; what nobody uses is not made ready again for the state after it."""

    def program(self, plan: ReadPlan) -> Program:
        """The plan made ready for this state: prepared, and in the order in which its pattern is matched."""
        self.is_asked = True
        found = self.programs.get(plan)
        if found is None:
            found = self.plans.program(plan, self.tables)
            if len(self.programs) >= PROGRAMS_MAX:
                self.programs.clear()
            self.programs[plan] = found
        return found


class Reader:
    """What the queries of one graph have derived so far. Safe to share between threads."""

    def __init__(self) -> None:
        self.views = Views()
        self.plans = PlanCache()
        self._states: OrderedDict[StateIdentity, ReadState] = OrderedDict()
        self._newest: dict[str, Snapshot] = {}
        """The newest state of each branch that has been asked for."""
        self._last: tuple[Snapshot, ReadState] | None = None
        """The state that was asked for last, which most queries ask for again."""
        self._lock = threading.Lock()

    def state(self, snapshot: Snapshot) -> ReadState:
        """What is known of a state, kept for the next query of it."""
        last = self._last
        if last is not None and last[0] is snapshot:
            return last[1]
        with self._lock:
            found = self._states.get(snapshot.identity)
            if found is not None:
                self._states.move_to_end(snapshot.identity)
            else:
                found = ReadState(snapshot, self.views, self.plans)
                self._keep(snapshot, found)
            self._last = snapshot, found
            return found

    def publishing(self, base: Snapshot, handles: Mapping[TableKey, TableHandle]) -> Published:
        """Get ready for the state in which these tables take the place of those of `base`, if that is in use."""
        with self._lock:
            state = self._states.get(base.identity)
        if state is None or not state.is_asked:
            return nobody_waits
        following = _Following(state.tables, handles)
        try:
            following.start()
        except RuntimeError as exc:
            logger.info("the next state could not be read ahead: %s", exc)
            return nobody_waits

        def published(snapshot: Snapshot) -> None:
            ready = following.ready()
            if ready is not None:
                self._settle(snapshot, ready)

        return published

    def forget(self) -> None:
        """Drop the states; views of tables stay, for versions of tables are the same in every state."""
        with self._lock:
            self._states.clear()
            self._newest.clear()
            self._last = None

    def close(self) -> None:
        """Give back all memory; whoever asks again derives what is needed."""
        self.forget()
        self.views.clear()

    def _settle(self, snapshot: Snapshot, ready: Successor) -> None:
        made = ReadState(snapshot, self.views, self.plans)
        try:
            fits = made.tables.take_over(ready)
        except (GraphError, OSError) as exc:
            logger.info("the next state could not be read ahead: %s", exc)
            return
        with self._lock:
            if fits and snapshot.identity not in self._states:
                self._keep(snapshot, made)

    def _keep(self, snapshot: Snapshot, state: ReadState) -> None:
        """Keep a state, and let the one go that it follows; the caller holds the lock."""
        self._states[snapshot.identity] = state
        self._last = None
        before = self._newest.get(snapshot.branch)
        if before is None or before.version < snapshot.version:
            self._newest[snapshot.branch] = snapshot
            if before is not None:
                self._states.pop(before.identity, None)
        while len(self._states) > STATES_MAX:
            self._states.popitem(last=False)
        if len(self._newest) > STATES_MAX:
            # A branch whose states have all gone is as good as never read.
            kept = {branch: newest for branch, newest in self._newest.items() if newest.identity in self._states}
            self._newest = kept


class _Following(threading.Thread):
    """Derives from tables that are about to be published what queries have derived from those they replace."""

    def __init__(self, tables: Tables, handles: Mapping[TableKey, TableHandle]) -> None:
        super().__init__(name="omnigraph-follow")
        self._tables, self._handles = tables, dict(handles)
        self._made: Successor | None = None

    def run(self) -> None:
        """Get ready."""
        try:
            self._made = self._tables.followed(self._handles)
        except (GraphError, OSError) as exc:
            # Nothing is lost but time: the first query that needs the tables reads them itself, and says what is wrong.
            logger.info("the next state could not be read ahead: %s", exc)

    def ready(self) -> Successor | None:
        """What was made; None when it failed, or takes longer than the commit did."""
        return None if self.is_alive() else self._made
