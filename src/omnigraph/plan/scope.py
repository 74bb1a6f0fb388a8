"""What the names of a query stand for at one point of its checking.

A `Scope` knows the parameters and the variables bound so far. The inside of a block in braces is a scope of its own
that sees everything outside it; what of its own is seen outside, whoever opens the block says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.catalog.types import PropertyType
from omnigraph.errors import TypeCheckError
from omnigraph.language.source import Source, Span

ANONYMOUS = "_"
PathKind = tuple[str, str, str, bool, bool]
"""What a path leads along and between: its edge type, its two ends, whether in either direction, whether backwards."""


class Scope(Struct):
    """The names of one block of clauses."""

    catalog: Catalog
    source: Source
    parameters: Mapping[str, PropertyType]
    anonymous_names: Iterator[str]
    outer: Scope | None = None
    nodes: dict[str, NodeType] = field(default_factory=dict)
    edges: dict[str, EdgeType] = field(default_factory=dict)
    paths: dict[str, PathKind] = field(default_factory=dict)
    nullable: set[str] = field(default_factory=set)
    """Variables of an optional block, which may stand for nothing."""
    used: set[str] = field(default_factory=set)
    """Variables the block mentions, inner blocks included."""

    def inner(self) -> Scope:
        """A scope for the inside of a block."""
        return Scope(self.catalog, self.source, self.parameters, self.anonymous_names, self)

    def node(self, name: str) -> NodeType | None:
        """The type of a bound node variable."""
        self.used.add(name)
        found = self.nodes.get(name)
        if found is None and self.outer is not None:
            return self.outer.node(name)
        return found

    def edge(self, name: str) -> EdgeType | None:
        """The type of a bound edge variable."""
        self.used.add(name)
        found = self.edges.get(name)
        if found is None and self.outer is not None:
            return self.outer.edge(name)
        return found

    def is_path(self, name: str) -> bool:
        """True for a bound path variable."""
        self.used.add(name)
        return name in self.paths or (self.outer is not None and self.outer.is_path(name))

    def is_nullable(self, name: str) -> bool:
        """True for a variable that may stand for nothing."""
        if name in self.nodes or name in self.edges or name in self.paths:
            return name in self.nullable
        return self.outer is not None and self.outer.is_nullable(name)

    def known(self) -> list[str]:
        """Every name that stands for something here."""
        outside = self.outer.known() if self.outer is not None else list(self.parameters)
        return [*self.nodes, *self.edges, *self.paths, *outside]

    def is_bound_outside(self, name: str) -> bool:
        """True for a variable that an enclosing block binds."""
        scope = self.outer
        while scope is not None:
            if name in scope.nodes or name in scope.edges or name in scope.paths:
                return True
            scope = scope.outer
        return False

    def fail(self, code: str | None, message: str, span: Span) -> TypeCheckError:
        """The error of a broken rule; `raise` it."""
        return self.source.type_error(code, message, span)


def anonymous_names(taken: frozenset[str]) -> Iterator[str]:
    """Names for `$_`, none of which the query uses itself."""
    number = 0
    while True:
        number += 1
        name = f"_anon{number}"
        if name not in taken:
            yield name
