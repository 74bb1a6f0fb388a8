"""The order in which a pattern is matched, decided once per plan and state of the graph.

A pattern is a set, so the order is chosen greedily: what is already decided (filters, checks, anti-joins) comes first,
then the expand that adds least, and a new variable only when nothing is connected. Every choice follows from counts
the snapshot knows for nothing, none from the values of parameters; so the same operations serve every call, and
`explain` can show them with their reasons before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property

from omnigraph.dataclass import dataclass
from omnigraph.engine.reading.describe import describe, describe_expand
from omnigraph.engine.reading.joins import ValueJoin, find_join
from omnigraph.engine.reading.lookup import equality
from omnigraph.engine.reading.planner import (
    ONLY_EQUALITY,
    ONLY_START,
    Growth,
    Reason,
    Start,
    choose_growth,
    choose_start,
    growth,
    selectivity,
)
from omnigraph.engine.reading.prepare import Clause, PreparedPattern
from omnigraph.engine.reading.segments import Direction, direction_of
from omnigraph.plan.operators import Expand, Predicate, PropertyRef, Value

ROW = "#row"
"""The variable that names the outer row inside an anti-join; no written variable contains `#`."""


class Counting(Enum):
    """What the number of equal rows means to whoever asked."""

    NUMBERS = "only how many there are"
    EXISTENCE = "only whether there is one"


@dataclass(frozen=True, eq=False)
class Begin:
    """Bind a variable to the nodes that pass its own conditions, combined with every row there is."""

    variable: str
    type_name: str
    predicates: tuple[Predicate, ...]
    reason: Reason

    @cached_property
    def equalities(self) -> tuple[tuple[Predicate, PropertyRef, Value], ...]:
        """The conditions that ask for one value of a property, taken apart."""
        parsed = ((predicate, equality(predicate)) for predicate in self.predicates)
        return tuple((predicate, *found) for predicate, found in parsed if found is not None)

    def detail(self) -> str:
        """What it works on."""
        return f"${self.variable}: {self.type_name}"


@dataclass(frozen=True, eq=False)
class Join:
    """Bind a variable to the nodes that share a value with a bound one."""

    link: ValueJoin

    def detail(self) -> str:
        """What it works on."""
        return describe(self.link.clause.predicate)


@dataclass(frozen=True, eq=False)
class Follow:
    """Follow an expand from a bound end."""

    expand: Expand
    from_source: bool
    near: str
    far: str
    wanted: frozenset[str]
    """Variables that something later needs; no other is carried along."""
    counting: Counting
    is_unseen: bool
    """Whether nothing asks for the far end or the edge, so that it may be counted instead of listed."""
    drops: bool
    """Whether some variable is bound before and not wanted afterwards."""
    empties: bool
    """Whether no variable at all is wanted afterwards."""
    may_flow: bool
    """Whether nothing but how often each far end is met can matter afterwards."""
    is_plain: bool
    """Whether it is one hop to a variable of its own, and nothing else bound is wanted afterwards."""
    is_fresh: bool
    """Whether it is one hop, by pairs, to a variable that was not bound before."""
    reason: Reason

    @cached_property
    def direction(self) -> Direction:
        """Which way the edges are followed."""
        return direction_of(self.expand, self.from_source)

    def detail(self) -> str:
        """What it works on."""
        return describe_expand(self.expand, self.from_source)


@dataclass(frozen=True, eq=False)
class Walk:
    """Several hops in a row, none of whose nodes anything asks for: all that matters is how many ways there are."""

    follows: tuple[Follow, ...]

    @cached_property
    def key(self) -> tuple[tuple[str, str, bool], ...]:
        """Names the hops, whatever the variables are called."""
        return tuple(
            (follow.expand.edge_type, follow.direction.value, follow.expand.edge_variable is not None)
            for follow in self.follows
        )

    @cached_property
    def rests(self) -> tuple[Walk, ...]:
        """What is left of the walk after none, one, two … of its hops, as long as that is a walk."""
        return (self, *(Walk(self.follows[done:]) for done in range(1, len(self.follows) - 1)))

    def detail(self) -> str:
        """What it works on."""
        return ", ".join(follow.detail() for follow in self.follows)


@dataclass(frozen=True, eq=False)
class Check:
    """Keep the rows whose two bound ends are joined."""

    expand: Expand

    def detail(self) -> str:
        """What it works on."""
        return describe_expand(self.expand)


@dataclass(frozen=True, eq=False)
class Keep:
    """Keep the rows that satisfy a condition over bound variables."""

    clause: Clause

    def detail(self) -> str:
        """What it works on."""
        return describe(self.clause.predicate)


@dataclass(frozen=True, eq=False)
class Refuse:
    """Drop the rows that an inner pattern can extend; each distinct outer row is tried once."""

    outer: tuple[str, ...]
    inner: Schedule

    def detail(self) -> str:
        """What it works on."""
        return f"on {', '.join('$' + name for name in self.outer)}"


@dataclass(frozen=True, eq=False)
class Forget:
    """Drop variables nobody needs any more, and merge rows that have become equal where only their number counts."""

    wanted: frozenset[str]
    counting: Counting


Operation = Begin | Join | Follow | Walk | Check | Keep | Refuse | Forget


@dataclass(frozen=True, eq=False)
class Schedule:
    """A pattern as operations in order, and the types of the variables in scope."""

    operations: tuple[Operation, ...]
    asked: frozenset[str]
    types: Mapping[str, str]
    edge_types: Mapping[str, str]


@dataclass(frozen=True)
class Counts:
    """How many rows the tables of a snapshot have; a table is opened when it is asked for."""

    nodes: Callable[[str], int]
    edges: Callable[[str], int]


def schedule(
    pattern: PreparedPattern,
    counts: Counts,
    asked: frozenset[str],
    counting: Counting,
    *,
    bound: frozenset[str] = frozenset(),
    outside: Schedule | None = None,
) -> Schedule:
    """Put a pattern in order; `bound` are the variables that rows have before it begins."""
    types = {**(outside.types if outside is not None else {}), **pattern.types}
    edge_types = {**(outside.edge_types if outside is not None else {}), **pattern.edge_types}
    work = _Work(pattern, counts, asked, counting, set(bound), Schedule((), asked, types, edge_types))
    while True:
        work.settle()
        if work.is_done:
            break
        work.grow()
    return Schedule(tuple(_with_walks(work.operations)), asked, types, edge_types)


def _with_walks(operations: list[Operation]) -> list[Operation]:
    """Join hops that follow each other and end in a count, where the nodes between them matter to nothing else."""
    found: list[Operation] = []
    for operation in operations:
        found.append(operation)
        if not (isinstance(operation, Follow) and operation.is_unseen and operation.counting is Counting.NUMBERS):
            continue
        hops = [operation]
        for earlier in reversed(found[:-1]):
            if not (isinstance(earlier, Follow) and earlier.is_fresh and earlier.far == hops[0].near):
                break
            if earlier.far in operation.wanted:
                break
            hops.insert(0, earlier)
        if len(hops) > 1:
            found[-len(hops) :] = [Walk(tuple(hops))]
    return found


class _Work:
    """A pattern on its way to becoming operations: what is still to be done, and what is bound by now."""

    def __init__(
        self,
        pattern: PreparedPattern,
        counts: Counts,
        asked: frozenset[str],
        counting: Counting,
        bound: set[str],
        scope: Schedule,
    ) -> None:
        self.scans = dict(pattern.scans)
        self.expands = list(pattern.expands)
        self.clauses = list(pattern.clauses)
        self.anti_joins = list(pattern.anti_joins)
        self.counts = counts
        self.asked = asked
        self.counting = counting
        self.bound = bound
        self.scope = scope
        self.operations: list[Operation] = []

    @property
    def is_done(self) -> bool:
        """True when every clause has its operation."""
        return not (self.expands or self.clauses or self.anti_joins or self.scans)

    def wanted(self) -> frozenset[str]:
        """Variables that something still to be done, or the result, needs."""
        needed = set(self.asked)
        for expand in self.expands:
            needed |= {expand.source, expand.target}
        for clause in self.clauses:
            needed |= clause.variables
        for anti_join in self.anti_joins:
            needed |= anti_join.free
        return frozenset(needed)

    def conditions(self, variable: str) -> tuple[Predicate, ...]:
        """The predicates that read this variable alone."""
        return tuple(clause.predicate for clause in self.clauses if clause.variables == {variable})

    # --- what is already decided ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Apply every filter, check and anti-join whose variables are bound, cheapest kinds first."""
        for variable in self.bound:
            self.scans.pop(variable, None)
        for clause in [c for c in self.clauses if c.variables <= self.bound]:
            self.clauses.remove(clause)
            self.operations.append(Keep(clause))
        for expand in [e for e in self.expands if self._is_check(e)]:
            self.expands.remove(expand)
            self.operations.append(Check(expand))
        for anti_join in [a for a in self.anti_joins if a.free <= self.bound]:
            self.anti_joins.remove(anti_join)
            self._refuse(anti_join)
        wanted = self.wanted()
        if not self.bound <= wanted:
            self.bound &= wanted
            self.operations.append(Forget(wanted, self.counting))

    def _is_check(self, expand: Expand) -> bool:
        return expand.edge_variable is None and expand.source in self.bound and expand.target in self.bound

    def _refuse(self, pattern: PreparedPattern) -> None:
        outer = tuple(sorted(pattern.free))
        seed = frozenset((*outer, ROW))
        inner = schedule(pattern, self.counts, frozenset((ROW,)), Counting.EXISTENCE, bound=seed, outside=self.scope)
        self.operations.append(Refuse(outer, inner))

    # --- growing ----------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """Follow the expand that adds least, or begin with a further variable."""
        candidates = self._growths()
        if not candidates:
            self._begin()
            return
        best, reason = choose_growth(candidates)
        expand = best.expand
        self.expands.remove(expand)
        near, far = (expand.source, expand.target) if best.from_source else (expand.target, expand.source)
        self.scans.pop(far, None)
        wanted = self.wanted()
        edge = expand.edge_variable
        edge_wanted = edge is not None and edge in wanted
        is_unseen = far not in wanted and far not in self.bound and not edge_wanted and expand.max_hops == 1
        after = self.bound & wanted
        drops = after != self.bound
        if far in wanted:
            after.add(far)
        if edge is not None and edge_wanted:
            after.add(edge)
        is_one_hop = (expand.min_hops, expand.max_hops) == (1, 1)
        self.operations.append(
            Follow(
                expand,
                best.from_source,
                near,
                far,
                wanted,
                self.counting,
                is_unseen=is_unseen,
                drops=drops,
                empties=not after,
                may_flow=is_one_hop and self.bound == {near} and far != near and after == {far},
                is_plain=is_one_hop and edge is None and far not in self.bound and after <= {far},
                is_fresh=is_one_hop and edge is None and far not in self.bound,
                reason=reason,
            )
        )
        # Rows that are counted keep their variables until they are forgotten, so that the count is added up there.
        self.bound = self.bound if is_unseen and after else after

    def _growths(self) -> list[Growth]:
        if len(self.expands) == 1:
            (expand,) = self.expands
            if (expand.source in self.bound) != (expand.target in self.bound):
                return [Growth(expand, expand.source in self.bound, None)]
        found = []
        for expand in self.expands:
            for from_source, near, far in (
                (True, expand.source, expand.target),
                (False, expand.target, expand.source),
            ):
                if near in self.bound:
                    sizes = {t: self.counts.nodes(t) for t in (expand.source_type, expand.target_type)}
                    edges = self.counts.edges(expand.edge_type)
                    found.append(growth(expand, from_source, edges, sizes, self.conditions(far)))
        return found

    def _begin(self) -> None:
        """Bind a variable that is not connected to what is bound: join it by a shared value, else by cross product."""
        link = find_join(self.bound, self.clauses, self.scans)
        if link is not None:
            del self.scans[link.variable]
            self.clauses.remove(link.clause)
            self.operations.append(Join(link))
            self.bound.add(link.variable)
            return
        variable, reason = self._start()
        type_name = self.scans.pop(variable)
        own = self.conditions(variable)
        self.clauses = [clause for clause in self.clauses if clause.variables != {variable}]
        self.operations.append(Begin(variable, type_name, own, reason))
        self.bound.add(variable)

    def _start(self) -> tuple[str, Reason]:
        if len(self.scans) == 1:
            (only,) = self.scans
            return only, ONLY_START
        sharp = [c for c in self.clauses if c.is_equality and c.variables <= self.scans.keys()]
        if len(sharp) == 1:
            (asked_for,) = sharp[0].variables
            return asked_for, ONLY_EQUALITY
        best, reason = choose_start(self._starts())
        return best.variable, reason

    def _starts(self) -> list[Start]:
        linked = frozenset(name for clause in self.clauses if len(clause.variables) > 1 for name in clause.variables)
        found = []
        for variable, type_name in self.scans.items():
            conditions = self.conditions(variable)
            rows = float(self.counts.nodes(type_name))
            for predicate in conditions:
                rows *= selectivity(predicate)
            is_asked = variable in self.asked or variable in linked
            found.append(Start(variable, rows, not conditions, is_asked))
        return found
