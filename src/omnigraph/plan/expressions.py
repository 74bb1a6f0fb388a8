"""From written expressions to typed ones: names looked up, calls found in the table of functions, numbers computed."""

from __future__ import annotations

from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.catalog.types import INTEGERS, PropertyType, Scalar
from omnigraph.errors import TypeCheckError
from omnigraph.language import query_ast as ast
from omnigraph.plan import aggregates, scalar_functions, search_functions  # noqa: F401  (their entries fill the table)
from omnigraph.plan.functions import TABLE, Family, Function, Takes, names
from omnigraph.plan.names import (
    COUNT,
    Place,
    bare_edge,
    literal,
    parameter_ref,
    property_ref,
    unbound,
    unknown_alias,
)
from omnigraph.plan.operators import (
    Arithmetic,
    EntityId,
    Expression,
    FunctionCall,
    Literal,
    Negative,
    Now,
    PathValue,
)
from omnigraph.plan.scope import Scope
from omnigraph.plan.types import type_of

_DATES = (Scalar.DATE, Scalar.DATETIME)
PATH = PropertyType(Scalar.PATH)
_PATH_PARTS = {
    "length": COUNT,
    "nodes": PropertyType(Scalar.STRING, is_list=True),
    "edges": PropertyType(Scalar.STRING, is_list=True),
}


def expression(scope: Scope, syntax: ast.ExpressionSyntax, place: Place) -> Expression:
    """A written expression as an operator with a type."""
    match syntax:
        case ast.PropertyAccess():
            return property_ref(scope, syntax)
        case ast.Variable():
            return _variable(scope, syntax, place)
        case ast.Constant(value=bool() as value) if ("true" if value else "false") in place.names:
            return place.names["true" if value else "false"]  # A property may be called so, as any other.
        case ast.Constant() | ast.DateConstant() | ast.ListConstant():
            return literal(scope, syntax)
        case ast.Alias():
            found = place.names.get(syntax.name)
            if found is None:
                raise unknown_alias(scope, syntax, place)
            return found
        case ast.Call():
            return _call(scope, syntax, place)
        case ast.Minus():
            return _negative(scope, syntax, place)
        case ast.Arithmetic():
            return _arithmetic(scope, syntax, place)
        case ast.AllProperties(variable=name):
            raise scope.fail(None, f"${name}.* stands for several columns and belongs in return alone", syntax.span)


def _variable(scope: Scope, syntax: ast.Variable, place: Place) -> Expression:
    parameter = parameter_ref(scope, syntax)
    if parameter is not None:
        return parameter
    name = syntax.name
    if scope.edge(name) is not None:
        raise bare_edge(scope, syntax)
    if scope.node(name) is not None:
        return EntityId(name, scope.is_nullable(name))
    if scope.is_path(name):
        return PathValue(name, "path", PATH.with_nullable(scope.is_nullable(name)))
    raise unbound(scope, syntax, place.variable_code)


# --- calls -----------------------------------------------------------------------------------------------------------


def _call(scope: Scope, call: ast.Call, place: Place) -> Expression:
    function = TABLE.get(call.function)
    if function is None:
        raise _unknown_function(scope, call, place)
    if function.family not in place.families:
        raise _misplaced(scope, call, function, place)
    if call.distinct and function.family is not Family.AGGREGATE:
        raise scope.fail(None, f"'distinct' belongs into an aggregate, not into {call.function}(…)", call.span)
    if not function.accepts_count(len(call.arguments)):
        raise scope.fail(None, f"{call.function} takes {_counted(function)}, not {len(call.arguments)}", call.span)
    if function.lowering is not None:
        made: Expression = function.lowering(scope, call, place, expression)
        return made
    if function.name == "now":
        return Now()
    return _scalar_call(scope, call, function, place)


