"""The operations that a pattern becomes, in the order in which they run, and how each tells what it works on.

`join_order` chooses them; `engine.read.operators` carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cached_property

from msgspec import Struct

from omnigraph.engine.read.graph.segments import Direction, direction_of
from omnigraph.engine.read.operators.computed import may_fail
from omnigraph.engine.read.operators.joins import ValueJoin
from omnigraph.engine.read.operators.lookup import equality
from omnigraph.engine.read.plan.cost import (
    Reason,
)
from omnigraph.engine.read.plan.describe import describe_expand
from omnigraph.engine.read.plan.prepare import Clause
from omnigraph.plan.explain import show_predicate
from omnigraph.plan.operators import (
    Expand,
    Predicate,
    PropertyRef,
    ShortestPath,
    Value,
)


class Counting(Enum):
    """What the number of equal rows means to whoever asked."""

    NUMBERS = "only how many there are"
    EXISTENCE = "only whether there is one"


class Scan(Struct, frozen=True, eq=False, dict=True):
    """Bind a variable to the nodes that pass its own conditions, combined with every row there is."""

    variable: str
    type_name: str
    predicates: tuple[Predicate, ...]
    reason: Reason

    @cached_property
    def risky(self) -> tuple[Predicate, ...]:
        """The conditions that some values make fail."""
        return tuple(predicate for predicate in self.predicates if may_fail(predicate))

    @cached_property
    def sure(self) -> Scan:
        """The same without these."""
        kept = tuple(predicate for predicate in self.predicates if not may_fail(predicate))
        return Scan(self.variable, self.type_name, kept, self.reason)

    @cached_property
    def equalities(self) -> tuple[tuple[Predicate, PropertyRef, Value], ...]:
        """The conditions that ask for one value of a property, taken apart."""
        parsed = ((predicate, equality(predicate)) for predicate in self.predicates)
        return tuple((predicate, *found) for predicate, found in parsed if found is not None)

    def detail(self) -> str:
        """What it works on."""
        return f"${self.variable}: {self.type_name}"


class Join(Struct, frozen=True, eq=False):
    """Bind a variable to the nodes that share a value with a bound one."""

    link: ValueJoin

    def detail(self) -> str:
        """What it works on."""
        return show_predicate(self.link.clause.predicate)


class ExpandAll(Struct, frozen=True, eq=False, dict=True):
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


class CountPaths(Struct, frozen=True, eq=False, dict=True):
    """Several hops in a row, none of whose nodes anything asks for: all that matters is how many ways there are."""

    follows: tuple[ExpandAll, ...]

    @cached_property
    def key(self) -> tuple[tuple[str, str, bool], ...]:
        """Names the hops, whatever the variables are called."""
        return tuple(
            (follow.expand.edge_type, follow.direction.value, follow.expand.edge_variable is not None)
            for follow in self.follows
        )

    @cached_property
    def rests(self) -> tuple[CountPaths, ...]:
        """What is left of the walk after none, one, two … of its hops, as long as that is a walk."""
        return (self, *(CountPaths(self.follows[done:]) for done in range(1, len(self.follows) - 1)))

    def detail(self) -> str:
        """What it works on."""
        return ", ".join(follow.detail() for follow in self.follows)


class ExpandInto(Struct, frozen=True, eq=False):
    """Keep the rows whose two bound ends are joined."""

    expand: Expand

    def detail(self) -> str:
        """What it works on."""
        return describe_expand(self.expand)


class Filter(Struct, frozen=True, eq=False):
    """Keep the rows that satisfy a condition over bound variables."""

    clause: Clause

    def detail(self) -> str:
        """What it works on."""
        return show_predicate(self.clause.predicate)


class AntiJoin(Struct, frozen=True, eq=False):
    """Drop the rows that an inner pattern can extend, or keep only those; each distinct outer row is tried once."""

    outer: tuple[str, ...]
    inner: Schedule
    keeps: bool = False

    def detail(self) -> str:
        """What it works on."""
        return f"on {', '.join('$' + name for name in self.outer)}"


class Apply(Struct, frozen=True, eq=False):
    """Join rows with what inner patterns make of them; each distinct outer row is extended once."""

    outer: tuple[str, ...]
    arms: tuple[Schedule, ...]
    binds: tuple[str, ...]
    is_optional: bool
    """Whether a row that nothing extends is kept, with nothing bound; else equal extensions count once."""

    def detail(self) -> str:
        """What it works on."""
        return f"binds {', '.join('$' + name for name in self.binds)}" if self.binds else "binds nothing"


class Trace(Struct, frozen=True, eq=False):
    """Bind the shortest path between two bound ends, and keep the rows that have one."""

    path: ShortestPath

    def detail(self) -> str:
        """What it works on."""
        return f"${self.path.variable} = {describe_expand(self.path.expand)}"


class NotNull(Struct, frozen=True, eq=False):
    """Keep the rows whose variables stand for something, as an edge leads from and to nodes."""

    variables: tuple[str, ...]

    def detail(self) -> str:
        """What it works on."""
        return ", ".join(f"${name}" for name in self.variables)


class Alias(Struct, frozen=True, eq=False):
    """Bind a variable to the node that another one is bound to."""

    variable: str
    other: str
    clause: Clause

    def detail(self) -> str:
        """What it works on."""
        return show_predicate(self.clause.predicate)


class Project(Struct, frozen=True, eq=False):
    """Drop variables nobody needs any more, and merge rows that have become equal where only their number counts."""

    wanted: frozenset[str]
    counting: Counting


Operation = (
    Scan | Join | ExpandAll | CountPaths | ExpandInto | Filter | AntiJoin | Apply | Trace | NotNull | Alias | Project
)


class Schedule(Struct, frozen=True, eq=False):
    """A pattern as operations in order, and the types of the variables in scope."""

    operations: tuple[Operation, ...]
    asked: frozenset[str]
    types: Mapping[str, str]
    edge_types: Mapping[str, str]
