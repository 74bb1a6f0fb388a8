"""What a schema means: the checked, in-memory form that every other layer works with.

A `Catalog` is immutable. Interfaces are already expanded, constraints normalised to the body form and names resolved,
so a reader of this module needs none of the syntax. Build one with `omnigraph.catalog.resolve.compile_schema`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from msgspec import Struct, field

from omnigraph.catalog.types import PropertyType
from omnigraph.ids import TableKey, edge_key, node_key


class Annotation(Struct, frozen=True):
    """A stored annotation: its name, its one positional value as text, and its keywords."""

    name: str
    value: str | None = None
    kwargs: tuple[tuple[str, str | int | float | bool], ...] = ()


class Embedding(Struct, frozen=True):
    """`@embed` on a vector: which property's text it stands for, and the model that produced the stored vectors."""

    source: str
    model: str | None = None


class Default(Struct, frozen=True):
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


class Property(Struct, frozen=True):
    """One user column; `id`, `src` and `dst` are not properties."""

    name: str
    type: PropertyType
    annotations: tuple[Annotation, ...] = ()
    embedding: Embedding | None = None
    default: Default | None = None


class RangeRule(Struct, frozen=True):
    """`@range`: inclusive numeric bounds, either of which may be open."""

    property: str
    low: float | None
    high: float | None


class CheckRule(Struct, frozen=True):
    """`@check`: every non-null value contains a match of the pattern (RE2 syntax, unanchored)."""

    property: str
    pattern: str


class Cardinality(Struct, frozen=True):
    """`@card`: how many edges of the type may leave one source; `high` of None has no limit."""

    low: int = 0
    high: int | None = None

    @property
    def is_default(self) -> bool:
        """True when nothing needs checking."""
        return self.low == 0 and self.high is None


class EntityType(Struct, frozen=True, dict=True):
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
    declared: tuple[str, ...] = ()
    """The names of the properties as the schema lists them, those of interfaces behind its own; for whoever shows all.

    Two schemas that differ in nothing else are the same."""
    partial: bool = False
    """True where a record may leave out whatever it likes, and what it leaves out stays as it is; see `partial`."""

    def __eq__(self, other: object) -> bool:
        compared = (name for name in self.__struct_fields__ if name != "declared")
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in compared)

    @property
    def table_key(self) -> TableKey:
        """The key of the table that holds this type's entities."""
        raise NotImplementedError


class NodeType(EntityType, frozen=True):
    """A node type. `key` lists the `@key` columns in ascending name order as of creation; empty means keyless."""

    interfaces: tuple[str, ...] = ()

    @property
    def table_key(self) -> TableKey:
        """`node:<name>`."""
        return node_key(self.name)


class EdgeType(EntityType, frozen=True):
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


class InterfaceType(Struct, frozen=True):
    """A named set of properties; it has no table and cannot be queried."""

    name: str
    properties: Mapping[str, Property]


class Catalog(Struct, frozen=True, dict=True):
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
