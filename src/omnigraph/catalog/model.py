"""What a schema means: the checked, in-memory form that every other layer works with.

A `Catalog` is immutable. Interfaces are already expanded, constraints normalised to the body form and names resolved,
so a reader of this module needs none of the syntax. Build one with `omnigraph.catalog.resolve.compile_schema`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from omnigraph.catalog.types import PropertyType
from omnigraph.ids import TableKey, edge_key, node_key


@dataclass(frozen=True)
class Annotation:
    """A stored annotation: its name, its one positional value as text, and its keywords."""

    name: str
    value: str | None = None
    kwargs: tuple[tuple[str, str | int | float | bool], ...] = ()


@dataclass(frozen=True)
class Embedding:
    """`@embed` on a vector: which property's text it stands for, and the model that produced the stored vectors."""

    source: str
    model: str | None = None


@dataclass(frozen=True)
class Default:
    """`@default`: the text of the value, and the value itself; a value of None stands for the moment of the write."""

    text: str
    value: str | int | float | bool | dt.date | None

    @property
    def is_now(self) -> bool:
        """True for `now()`."""
        return self.value is None

    def at(self, now: dt.datetime) -> str | int | float | bool | dt.date:
        """The value in a write at some moment."""
        return now if self.value is None else self.value


@dataclass(frozen=True)
class Property:
    """One user column; `id`, `src` and `dst` are not properties."""

    name: str
    type: PropertyType
    annotations: tuple[Annotation, ...] = ()
    embedding: Embedding | None = None
    default: Default | None = None


@dataclass(frozen=True)
class RangeRule:
    """`@range`: inclusive numeric bounds, either of which may be open."""

    property: str
    low: float | None
    high: float | None


@dataclass(frozen=True)
class CheckRule:
    """`@check`: every non-null value contains a match of the pattern (RE2 syntax, unanchored)."""

    property: str
    pattern: str


@dataclass(frozen=True)
class Cardinality:
    """`@card`: how many edges of the type may leave one source; `high` of None has no limit."""

    low: int = 0
    high: int | None = None

    @property
    def is_default(self) -> bool:
        """True when nothing needs checking."""
        return self.low == 0 and self.high is None


@dataclass(frozen=True)
class EntityType:
    """What node and edge types share. `properties` is in ascending name order, the order of the table's columns."""

    name: str
    properties: Mapping[str, Property]
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[RangeRule, ...] = ()
    checks: tuple[CheckRule, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    key: tuple[str, ...] = ()
    """The columns that ids are made of; empty where ids mean nothing."""
    declared: tuple[str, ...] = field(default=(), compare=False)
    """The names of the properties as the schema lists them, those of interfaces behind its own; for whoever shows all.

    Two schemas that differ in nothing else are the same."""
    partial: bool = False
    """True where a record may leave out whatever it likes, and what it leaves out stays as it is; see `partial`."""

    @property
    def table_key(self) -> TableKey:
        """The key of the table that holds this type's entities."""
        raise NotImplementedError


@dataclass(frozen=True)
class NodeType(EntityType):
    """A node type. `key` lists the `@key` columns in ascending name order as of creation; empty means keyless."""

    interfaces: tuple[str, ...] = ()

    @property
    def table_key(self) -> TableKey:
        """`node:<name>`."""
        return node_key(self.name)


@dataclass(frozen=True)
class EdgeType(EntityType):
    """An edge type from one node type to one node type. Unique groups may name `src` and `dst`.

    A `key` begins with `src` and `dst`; properties follow in ascending name order as of creation.
    """

    source: str = ""
    target: str = ""
    cardinality: Cardinality = field(default_factory=Cardinality)

    @property
    def table_key(self) -> TableKey:
        """`edge:<name>`."""
        return edge_key(self.name)


@dataclass(frozen=True)
class InterfaceType:
    """A named set of properties; it has no table and cannot be queried."""

    name: str
    properties: Mapping[str, Property]


@dataclass(frozen=True)
class Catalog:
    """All types of one schema, with the hash that identifies its meaning."""

    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    interfaces: Mapping[str, InterfaceType]
    schema_hash: str
    """`sha256:<hex>` of the canonical IR; equal hashes mean equal schemas whatever the formatting."""

    @cached_property
    def edges_by_lower_name(self) -> Mapping[str, EdgeType]:
        """Edge types by lower-cased name, the way queries and load files address them."""
        return MappingProxyType({name.lower(): edge for name, edge in self.edges.items()})

    @cached_property
    def tables(self) -> Mapping[TableKey, NodeType | EdgeType]:
        """Every type that has a table, by ascending table key (so edges come before nodes)."""
        every: list[NodeType | EdgeType] = [*self.nodes.values(), *self.edges.values()]
        return MappingProxyType({entity.table_key: entity for entity in sorted(every, key=lambda e: e.table_key)})

    def edges_touching(self, node_type: str) -> tuple[EdgeType, ...]:
        """The edge types with this node type at either end, by name: what a node delete cascades to."""
        return tuple(e for _, e in sorted(self.edges.items()) if node_type in (e.source, e.target))
