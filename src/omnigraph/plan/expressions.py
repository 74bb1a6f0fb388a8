"""From written expressions to typed ones: names looked up, literals read, function arguments checked."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.catalog.model import Property
from omnigraph.catalog.types import INTEGERS, NUMERIC, PropertyType, Scalar
from omnigraph.catalog.values import parse_date, parse_datetime
from omnigraph.errors import TypeCheckError
from omnigraph.language import query_ast as ast
from omnigraph.language.source import Span
from omnigraph.plan.operators import (
    Aggregate,
    AggregateFunction,
    Bm25,
    EdgeCount,
    EntityId,
    Expression,
    Literal,
    Nearest,
    Now,
    ParameterRef,
    PropertyRef,
    Rrf,
    TextFunction,
    TextMatch,
    Value,
)
from omnigraph.plan.scope import ANONYMOUS, Scope

STRING = PropertyType(Scalar.STRING)
BOOL = PropertyType(Scalar.BOOL)
FLOAT = PropertyType(Scalar.F64)
COUNT = PropertyType(Scalar.I64)
DATETIME = PropertyType(Scalar.DATETIME)
DEFAULT_FUZZY_DISTANCE = 2
DEFAULT_RRF_K = 60

Aliases = Mapping[str, Expression]
Operand = PropertyRef | ParameterRef | Literal | Now | TextMatch


def type_of(expression: Expression) -> PropertyType:
    """The type of an expression's value, as a result column would have it."""
    match expression:
        case PropertyRef(type=kind) | ParameterRef(type=kind) | Literal(type=kind):
            return kind
        case EntityId():
            return STRING
        case Now():
            return DATETIME
        case TextMatch():
            return BOOL
        case Nearest(property=ref):
            return FLOAT.with_nullable(ref.type.nullable)
        case Aggregate(function=AggregateFunction.COUNT):
            return COUNT
        case Aggregate(function=AggregateFunction.SUM | AggregateFunction.AVG):
            return FLOAT.with_nullable(True)
        case Aggregate(argument=PropertyRef(type=kind) | Literal(type=kind)):
            return kind.with_nullable(True)
        case _:
            return FLOAT


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
        if name == ANONYMOUS:
            why = "is anonymous and cannot be referred to"
        raise scope.fail("T6", f"${name} {why}", access.span)
    found: Property | None = owner.properties.get(access.property)
    if found is None:
        raise scope.fail("T6", f"{owner.name} has no property '{access.property}'", access.span)
    return PropertyRef(name, access.property, found.type)


def parameter_ref(scope: Scope, variable: ast.Variable) -> ParameterRef | None:
    """The parameter of this name, or None."""
    kind = scope.parameters.get(variable.name)
    return None if kind is None else ParameterRef(variable.name, kind)


def bare_edge(scope: Scope, variable: ast.Variable) -> TypeCheckError:
    """The error of using an edge variable without a property."""
    return scope.fail("T23", f"${variable.name} is an edge: use one of its properties", variable.span)


def unbound(scope: Scope, variable: ast.Variable) -> TypeCheckError:
    """The error of a variable that is neither a parameter nor bound."""
    return scope.fail(None, f"${variable.name} is not bound here and is not a parameter", variable.span)


def unknown_alias(scope: Scope, alias: ast.Alias) -> TypeCheckError:
    """The error of a bare name that no earlier `as` gave."""
    return scope.fail(None, f"there is no alias '{alias.name}' here; variables are written ${alias.name}", alias.span)


# --- operands of filters ---------------------------------------------------------------------------------------------


def operand(scope: Scope, syntax: ast.ExpressionSyntax) -> Operand:
    """One side of a filter: a property, parameter, literal, `now()` or text function."""
    match syntax:
        case ast.PropertyAccess():
            return property_ref(scope, syntax)
        case ast.Variable():
            parameter = parameter_ref(scope, syntax)
            if parameter is not None:
                return parameter
            if scope.edge(syntax.name) is not None:
                raise bare_edge(scope, syntax)
            if scope.node(syntax.name) is not None:
                raise scope.fail("T7", f"${syntax.name} is a node: compare its properties", syntax.span)
            raise unbound(scope, syntax)
        case ast.Constant() | ast.DateConstant() | ast.ListConstant():
            return literal(scope, syntax)
        case ast.NowCall():
            return Now()
        case ast.TextCall():
            return text_match(scope, syntax)
        case ast.Alias():
            raise unknown_alias(scope, syntax)
        case ast.AggregateCall(function=name):
            raise scope.fail("T7", f"{name}(…) cannot stand in a match", syntax.span)
        case ast.NearestCall() | ast.Bm25Call() | ast.RrfCall():
            raise scope.fail("T7", "a rank belongs in return or order, not in a match", syntax.span)


# --- search functions ------------------------------------------------------------------------------------------------


def text_match(scope: Scope, call: ast.TextCall, aliases: Aliases | None = None) -> TextMatch:
    """`search`, `fuzzy` or `match_text`."""
    code = "T20" if call.function == "match_text" else "T19"
    field = _text_field(scope, code, call.function, call.field, aliases)
    query = _text_query(scope, code, call.function, call.query)
    function = TextFunction(call.function)
    if function is not TextFunction.FUZZY:
        return TextMatch(function, field, query)
    if call.distance is None:
        return TextMatch(function, field, query, Literal(DEFAULT_FUZZY_DISTANCE, COUNT))
    distance = _integer(scope, code, "the distance of fuzzy", call.distance, least=0)
    return TextMatch(function, field, query, distance)


