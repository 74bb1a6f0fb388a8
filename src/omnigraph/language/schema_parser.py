"""Schema text to syntax tree. Start at `parse_schema`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from lark import Token, Transformer, v_args

from omnigraph.language.grammar import Grammar
from omnigraph.language.literals import float_value, integer_value, number_value, span_of, string_value
from omnigraph.language.schema_ast import (
    Annotation,
    Call,
    Cardinality,
    Constant,
    Constraint,
    ConstraintArgument,
    Declaration,
    EdgeDeclaration,
    InterfaceDeclaration,
    LiteralValue,
    Name,
    NodeDeclaration,
    Property,
    Range,
    Schema,
    TypeReference,
    TypeSyntax,
)
from omnigraph.language.source import LocalError, Source, Span

DIMENSION_MAX = 2**31 - 1
_Member = Property | Annotation | Constraint


def parse_schema(text: str) -> Schema:
    """Read a schema file.

    Raises:
        ParseError: the text does not fit the grammar.

    >>> parse_schema("node Berth { code: String @key }").declarations[0].name
    'Berth'
    """
    source = Source(text)
    declarations: tuple[Declaration, ...] = _grammar().parse(source)
    return Schema(declarations, source)


@cache
def _grammar() -> Grammar:
    return Grammar("schema.lark", _Builder())


def nullable_type(core: TypeSyntax, question: Token | None) -> TypeSyntax:
    """A core type with or without `?`."""
    if question is None:
        return core
    return TypeSyntax(core.scalar, True, core.is_list, core.enum_values, core.dimension, core.span)


class _Builder(Transformer[Any, Any]):
    """Makes tree nodes from the grammar's rules; each method is named after its rule."""

    def start(self, children: list[Declaration]) -> tuple[Declaration, ...]:
        return tuple(children)

    def interface_decl(self, children: list[Any]) -> InterfaceDeclaration:
        name, *members = children
        properties, constraints = _split(members)
        if constraints:
            raise LocalError("an interface has no constraints of its own", constraints[0].span)
        return InterfaceDeclaration(str(name), properties, span_of(name))

    def node_decl(self, children: list[Any]) -> NodeDeclaration:
        name, annotations, implements, *members = children
        properties, constraints = _split(members)
        return NodeDeclaration(str(name), annotations, implements or (), properties, constraints, span_of(name))

    def edge_decl(self, children: list[Any]) -> EdgeDeclaration:
        name, source, target, cardinality, annotations, body = children
        properties, constraints = body or ((), ())
        ends = (TypeReference(str(source), span_of(source)), TypeReference(str(target), span_of(target)))
        return EdgeDeclaration(str(name), *ends, cardinality, annotations, properties, constraints, span_of(name))

    def implements(self, names: list[Token]) -> tuple[TypeReference, ...]:
        return tuple(TypeReference(str(name), span_of(name)) for name in names)

    def body(self, members: list[_Member]) -> tuple[tuple[Property, ...], tuple[Constraint, ...]]:
        return _split(members)

    def annotations(self, children: list[Annotation]) -> tuple[Annotation, ...]:
        return tuple(children)

    @v_args(inline=True)
    def cardinality(self, low: Token, high: Token | None) -> Cardinality:
        bounds = Cardinality(integer_value(low), None if high is None else integer_value(high), span_of(low))
        if bounds.high is not None and bounds.low > bounds.high:
            raise LocalError(f"@card({bounds.low}..{bounds.high}) admits no number", bounds.span)
        return bounds

    @v_args(inline=True)
    def property_name(self, name: Token) -> Token:
        return name

    @v_args(inline=True)
    def property(self, name: Token, type_: TypeSyntax) -> Property:
        return Property(str(name), type_, (), span_of(name))

    @v_args(inline=True)
    def type(self, core: TypeSyntax, question: Token | None) -> TypeSyntax:
        return nullable_type(core, question)

    @v_args(inline=True)
    def list_type(self, scalar: Token) -> TypeSyntax:
        if scalar == "Blob":
            raise LocalError("a list of Blob is not possible", span_of(scalar))
        return TypeSyntax(str(scalar), is_list=True, span=span_of(scalar))

    @v_args(inline=True)
    def vector_type(self, dimension: Token) -> TypeSyntax:
        value = integer_value(dimension)
        if not 1 <= value <= DIMENSION_MAX:
            raise LocalError(f"a Vector has 1 to {DIMENSION_MAX} dimensions, not {value}", span_of(dimension))
        return TypeSyntax("Vector", dimension=value, span=span_of(dimension))

    @v_args(inline=True)
    def scalar_type(self, scalar: Token) -> TypeSyntax:
        return TypeSyntax(str(scalar), span=span_of(scalar))

    def enum_type(self, values: list[Token]) -> TypeSyntax:
        seen: set[str] = set()
        for value in values:
            if str(value) in seen:
                raise LocalError(f"enum value '{value}' is listed twice", span_of(value))
            seen.add(str(value))
        names = tuple(str(value) for value in values)
        return TypeSyntax("String", enum_values=names, span=span_of(values[0]).to(span_of(values[-1])))

    def constraint(self, children: list[Any]) -> Constraint:
        name, *arguments = children
        return Constraint(str(name), tuple(arguments), span_of(name))

    @v_args(inline=True)
    def range(self, low: Token, high: Token | None) -> ConstraintArgument:
        span = span_of(low) if high is None else span_of(low).to(span_of(high))
        return Range(number_value(low), None if high is None else number_value(high), span)

    @v_args(inline=True)
    def upper_range(self, high: Token) -> ConstraintArgument:
        return Range(None, number_value(high), span_of(high))

    @v_args(inline=True)
    def number_arg(self, token: Token) -> ConstraintArgument:
        return Constant(number_value(token), span_of(token))

    @v_args(inline=True)
    def string_arg(self, token: Token) -> ConstraintArgument:
        return Constant(string_value(token), span_of(token))

    @v_args(inline=True)
    def bool_arg(self, token: Token) -> ConstraintArgument:
        return Constant(token == "true", span_of(token))

    @v_args(inline=True)
    def name_arg(self, token: Token) -> ConstraintArgument:
        return Name(str(token), span_of(token))

    @v_args(inline=True)
    def annotation(self, name: Token, arguments: list[Any] | None = None) -> Annotation:
        if name == "card":
            raise LocalError("@card(low..high) is only possible right after an edge's target type", span_of(name))
        if arguments is None:
            return Annotation(str(name), span=span_of(name))
        value, *keywords = arguments
        if isinstance(value, Call):
            return Annotation(str(name), f"{value.name}()", False, tuple(keywords), span_of(name), value_is_call=True)
        is_name = isinstance(value, Name)
        return Annotation(str(name), value.text if is_name else value, is_name, tuple(keywords), span_of(name))

    def annotation_args(self, children: list[Any]) -> list[Any]:
        return children

    @v_args(inline=True)
    def keyword(self, name: Token, value: LiteralValue) -> tuple[str, LiteralValue]:
        return str(name), value

    @v_args(inline=True)
    def name_value(self, token: Token) -> Name:
        return Name(str(token), span_of(token))

    @v_args(inline=True)
    def call_value(self, token: Token) -> Call:
        return Call(str(token), span_of(token))

    @v_args(inline=True)
    def negative(self, token: Token) -> int | float:
        return number_value(token)

    @v_args(inline=True)
    def string_literal(self, token: Token) -> str:
        return string_value(token)

    @v_args(inline=True)
    def float_literal(self, token: Token) -> float:
        return float_value(token)

    @v_args(inline=True)
    def integer_literal(self, token: Token) -> int:
        return integer_value(token)

    @v_args(inline=True)
    def bool_literal(self, token: Token) -> bool:
        return str(token) == "true"


def _split(members: Sequence[_Member]) -> tuple[tuple[Property, ...], tuple[Constraint, ...]]:
    """Attach each annotation to the property it follows, and part properties from constraints."""
    heads: list[tuple[Property, list[Annotation]]] = []
    constraints: list[Constraint] = []
    previous: _Member | None = None
    for member in members:
        if isinstance(member, Property):
            heads.append((member, []))
        elif isinstance(member, Constraint):
            constraints.append(member)
        elif heads and not isinstance(previous, Constraint):
            heads[-1][1].append(member)
        else:
            raise LocalError(f"@{member.name} follows no property", _whole(member.span))
        previous = member
    properties = tuple(Property(head.name, head.type, tuple(notes), head.span) for head, notes in heads)
    return properties, tuple(constraints)


def _whole(span: Span) -> Span:
    return Span(span.start - 1, span.end)  # the '@' before an annotation's name