def _scalar_call(scope: Scope, call: ast.Call, function: Function, place: Place) -> Expression:
    arguments = tuple(expression(scope, argument, place) for argument in call.arguments)
    kinds = [type_of(argument) for argument in arguments]
    for position, (kind, written) in enumerate(zip(kinds, call.arguments, strict=True)):
        taken = function.taken(position)
        argument = arguments[position]
        if isinstance(argument, EntityId) or not taken.fits(kind):
            given = _shown(argument, kind)
            raise scope.fail("T7", f"{function.name} takes {taken.value} here, not {given}", written.span)
    if function.taken(0) is Takes.PLAIN and len(kinds) > 1 and scalar_functions.common_type(kinds) is None:
        raise scope.fail(
            "T7", f"{function.name} takes values of one type, not {' and '.join(map(str, kinds))}", call.span
        )
    if isinstance(arguments[0], PathValue) and arguments[0].part == "path":
        return PathValue(
            arguments[0].variable, function.name, _PATH_PARTS[function.name].with_nullable(kinds[0].nullable)
        )
    if function.check is not None:
        fault = function.check([each.value if isinstance(each, Literal) else None for each in arguments])
        if fault is not None:
            raise scope.fail(None, fault, call.span)
    assert function.gives is not None
    return FunctionCall(function.name, arguments, function.gives(kinds))


def _counted(function: Function) -> str:
    if function.repeats:
        return f"{function.least} or more arguments"
    counts = range(function.least, len(function.takes) + 1)
    words = " or ".join(str(count) if count else "no" for count in counts)
    return f"{words} argument{'' if words == '1' else 's'}"


def _unknown_function(scope: Scope, call: ast.Call, place: Place) -> TypeCheckError:
    guess = did_you_mean(call.function, names(place.families))
    return scope.fail(None, f"there is no function {call.function}{guess}", call.span)


def _misplaced(scope: Scope, call: ast.Call, function: Function, place: Place) -> TypeCheckError:
    if function.family is Family.RANK:
        return scope.fail("T7", f"a rank belongs in return or order, not in {place.what}", call.span)
    if place.what == "an aggregate":
        return scope.fail("T8", "an aggregate cannot stand inside another", call.span)
    return scope.fail("T7", f"{call.function}(…) cannot stand in {place.what}", call.span)


# --- arithmetic ------------------------------------------------------------------------------------------------------


def _negative(scope: Scope, syntax: ast.Minus, place: Place) -> Expression:
    operand = expression(scope, syntax.operand, place)
    kind = type_of(operand)
    if isinstance(operand, EntityId) or not kind.is_numeric:
        raise scope.fail("T7", f"only a number has a negative, not {_shown(operand, kind)}", syntax.span)
    if isinstance(operand, Literal):
        return Literal(-operand.value, kind)
    scalar = Scalar.I64 if kind.scalar in INTEGERS else Scalar.F64
    return Negative(operand, PropertyType(scalar, nullable=kind.nullable))


def _arithmetic(scope: Scope, syntax: ast.Arithmetic, place: Place) -> Expression:
    left, right = expression(scope, syntax.left, place), expression(scope, syntax.right, place)
    kinds = type_of(left), type_of(right)
    scalar = None
    if not isinstance(left, EntityId) and not isinstance(right, EntityId):
        scalar = _arithmetic_type(syntax.operator, *kinds)
    if scalar is None:
        shown = f"{_shown(left, kinds[0])} {syntax.operator} {_shown(right, kinds[1])}"
        hint = "; texts are joined by concat(a, b)" if Scalar.STRING in (kinds[0].scalar, kinds[1].scalar) else ""
        raise scope.fail("T7", f"{shown} cannot be computed{hint}", syntax.span)
    return Arithmetic(
        syntax.operator, left, right, PropertyType(scalar, nullable=kinds[0].nullable or kinds[1].nullable)
    )


def _arithmetic_type(operator: str, left: PropertyType, right: PropertyType) -> Scalar | None:
    if left.is_numeric and right.is_numeric:
        both = left.scalar in INTEGERS and right.scalar in INTEGERS
        return Scalar.I64 if both and operator != "/" else Scalar.F64
    if left.is_list or right.is_list:
        return None
    if operator == "-" and left.scalar is right.scalar and left.scalar in _DATES:
        return Scalar.F64
    if operator in ("+", "-") and left.scalar in _DATES and right.is_numeric:
        return left.scalar
    if operator == "+" and left.is_numeric and right.scalar in _DATES:
        return right.scalar
    return None


def _shown(expression: Expression, kind: PropertyType) -> str:
    return f"${expression.variable}" if isinstance(expression, EntityId) else str(kind)
