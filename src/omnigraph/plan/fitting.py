"""Does a written value fit a property?

The same question has three settings with their own answers: a binding (`{ kind: "tug" }`) and a `where` compare, so any
number may meet any number; an assignment stores, so the value must be one the column can hold.
"""

from __future__ import annotations

import numpy as np

from omnigraph.catalog.model import Property
from omnigraph.catalog.types import FLOATS, INTEGER_RANGES, INTEGERS, NUMERIC, PropertyType, Scalar
from omnigraph.language import query_ast as ast
from omnigraph.language.source import Span
from omnigraph.plan.names import are_compatible, literal
from omnigraph.plan.operators import Literal, Now, ParameterRef, Value
from omnigraph.plan.scope import Scope


def compared_value(scope: Scope, prop: Property, value: ast.ValueSyntax, *, variable_code: str | None = None) -> Value:
    """A value that is compared with a property's value, or with the items of a list property.

    A literal of the wrong kind fails with T3; a number that an integer column cannot hold is fine and
    simply equals nothing.
    """
    item = PropertyType(prop.type.scalar, enum_values=prop.type.enum_values)
    match value:
        case ast.Call():
            return _now(scope, prop.name, item, value)
        case ast.Variable():
            parameter = declared(scope, value, variable_code)
            if parameter.type.is_list or not parameter.type.is_plain or not are_compatible(item, parameter.type):
                raise scope.fail(
                    "T7", f"'{prop.name}' holds {item} and cannot equal ${value.name}, a {parameter.type}", value.span
                )
            return parameter
    constant = literal(scope, value)
    if constant.type.is_list or not are_compatible(item, constant.type):
        raise scope.fail("T3", f"'{prop.name}' holds {item}, not {constant.type}", value.span)
    check_enum(scope, prop, constant, value)
    return constant


def assigned_value(scope: Scope, prop: Property, value: ast.ValueSyntax) -> Value:
    """A written value that is stored in a property."""
    kind = prop.type
    match value:
        case ast.Call():
            return _now(scope, prop.name, kind, value)
        case ast.Variable():
            parameter = declared(scope, value, "T14")
            if not _may_assign(kind, parameter.type):
                raise scope.fail(
                    "T7", f"'{prop.name}' is {kind} and cannot take ${value.name}, a {parameter.type}", value.span
                )
            return parameter
    constant = literal(scope, value)
    if kind.scalar is Scalar.BLOB:
        raise scope.fail("T3", f"'{prop.name}' is a Blob: give it through a parameter", value.span)
    if kind.scalar is Scalar.VECTOR:
        return _vector(scope, prop, constant, value)
    if kind.is_list:
        return _list(scope, prop, constant, value)
    if constant.type.is_list or not _holds(kind.scalar, constant):
        raise scope.fail("T3", f"'{prop.name}' is {kind} and cannot hold {_shown(constant)}", value.span)
    check_enum(scope, prop, constant, value)
    return constant


def assigned_type(scope: Scope, prop: Property, given: PropertyType, span: Span) -> None:
    """Refuse a computed value that a property cannot store, whatever it is."""
    kind = prop.type
    if kind.scalar is Scalar.BLOB:
        raise scope.fail("T3", f"'{prop.name}' is a Blob: give it through a parameter", span)
    fits = _may_assign(kind, given) and (not kind.is_list or kind.scalar is given.scalar)
    hint = ""
    if fits and kind.scalar in INTEGERS and given.scalar in FLOATS:
        fits, hint = False, "; to_int(…) makes an integer of it"
    if not fits:
        raise scope.fail("T7", f"'{prop.name}' is {kind} and cannot take {_an(given)}{hint}", span)


def _an(kind: PropertyType) -> str:
    return f"{'an' if str(kind)[0] in 'AEIO' else 'a'} {kind}"


def declared(scope: Scope, variable: ast.Variable, code: str | None) -> ParameterRef:
    """The parameter a value names; a mutation and a binding know no other variables here."""
    kind = scope.parameters.get(variable.name)
    if kind is None:
        raise scope.fail(code, f"${variable.name} is not a declared parameter", variable.span)
    return ParameterRef(variable.name, kind)


def check_enum(scope: Scope, prop: Property, constant: Literal, value: ast.ValueSyntax) -> None:
    """Refuse a literal outside a property's enum."""
    allowed = prop.type.enum_values
    if allowed is not None and constant.value not in allowed:
        raise scope.fail("T3", f"'{prop.name}' is one of {', '.join(allowed)}, not '{constant.value}'", value.span)


def _now(scope: Scope, name: str, kind: PropertyType, value: ast.Call) -> Value:
    if kind.scalar is not Scalar.DATETIME or kind.is_list:
        raise scope.fail("T7", f"now() is a DateTime and '{name}' is {kind}", value.span)
    return Now()


def _may_assign(kind: PropertyType, given: PropertyType) -> bool:
    if kind.scalar is Scalar.BLOB:
        return given.scalar in (Scalar.BLOB, Scalar.STRING) and not given.is_list
    if kind.scalar is Scalar.VECTOR:
        return given.scalar is Scalar.VECTOR and given.dimension == kind.dimension
    return are_compatible(kind, given)


def _holds(scalar: Scalar, constant: Literal) -> bool:
    """True when a column of this scalar can store the literal without changing it."""
    given = constant.type.scalar
    if scalar in INTEGERS:
        low, high = INTEGER_RANGES[scalar]
        return given in INTEGERS and low <= constant.value <= high
    if scalar in FLOATS:
        return given in NUMERIC and not (scalar is Scalar.F32 and _overflows(constant.value))
    return given is scalar


def _overflows(value: float) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isinf(np.float32(value)))


def _list(scope: Scope, prop: Property, constant: Literal, value: ast.LiteralSyntax) -> Literal:
    item_kind = PropertyType(constant.type.scalar)
    items = constant.value if constant.type.is_list else ()
    if not constant.type.is_list or not all(_holds(prop.type.scalar, Literal(item, item_kind)) for item in items):
        raise scope.fail("T3", f"'{prop.name}' is {prop.type} and cannot hold {_shown(constant)}", value.span)
    return Literal(items, PropertyType(prop.type.scalar, is_list=True))


def _vector(scope: Scope, prop: Property, constant: Literal, value: ast.LiteralSyntax) -> Literal:
    dimension = prop.type.dimension or 0
    if not constant.type.is_list or (constant.value and constant.type.scalar not in NUMERIC):
        raise scope.fail("T3", f"'{prop.name}' is {prop.type} and takes a list of numbers", value.span)
    if len(constant.value) != dimension:
        raise scope.fail("T3", f"'{prop.name}' takes {dimension} values, not {len(constant.value)}", value.span)
    if any(_overflows(item) for item in constant.value):
        raise scope.fail("T3", f"a value is too large for '{prop.name}'", value.span)
    return Literal(tuple(map(float, constant.value)), prop.type.with_nullable(False))


def _shown(constant: Literal) -> str:
    text = str(constant.value) if not isinstance(constant.value, str) else f'"{constant.value}"'
    return text if len(text) <= 40 else f"{text[:40]}…"
