"""What a written name or literal stands for: properties, parameters, variables, aliases, constants."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from omnigraph.catalog.model import Property
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.catalog.types import NUMERIC, PropertyType, Scalar
from omnigraph.catalog.values import parse_date, parse_datetime
from omnigraph.errors import TypeCheckError
from omnigraph.language import query_ast as ast
from omnigraph.language.hints import hint_for
from omnigraph.language.source import Span
from omnigraph.plan.functions import Family
from omnigraph.plan.operators import Expression, Literal, ParameterRef, PropertyRef
from omnigraph.plan.scope import ANONYMOUS, Scope

STRING = PropertyType(Scalar.STRING)
BOOL = PropertyType(Scalar.BOOL)
FLOAT = PropertyType(Scalar.F64)
COUNT = PropertyType(Scalar.I64)
DATETIME = PropertyType(Scalar.DATETIME)

Aliases = Mapping[str, Expression]


class Place(Struct, frozen=True):
    """Where an expression stands: what its bare names stand for, and which functions make sense there."""

    what: str
    names: Aliases = field(default_factory=dict)
    families: frozenset[Family] = frozenset({Family.SCALAR, Family.TEXT})
    names_are: str = "alias"
    """What a bare name is called in a message."""
    name_code: str | None = None
    """The code of a bare name that stands for nothing."""
    variable_code: str | None = None
    """The code of a variable that stands for nothing."""
    hint: str = ""
    """What to do about a bare name that stands for nothing, where the place can tell."""


MATCH = Place("a match")


def are_compatible(left: PropertyType, right: PropertyType) -> bool:
    """True when values of the two types can be compared, item by item for lists."""
    if left.is_list != right.is_list:
        return False
    return left.scalar is right.scalar or (left.scalar in NUMERIC and right.scalar in NUMERIC)


# --- literals --------------------------------------------------------------------------------------------------------


def literal(scope: Scope, syntax: ast.LiteralSyntax) -> Literal:
    """A constant and its type; an empty list counts as a list of String."""
    if isinstance(syntax, ast.ListConstant):
        return _list_literal(scope, syntax)
    if isinstance(syntax, ast.DateConstant):
        return _date_literal(scope, syntax)
    value = syntax.value
    if isinstance(value, bool):
        return Literal(value, BOOL)
    if isinstance(value, int):
        return Literal(value, COUNT)
    return Literal(value, FLOAT if isinstance(value, float) else STRING)


def _date_literal(scope: Scope, syntax: ast.DateConstant) -> Literal:
    try:
        if syntax.function == "date":
            return Literal(parse_date(syntax.text), PropertyType(Scalar.DATE))
        return Literal(parse_datetime(syntax.text), DATETIME)
    except ValueError as failure:
        raise scope.fail(None, str(failure), syntax.span) from None


def _list_literal(scope: Scope, syntax: ast.ListConstant) -> Literal:
    items: list[Literal] = []
    for item in syntax.items:
        if isinstance(item, ast.ListConstant):
            raise scope.fail(None, "a list cannot hold lists", item.span)
        items.append(literal(scope, item))
        if not are_compatible(items[0].type, items[-1].type):
            raise scope.fail(
                None, f"a list cannot hold both {items[0].type} and {items[-1].type}", syntax.items[len(items) - 1].span
            )
    if not items:
        return Literal((), PropertyType(Scalar.STRING, is_list=True))
    if any(item.type.scalar is Scalar.F64 for item in items):
        return Literal(tuple(float(item.value) for item in items), PropertyType(Scalar.F64, is_list=True))
    return Literal(tuple(item.value for item in items), PropertyType(items[0].type.scalar, is_list=True))


# --- names -----------------------------------------------------------------------------------------------------------


def property_ref(scope: Scope, access: ast.PropertyAccess) -> PropertyRef:
    """`$v.p` of a bound node or edge."""
    name = access.variable
    owner = None if name == ANONYMOUS else (scope.node(name) or scope.edge(name))
    if owner is None:
        why = "is a parameter and has no properties" if name in scope.parameters else "is not bound here"
        if scope.is_path(name):
            why = f"is a path: use length(${name}), nodes(${name}) or edges(${name})"
        if name == ANONYMOUS:
            why = "is anonymous and cannot be referred to"
        raise scope.fail("T6", f"${name} {why}", access.span)
    found: Property | None = owner.properties.get(access.property)
    if found is None:
        if access.property == "id":
            return PropertyRef(name, "id", STRING.with_nullable(scope.is_nullable(name)))
        guess = did_you_mean(access.property, owner.properties)
        raise scope.fail("T6", f"{owner.name} has no property '{access.property}'{guess}", access.span)
    return PropertyRef(name, access.property, _nullable(scope, name, found.type))


def _nullable(scope: Scope, name: str, kind: PropertyType) -> PropertyType:
    """The type of a property; it may be null where its owner may."""
    return kind.with_nullable(True) if scope.is_nullable(name) else kind


def parameter_ref(scope: Scope, variable: ast.Variable) -> ParameterRef | None:
    """The parameter of this name, or None."""
    kind = scope.parameters.get(variable.name)
    return None if kind is None else ParameterRef(variable.name, kind)


def bare_edge(scope: Scope, variable: ast.Variable) -> TypeCheckError:
    """The error of using an edge variable without a property."""
    return scope.fail("T23", f"${variable.name} is an edge: use one of its properties, or its id", variable.span)


def unbound(scope: Scope, variable: ast.Variable, code: str | None = None) -> TypeCheckError:
    """The error of a variable that is neither a parameter nor bound."""
    guess = did_you_mean(variable.name, scope.known(), prefix="$")
    return scope.fail(code, f"${variable.name} is not bound here and is not a parameter{guess}", variable.span)


def unknown_alias(scope: Scope, alias: ast.Alias, place: Place) -> TypeCheckError:
    """The error of a bare name that stands for nothing."""
    name = alias.name
    if name == "null":
        return scope.fail(None, "there is no null literal: test with 'is null' or 'is not null'", alias.span)
    habit = hint_for(name)
    hint = did_you_mean(name, place.names) or (
        f": {habit}" if habit else place.hint or f"; variables are written ${name}"
    )
    return scope.fail(place.name_code, f"there is no {place.names_are} '{name}' here{hint}", alias.span)


def check_bound(scope: Scope, variable: ast.Variable) -> None:
    """Refuse a variable that stands for nothing at all."""
    name = variable.name
    if name not in scope.parameters and scope.node(name) is None and scope.edge(name) is None:
        raise unbound(scope, variable)


def blob_value(scope: Scope, span: Span) -> TypeCheckError:
    """The error of reading a Blob in a query."""
    return scope.fail("T24", "a Blob cannot be read in a query; read it by type, id and property", span)
