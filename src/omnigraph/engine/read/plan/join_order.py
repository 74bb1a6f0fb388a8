"""The order in which a pattern is matched, decided once per plan and state of the graph.

A pattern is a set, so the order is chosen greedily: what is already decided (filters, checks, anti-joins) comes first,
then the expand that adds least, and a new variable only when nothing is connected. Every choice follows from counts
the snapshot knows for nothing, none from the values of parameters; so the same operations serve every call, and
`explain` can show them with their reasons before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from omnigraph.engine.read.operators.joins import find_join
from omnigraph.engine.read.plan.cost import (
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
from omnigraph.engine.read.plan.operations import (
    Alias,
    AntiJoin,
    Apply,
    Counting,
    CountPaths,
    ExpandAll,
    ExpandInto,
    Filter,
    Join,
    NotNull,
    Operation,
    Project,
    Scan,
    Schedule,
    Trace,
)
from omnigraph.engine.read.plan.prepare import Clause, PreparedBlock, PreparedPattern
from omnigraph.plan.operators import (
    Comparison,
    ComparisonOperator,
    EntityId,
    Expand,
    Predicate,
)

ROW = "#row"
"""The variable that names the outer row inside an anti-join; no written variable contains `#`."""


class Counts(Struct, frozen=True):
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
    nullable: frozenset[str] = frozenset(),
    careful: bool = False,
) -> Schedule:
    """Put a pattern in order; `bound` are the variables that rows have before it begins.

    `nullable` are the variables that may stand for nothing. With `careful`, conditions that some values make fail are
    asked last, about rows that satisfy everything else: then it is the query that fails, and not the order.
    """
    types = {**(outside.types if outside is not None else {}), **pattern.types}
    edge_types = {**(outside.edge_types if outside is not None else {}), **pattern.edge_types}
    work = _Work(pattern, counts, asked, counting, set(bound), Schedule((), asked, types, edge_types), nullable)
    if careful:
        work.postpone()
    while True:
        work.settle()
        if not work.is_done:
            work.grow()
        elif not work.resume():
            break
    return Schedule(tuple(_with_walks(work.operations)), asked, types, edge_types)


def _with_walks(operations: list[Operation]) -> list[Operation]:
    """Join hops that follow each other and end in a count, where the nodes between them matter to nothing else."""
    found: list[Operation] = []
    for operation in operations:
        found.append(operation)
        if not (isinstance(operation, ExpandAll) and operation.is_unseen and operation.counting is Counting.NUMBERS):
            continue
        hops = [operation]
        for earlier in reversed(found[:-1]):
            if not (isinstance(earlier, ExpandAll) and earlier.is_fresh and earlier.far == hops[0].near):
                break
            if earlier.far in operation.wanted:
                break
            hops.insert(0, earlier)
        if len(hops) > 1:
            found[-len(hops) :] = [CountPaths(tuple(hops))]
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
        nullable: frozenset[str],
    ) -> None:
        self.nullable = nullable
        self.scans = dict(pattern.scans)
        self.expands = list(pattern.expands)
        self.clauses = list(pattern.clauses)
        self.anti_joins = list(pattern.anti_joins)
        self.semi_joins = list(pattern.semi_joins)
        self.blocks = list(pattern.blocks)
        self.paths = list(pattern.paths)
        self.counts = counts
        self.asked = asked
        self.counting = counting
        self.bound = bound
        self.scope = scope
        self.operations: list[Operation] = []
        self.careful = False
        self.late_clauses: list[Clause] = []
        self.late_anti_joins: list[PreparedPattern] = []
        self.late_semi_joins: list[PreparedPattern] = []

    def postpone(self) -> None:
        """Set aside what some values make fail, until everything else is done."""
        self.careful = True
        self.late_clauses = [clause for clause in self.clauses if clause.may_fail]
        self.late_anti_joins = [inner for inner in self.anti_joins if inner.may_fail]
        self.late_semi_joins = [inner for inner in self.semi_joins if inner.may_fail]
        self.clauses = [clause for clause in self.clauses if not clause.may_fail]
        self.anti_joins = [inner for inner in self.anti_joins if not inner.may_fail]
        self.semi_joins = [inner for inner in self.semi_joins if not inner.may_fail]

    def resume(self) -> bool:
        """Take up what was set aside; False when there is nothing."""
        self.clauses, self.late_clauses = self.late_clauses, []
        self.anti_joins, self.late_anti_joins = self.late_anti_joins, []
        self.semi_joins, self.late_semi_joins = self.late_semi_joins, []
        return not self.is_done

    @property
    def is_done(self) -> bool:
        """True when every clause has its operation."""
        return not (
            self.expands
            or self.clauses
            or self.anti_joins
            or self.semi_joins
            or self.blocks
            or self.paths
            or self.scans
        )

    def wanted(self) -> frozenset[str]:
        """Variables that something still to be done, or the result, needs."""
        needed = set(self.asked)
        for expand in self.expands:
            needed |= {expand.source, expand.target}
        for clause in (*self.clauses, *self.late_clauses):
            needed |= clause.variables
        for inner in (*self.anti_joins, *self.semi_joins, *self.late_anti_joins, *self.late_semi_joins):
            needed |= inner.free
        for block in self.blocks:
            needed |= block.free
        for path in self.paths:
            needed |= {path.source, path.target}
        return frozenset(needed)

    def pending(self) -> frozenset[str]:
        """Variables that a block is still to bind, and nothing else may."""
        return frozenset(name for block in self.blocks for name in block.binds)

    def conditions(self, variable: str) -> tuple[Predicate, ...]:
        """The predicates that read this variable alone."""
        return tuple(clause.predicate for clause in self.clauses if clause.variables == {variable})

    # --- what is already decided ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Apply every filter, check and anti-join whose variables are bound, cheapest kinds first."""
        for variable in self.bound:
            self.scans.pop(variable, None)
        self._filter()
        for expand in [e for e in self.expands if self._is_check(e)]:
            self.expands.remove(expand)
            self._require(expand)
            self.operations.append(ExpandInto(expand))
        for path in [p for p in self.paths if {p.source, p.target} <= self.bound]:
            self.paths.remove(path)
            self._require(path.expand)
            self.operations.append(Trace(path))
            self.bound.add(path.variable)
        self._filter()  # what is asked of a path that has just been found
        for anti_join in [a for a in self.anti_joins if a.free <= self.bound]:
            self.anti_joins.remove(anti_join)
            self._refuse(anti_join)
        for semi_join in [s for s in self.semi_joins if s.free <= self.bound]:
            self.semi_joins.remove(semi_join)
            self._refuse(semi_join, keeps=True)
        wanted = self.wanted()
        if not self.bound <= wanted:
            self.bound &= wanted
            self.operations.append(Project(wanted, self.counting))

    def _filter(self) -> None:
        for clause in [c for c in self.clauses if c.variables <= self.bound]:
            self.clauses.remove(clause)
            self.operations.append(Filter(clause))

    def _is_check(self, expand: Expand) -> bool:
        return expand.edge_variable is None and expand.source in self.bound and expand.target in self.bound

    def _refuse(self, pattern: PreparedPattern, *, keeps: bool = False) -> None:
        outer = tuple(sorted(pattern.free))
        seed = frozenset((*outer, ROW))
        inner = schedule(
            pattern,
            self.counts,
            frozenset((ROW,)),
            Counting.EXISTENCE,
            bound=seed,
            outside=self.scope,
            nullable=self.nullable,
            careful=self.careful,
        )
        self.operations.append(AntiJoin(outer, inner, keeps))

    def _require(self, expand: Expand) -> None:
        """An edge joins what is there."""
        ends = tuple(sorted({expand.source, expand.target} & self.bound & self.nullable))
        if ends:
            self.operations.append(NotNull(ends))

    def _extend(self, block: PreparedBlock) -> None:
        self.blocks.remove(block)
        outer = tuple(sorted(block.free))
        seed = frozenset((*outer, ROW))
        asked = frozenset((ROW, *block.binds))
        counting = Counting.NUMBERS if block.is_optional else Counting.EXISTENCE
        arms = tuple(
            schedule(
                arm,
                self.counts,
                asked,
                counting,
                bound=seed,
                outside=self.scope,
                nullable=self.nullable,
                careful=self.careful,
            )
            for arm in block.arms
        )
        self.operations.append(Apply(outer, arms, block.binds, block.is_optional))
        self.bound |= set(block.binds)

    # --- growing ----------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """Follow the expand that adds least, or begin with a further variable."""
        candidates = self._growths()
        if not candidates and (towards := self._path_growth()) is not None:
            self._follow(towards, lambda: "whatever has a path within the bounds")
            return
        if not candidates:
            ready = next((block for block in self.blocks if block.free <= self.bound), None)
            if ready is None:
                self._begin()
            else:
                self._extend(ready)
            return
        best, reason = choose_growth(candidates)
        self.expands.remove(best.expand)
        self._follow(best, reason)

    def _path_growth(self) -> Growth | None:
        """From the bound end of a path to its other end, unless that is asked for one value and better begun with."""
        waiting = self.pending()
        for path in self.paths:
            for from_source, near, far in ((True, path.source, path.target), (False, path.target, path.source)):
                is_sharp = any(clause.is_equality and clause.variables == {far} for clause in self.clauses)
                if near in self.bound and far in self.scans and far not in waiting and not is_sharp:
                    return Growth(path.expand, from_source, None)
        return None

    def _follow(self, best: Growth, reason: Reason) -> None:
        expand = best.expand
        self._require(expand)
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
            ExpandAll(
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
        waiting = self.pending()
        if len(self.expands) == 1:
            (expand,) = self.expands
            if waiting & {expand.source, expand.target}:
                return []
            if (expand.source in self.bound) != (expand.target in self.bound):
                return [Growth(expand, expand.source in self.bound, None)]
        found = []
        for expand in self.expands:
            if waiting & {expand.source, expand.target}:
                continue
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
        same = self._same()
        if same is not None:
            del self.scans[same.variable]
            self.clauses.remove(same.clause)
            self.operations.append(same)
            self.bound.add(same.variable)
            return
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
        self.operations.append(Scan(variable, type_name, own, reason))
        self.bound.add(variable)

    def _same(self) -> Alias | None:
        """An equality of two nodes that binds one of them."""
        for clause in self.clauses:
            match clause.predicate:
                case Comparison(operator=ComparisonOperator.EQ, left=EntityId() as one, right=EntityId() as other):
                    for near, far in ((one.variable, other.variable), (other.variable, one.variable)):
                        if near in self.bound and near not in self.nullable and far in self.scans:
                            return Alias(far, near, clause)
        return None

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
