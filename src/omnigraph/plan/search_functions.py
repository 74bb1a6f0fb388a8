"""Search in the table of functions: the entries of `search`, `fuzzy`, `match_text`, `bm25`, `nearest` and `rrf`."""

from __future__ import annotations

from omnigraph.catalog.types import INTEGERS, NUMERIC, PropertyType, Scalar
from omnigraph.language import query_ast as ast
from omnigraph.plan.functions import Family, Function, Lower, Takes, register
from omnigraph.plan.names import Place, check_bound, literal, parameter_ref, property_ref, unbound, unknown_alias
from omnigraph.plan.operators import (
    Bm25,
    Expression,
    Literal,
    Nearest,
    Now,
    PropertyRef,
    Rrf,
    TextFunction,
    TextMatch,
    Value,
)
from omnigraph.plan.scope import Scope

DEFAULT_FUZZY_DISTANCE = 2
DEFAULT_RRF_K = 60
_COUNT = PropertyType(Scalar.I64)
_TEXT = (Takes.STRING, Takes.STRING)


def text_match(scope: Scope, call: ast.Call, place: Place, _lower: Lower | None = None) -> TextMatch:
    """`search`, `fuzzy` or `match_text`."""
    code = "T20" if call.function == "match_text" else "T19"
    field = _text_field(scope, code, call.function, call.arguments[0], place)
    query = _text_query(scope, code, call.function, call.arguments[1])
    function = TextFunction(call.function)
    if function is not TextFunction.FUZZY:
        return TextMatch(function, field, query)
    if len(call.arguments) < 3:
        return TextMatch(function, field, query, Literal(DEFAULT_FUZZY_DISTANCE, _COUNT))
    distance = _integer(scope, code, "the distance of fuzzy", call.arguments[2], least=0)
    return TextMatch(function, field, query, distance)


def _refuse_nullable(scope: Scope, field: PropertyRef, call: ast.Call) -> None:
    """Only what is there can be ranked."""
    if scope.is_nullable(field.variable):
        raise scope.fail(
            None, f"${field.variable} may be null and cannot be ranked: bind it outside optional {{ }}", call.span
        )


def bm25(scope: Scope, call: ast.Call, place: Place, _lower: Lower | None = None) -> Bm25:
    """`bm25(field, query)`."""
    field = _text_field(scope, "T20", "bm25", call.arguments[0], place)
    _refuse_nullable(scope, field, call)
    return Bm25(field, _text_query(scope, "T20", "bm25", call.arguments[1]))


def nearest(scope: Scope, call: ast.Call, place: Place, _lower: Lower | None = None) -> Nearest:
    """`nearest($v.p, q)`; a text query brings the model along that the stored vectors came from."""
    access = call.arguments[0]
    if not isinstance(access, ast.PropertyAccess):
        raise scope.source.parse_error("nearest measures a Vector property such as $v.profile", access.span)
    field = property_ref(scope, access)
    _refuse_nullable(scope, field, call)
    if scope.edge(field.variable) is not None:
        raise scope.fail("T23", f"nearest cannot rank edges by ${field.variable}.{field.property}", access.span)
    dimension = field.type.dimension
    if dimension is None:
        raise scope.fail("T15", f"nearest needs a Vector property; {_shown(field)} is {field.type}", access.span)
    owner = scope.node(field.variable)
    query = _nearest_query(scope, call.arguments[1], dimension)
    if isinstance(query, Now) or query.type.scalar is not Scalar.STRING:
        return Nearest(field, query)
    embedding = owner.properties[field.property].embedding if owner is not None else None
    return Nearest(field, query, embedding.model if embedding is not None else None)


def _nearest_query(scope: Scope, syntax: ast.ExpressionSyntax, dimension: int) -> Value:
    match syntax:
        case ast.ListConstant():
            value = literal(scope, syntax)
            count = len(value.value)
            if count and value.type.scalar not in NUMERIC:
                raise scope.fail("T15", "a query vector holds numbers", syntax.span)
            if count != dimension:
                raise scope.fail("T15", f"the query vector has {count} values, not {dimension}", syntax.span)
            return Literal(tuple(map(float, value.value)), PropertyType(Scalar.VECTOR, dimension=dimension))
        case ast.Constant(value=str()):
            return literal(scope, syntax)
        case ast.Variable():
            return _nearest_parameter(scope, syntax, dimension)
    raise scope.fail("T15", "nearest compares with a vector or a text, given as a literal or parameter", syntax.span)


