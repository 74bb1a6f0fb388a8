"""The syntax tree of a schema: what was written, before anything is known about what it means.

Trees compare by content; spans take no part, so a tree equals the tree of its pretty-printed text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.language.source import NOWHERE, Source, Span

LiteralValue = str | int | float | bool


@dataclass(frozen=True)
class TypeSyntax:
    """What stands after the colon of a property or parameter; `enum_values` keeps the written order."""

    scalar: str
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Annotation:
    """`@name`, `@name(value)` or `@name(value, key=literal)`.

    A value written as a bare name has `value_is_name`; one written as a call without arguments is the text of the call,
    `now()`, and has `value_is_call`.
    """

    name: str
    value: LiteralValue | None = None
    value_is_name: bool = False
    kwargs: tuple[tuple[str, LiteralValue], ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    value_is_call: bool = False


@dataclass(frozen=True)
class Call:
    """A function called without arguments, as `@default(now())` has it."""

    name: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Name:
    """A bare identifier given to a constraint."""

    text: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Range:
    """`low..high` with either side open."""

    low: int | float | None
    high: int | float | None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Constant:
    """A literal given to a constraint."""

    value: LiteralValue
    span: Span = field(default=NOWHERE, compare=False, repr=False)


ConstraintArgument = Name | Range | Constant


@dataclass(frozen=True)
class Constraint:
    """`@key(…)`, `@unique(…)`, `@index(…)`, `@range(…)` or `@check(…)` in a body."""

    name: str
    arguments: tuple[ConstraintArgument, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Property:
    """`name: Type @annotation…`."""

    name: str
    type: TypeSyntax
    annotations: tuple[Annotation, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Cardinality:
    """`@card(low..high)`; an open upper side is None."""

    low: int
    high: int | None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class TypeReference:
    """The name of a type where it is used, e.g. an edge's endpoint."""

    name: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class InterfaceDeclaration:
    """`interface Name { properties }`."""

    name: str
    properties: tuple[Property, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class NodeDeclaration:
    """`node Name @… implements … { properties, constraints }`."""

    name: str
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[TypeReference, ...] = ()
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class EdgeDeclaration:
    """`edge Name: From -> To @card(…) @… { properties, constraints }`."""

    name: str
    from_type: TypeReference
    to_type: TypeReference
    cardinality: Cardinality | None = None
    annotations: tuple[Annotation, ...] = ()
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Declaration = InterfaceDeclaration | NodeDeclaration | EdgeDeclaration


@dataclass(frozen=True)
class Schema:
    """A whole schema file in written order."""

    declarations: tuple[Declaration, ...]
    source: Source = field(default=Source(""), compare=False, repr=False)
