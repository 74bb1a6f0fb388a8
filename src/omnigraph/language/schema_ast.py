"""The syntax tree of a schema: what was written, before anything is known about what it means.

Trees compare by content; spans take no part, so a tree equals the tree of its pretty-printed text.
"""

from __future__ import annotations

from omnigraph.language.source import NOWHERE, Source, Span, Syntax

LiteralValue = str | int | float | bool


class TypeSyntax(Syntax, frozen=True):
    """What stands after the colon of a property or parameter; `enum_values` keeps the written order."""

    scalar: str
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None
    span: Span = NOWHERE


class Annotation(Syntax, frozen=True):
    """`@name`, `@name(value)` or `@name(value, key=literal)`.

    A value written as a bare name has `value_is_name`; one written as a call without arguments is the text of the call,
    `now()`, and has `value_is_call`.
    """

    name: str
    value: LiteralValue | None = None
    value_is_name: bool = False
    kwargs: tuple[tuple[str, LiteralValue], ...] = ()
    span: Span = NOWHERE
    value_is_call: bool = False


class Call(Syntax, frozen=True):
    """A function called without arguments, as `@default(now())` has it."""

    name: str
    span: Span = NOWHERE


class Name(Syntax, frozen=True):
    """A bare identifier given to a constraint."""

    text: str
    span: Span = NOWHERE


class Range(Syntax, frozen=True):
    """`low..high` with either side open."""

    low: int | float | None
    high: int | float | None
    span: Span = NOWHERE


class Constant(Syntax, frozen=True):
    """A literal given to a constraint."""

    value: LiteralValue
    span: Span = NOWHERE


ConstraintArgument = Name | Range | Constant


class Constraint(Syntax, frozen=True):
    """`@key(…)`, `@unique(…)`, `@index(…)`, `@range(…)` or `@check(…)` in a body."""

    name: str
    arguments: tuple[ConstraintArgument, ...]
    span: Span = NOWHERE


class Property(Syntax, frozen=True):
    """`name: Type @annotation…`."""

    name: str
    type: TypeSyntax
    annotations: tuple[Annotation, ...] = ()
    span: Span = NOWHERE


class Cardinality(Syntax, frozen=True):
    """`@card(low..high)`; an open upper side is None."""

    low: int
    high: int | None
    span: Span = NOWHERE


class TypeReference(Syntax, frozen=True):
    """The name of a type where it is used, e.g. an edge's endpoint."""

    name: str
    span: Span = NOWHERE


class InterfaceDeclaration(Syntax, frozen=True):
    """`interface Name { properties }`."""

    name: str
    properties: tuple[Property, ...]
    span: Span = NOWHERE


class NodeDeclaration(Syntax, frozen=True):
    """`node Name @… implements … { properties, constraints }`."""

    name: str
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[TypeReference, ...] = ()
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    span: Span = NOWHERE


class EdgeDeclaration(Syntax, frozen=True):
    """`edge Name: From -> To @card(…) @… { properties, constraints }`."""

    name: str
    from_type: TypeReference
    to_type: TypeReference
    cardinality: Cardinality | None = None
    annotations: tuple[Annotation, ...] = ()
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    span: Span = NOWHERE


Declaration = InterfaceDeclaration | NodeDeclaration | EdgeDeclaration


class Schema(Syntax, frozen=True):
    """A whole schema file in written order."""

    declarations: tuple[Declaration, ...]
    source: Source = Source("")