def bm25(scope: Scope, call: ast.Bm25Call, aliases: Aliases | None = None) -> Bm25:
    """`bm25(field, query)`."""
    field = _text_field(scope, "T20", "bm25", call.field, aliases)
    return Bm25(field, _text_query(scope, "T20", "bm25", call.query))


def nearest(scope: Scope, call: ast.NearestCall) -> Nearest:
    """`nearest($v.p, q)`; a text query brings the model along that the stored vectors came from."""
    field = property_ref(scope, call.property)
    if scope.edge(field.variable) is not None:
        raise scope.fail("T23", f"nearest cannot rank edges by ${field.variable}.{field.property}", call.property.span)
    dimension = field.type.dimension
    if dimension is None:
        raise scope.fail("T15", f"nearest needs a Vector property; {_shown(field)} is {field.type}", call.property.span)
    owner = scope.node(field.variable)
    query = _nearest_query(scope, call.query, dimension)
    if type_of(query).scalar is not Scalar.STRING:
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


def rrf(scope: Scope, call: ast.RrfCall, aliases: Aliases | None = None) -> Rrf:
    """`rrf(a, b, k)` over two rankings of one variable."""
    first, second = (_rank(scope, arm, aliases) for arm in (call.first, call.second))
    if first.property.variable != second.property.variable:
        raise scope.fail(
            "T21",
            f"both rankings of rrf must rank one variable, not ${first.property.variable}"
            f" and ${second.property.variable}",
            call.span,
        )
    if call.k is None:
        return Rrf(first, second, Literal(DEFAULT_RRF_K, COUNT))
    return Rrf(first, second, _integer(scope, "T21", "the constant of rrf", call.k, least=1))


def _rank(scope: Scope, call: ast.NearestCall | ast.Bm25Call, aliases: Aliases | None) -> Nearest | Bm25:
    return nearest(scope, call) if isinstance(call, ast.NearestCall) else bm25(scope, call, aliases)


def _text_field(
    scope: Scope, code: str, function: str, syntax: ast.ExpressionSyntax, aliases: Aliases | None
) -> PropertyRef:
    found: Expression | None = None
    if isinstance(syntax, ast.PropertyAccess):
        found = property_ref(scope, syntax)
    elif isinstance(syntax, ast.Alias):
        found = (aliases or {}).get(syntax.name)
        if found is None:
            raise unknown_alias(scope, syntax)
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
        return Literal(syntax.value, COUNT)
    if isinstance(syntax, ast.Variable):
        parameter = parameter_ref(scope, syntax)
        if parameter is not None and parameter.type.scalar in INTEGERS and not parameter.type.is_list:
            return parameter
        check_bound(scope, syntax)
    raise scope.fail(code, f"{what} is an integer", syntax.span)


def check_bound(scope: Scope, variable: ast.Variable) -> None:
    """Refuse a variable that stands for nothing at all."""
    name = variable.name
    if name not in scope.parameters and scope.node(name) is None and scope.edge(name) is None:
        raise unbound(scope, variable)


def _shown(ref: PropertyRef) -> str:
    return f"${ref.variable}.{ref.property}"


# --- aggregates ------------------------------------------------------------------------------------------------------


def aggregate(scope: Scope, call: ast.AggregateCall, aliases: Aliases | None = None) -> Aggregate:
    """`count`, `sum`, `avg`, `min` or `max` of a variable, property or literal."""
    function = AggregateFunction(call.function)
    argument = _aggregate_argument(scope, call.argument, aliases or {})
    if isinstance(argument, EntityId | EdgeCount):
        if function is not AggregateFunction.COUNT:
            raise scope.fail("T8", f"{function} needs a property, not a variable", call.argument.span)
        return Aggregate(function, argument)
    kind = argument.type
    if kind.scalar is Scalar.BLOB:
        raise blob_value(scope, call.argument.span)
    if function in (AggregateFunction.SUM, AggregateFunction.AVG) and not kind.is_numeric:
        raise scope.fail("T8", f"{function} needs numbers, not {kind}", call.argument.span)
    ordered = kind.is_numeric or (kind.scalar is Scalar.STRING and not kind.is_list)
    if function in (AggregateFunction.MIN, AggregateFunction.MAX) and not ordered:
        raise scope.fail("T8", f"{function} needs numbers or Strings, not {kind}", call.argument.span)
    return Aggregate(function, argument)


def _aggregate_argument(
    scope: Scope, syntax: ast.ExpressionSyntax, aliases: Aliases
) -> PropertyRef | EntityId | EdgeCount | Literal:
    match syntax:
        case ast.PropertyAccess():
            return property_ref(scope, syntax)
        case ast.Variable(name=name) if name not in scope.parameters:
            if scope.edge(name) is not None:
                return EdgeCount(name)
            if scope.node(name) is not None:
                return EntityId(name)
            raise unbound(scope, syntax)
        case ast.Constant() | ast.DateConstant() | ast.ListConstant():
            return literal(scope, syntax)
        case ast.Alias(name=name):
            found = aliases.get(name)
            if found is None:
                raise unknown_alias(scope, syntax)
            if isinstance(found, PropertyRef | EntityId | Literal):
                return found
    raise scope.fail("T8", "an aggregate takes a variable, a property or a literal", syntax.span)


def blob_value(scope: Scope, span: Span) -> TypeCheckError:
    """The error of reading a Blob in a query."""
    return scope.fail("T24", "a Blob cannot be read in a query; read it by type, id and property", span)