def _nearest_parameter(scope: Scope, syntax: ast.Variable, dimension: int) -> Value:
    parameter = parameter_ref(scope, syntax)
    if parameter is None:
        if scope.node(syntax.name) is None and scope.edge(syntax.name) is None:
            raise unbound(scope, syntax)
        raise scope.fail(
            "T15", "nearest compares with a vector or a text, given as a literal or parameter", syntax.span
        )
    kind = parameter.type
    if kind.scalar is Scalar.VECTOR:
        if kind.dimension != dimension:
            raise scope.fail("T15", f"${syntax.name} has {kind.dimension} dimensions, not {dimension}", syntax.span)
        return parameter
    if (kind.is_list and kind.scalar in NUMERIC) or (kind.scalar is Scalar.STRING and not kind.is_list):
        return parameter
    raise scope.fail("T15", f"nearest cannot compare with ${syntax.name}, which is {kind}", syntax.span)


def rrf(scope: Scope, call: ast.Call, place: Place, _lower: Lower | None = None) -> Rrf:
    """`rrf(a, b, k)` over two rankings of one variable."""
    first, second = (_rank(scope, arm, place) for arm in call.arguments[:2])
    if first.property.variable != second.property.variable:
        raise scope.fail(
            "T21",
            f"both rankings of rrf must rank one variable, not ${first.property.variable}"
            f" and ${second.property.variable}",
            call.span,
        )
    if len(call.arguments) < 3:
        return Rrf(first, second, Literal(DEFAULT_RRF_K, _COUNT))
    return Rrf(first, second, _integer(scope, "T21", "the constant of rrf", call.arguments[2], least=1))


def _rank(scope: Scope, arm: ast.ExpressionSyntax, place: Place) -> Nearest | Bm25:
    if not isinstance(arm, ast.Call) or arm.function not in ("nearest", "bm25") or len(arm.arguments) != 2:
        raise scope.source.parse_error("rrf fuses two rankings, each nearest(…) or bm25(…)", arm.span)
    return nearest(scope, arm, place) if arm.function == "nearest" else bm25(scope, arm, place)


def _text_field(scope: Scope, code: str, function: str, syntax: ast.ExpressionSyntax, place: Place) -> PropertyRef:
    found: Expression | None = None
    if isinstance(syntax, ast.PropertyAccess):
        found = property_ref(scope, syntax)
    elif isinstance(syntax, ast.Alias):
        found = place.names.get(syntax.name)
        if found is None:
            raise unknown_alias(scope, syntax, place)
    elif isinstance(syntax, ast.Variable):
        check_bound(scope, syntax)
    if not isinstance(found, PropertyRef):
        raise scope.fail(code, f"{function} looks through a String property such as $v.name", syntax.span)
    if scope.edge(found.variable) is not None:
        raise scope.fail("T23", f"{function} cannot look through edges", syntax.span)
    if found.type.scalar is not Scalar.STRING or found.type.is_list:
        raise scope.fail(code, f"{function} needs a String property; {_shown(found)} is {found.type}", syntax.span)
    return found


def _text_query(scope: Scope, code: str, function: str, syntax: ast.ExpressionSyntax) -> Value:
    if isinstance(syntax, ast.Constant) and isinstance(syntax.value, str):
        return literal(scope, syntax)
    if isinstance(syntax, ast.Variable):
        parameter = parameter_ref(scope, syntax)
        if parameter is not None and parameter.type.scalar is Scalar.STRING and not parameter.type.is_list:
            return parameter
        check_bound(scope, syntax)
    raise scope.fail(code, f"{function} takes its query as a String literal or parameter", syntax.span)


def _integer(scope: Scope, code: str, what: str, syntax: ast.ExpressionSyntax, *, least: int) -> Value:
    if isinstance(syntax, ast.Constant) and isinstance(syntax.value, int) and not isinstance(syntax.value, bool):
        if syntax.value < least:
            raise scope.fail(code, f"{what} is at least {least}, not {syntax.value}", syntax.span)
        return Literal(syntax.value, _COUNT)
    if isinstance(syntax, ast.Variable):
        parameter = parameter_ref(scope, syntax)
        if parameter is not None and parameter.type.scalar in INTEGERS and not parameter.type.is_list:
            return parameter
        check_bound(scope, syntax)
    raise scope.fail(code, f"{what} is an integer", syntax.span)


def _shown(ref: PropertyRef) -> str:
    return f"${ref.variable}.{ref.property}"


register(
    Function("search", _TEXT, family=Family.TEXT, lowering=text_match, summary="whether a text shares a word"),
    Function("match_text", _TEXT, family=Family.TEXT, lowering=text_match, summary="whether a text shares a word"),
    Function(
        "fuzzy",
        (*_TEXT, Takes.INTEGER),
        optional=1,
        family=Family.TEXT,
        lowering=text_match,
        summary="words nearly alike",
    ),
    Function("bm25", _TEXT, family=Family.RANK, lowering=bm25, summary="how well a text fits a query"),
    Function("nearest", _TEXT, family=Family.RANK, lowering=nearest, summary="the distance of a vector"),
    Function(
        "rrf", (*_TEXT, Takes.INTEGER), optional=1, family=Family.RANK, lowering=rrf, summary="two rankings fused"
    ),
)
