"""From the clauses of a match to a `Pattern`.

Clauses are checked top to bottom, so a filter uses only variables introduced above it. Negations come last within
their block: a `not` sees every variable of the block around it, wherever that is bound, because the order of clauses
never changes a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from omnigraph.catalog.model import EdgeType, NodeType, Property
from omnigraph.catalog.types import Scalar
from omnigraph.dataclass import dataclass
from omnigraph.errors import TypeCheckError
from omnigraph.language import query_ast as ast
from omnigraph.plan.expressions import are_compatible, operand, text_match, type_of
from omnigraph.plan.fitting import compared_value
from omnigraph.plan.operators import (
    AntiJoin,
    Comparison,
    ComparisonOperator,
    Expand,
    Filter,
    ListContains,
    Literal,
    Now,
    ParameterRef,
    Pattern,
    Predicate,
    PropertyRef,
    Scan,
    StringPredicate,
    StringTest,
    TextMatch,
)
from omnigraph.plan.scope import ANONYMOUS, Scope


def match_pattern(scope: Scope, clauses: Sequence[ast.Clause]) -> Pattern:
    """Check the clauses of one block, binding its variables in `scope`."""
    block = _Block(scope)
    negations: list[ast.Negation] = []
    failure: TypeCheckError | None = None
    for clause in clauses:
        if isinstance(clause, ast.Negation):
            negations.append(clause)
            continue
        try:
            block.add(clause)
        except TypeCheckError as error:
            failure = error  # a negation above this clause may be wrong as well, and then comes first
            break
    for negation in negations:
        block.add_negation(negation)
    if failure is not None:
        raise failure
    return block.pattern()


@dataclass
class _Block:
    """The operators of one block while they are collected."""

    scope: Scope
    scans: list[Scan] = field(default_factory=list)
    expands: list[Expand] = field(default_factory=list)
    filters: list[Filter] = field(default_factory=list)
    anti_joins: list[AntiJoin] = field(default_factory=list)

    def pattern(self) -> Pattern:
        return Pattern(tuple(self.scans), tuple(self.expands), tuple(self.filters), tuple(self.anti_joins))

    def add(self, clause: ast.Binding | ast.Traversal | ast.FilterClause | ast.TextCall) -> None:
        match clause:
            case ast.Binding():
                self._binding(clause)
            case ast.Traversal():
                self._traversal(clause)
            case ast.FilterClause():
                self.filters.append(Filter(predicate(self.scope, clause)))
            case ast.TextCall():
                self.filters.append(Filter(text_match(self.scope, clause)))

    def add_negation(self, negation: ast.Negation) -> None:
        inner = self.scope.inner()
        pattern = match_pattern(inner, negation.clauses)
        outer = sorted(name for name in inner.used if inner.is_bound_outside(name))
        if not outer:
            raise self.scope.fail("T9", "not { } must use a variable that is bound outside it", negation.span)
        self.scope.used.update(outer)
        self.anti_joins.append(AntiJoin(pattern, tuple(outer)))

    # --- binding

    def _binding(self, clause: ast.Binding) -> None:
        scope = self.scope
        node = scope.catalog.nodes.get(clause.type_name)
        if node is None:
            raise scope.fail("T1", f"there is no node type {clause.type_name}", clause.span)
        variable = self._bind(clause.variable, node)
        for entry in clause.matches:
            self.filters.append(Filter(self._property_match(variable, node, entry)))

    def _property_match(self, variable: str, node: NodeType, entry: ast.PropertyMatch) -> Predicate:
        scope = self.scope
        prop: Property | None = node.properties.get(entry.property)
        if prop is None:
            raise scope.fail("T2", f"{node.name} has no property '{entry.property}'", entry.span)
        if prop.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
            raise scope.fail("T3", f"'{prop.name}' is {prop.type} and cannot be matched", entry.span)
        value = compared_value(scope, prop, entry.value, literal_code="T3")
        ref = PropertyRef(variable, prop.name, prop.type)
        return ListContains(ref, value) if prop.type.is_list else Comparison(ComparisonOperator.EQ, ref, value)

    # --- traversal

    def _traversal(self, clause: ast.Traversal) -> None:
        scope = self.scope
        edge = scope.catalog.edges_by_lower_name.get(clause.edge_name.lower())
        if edge is None:
            raise scope.fail("T4", f"there is no edge type '{clause.edge_name}'", clause.span)
        if clause.undirected and edge.source != edge.target:
            raise scope.fail(
                "T22", f"{edge.name} joins {edge.source} and {edge.target}, so it has only one direction", clause.span
            )
        low, high = self._hops(clause.hops)
        edge_variable = self._edge_variable(clause, low, high)
        forward = self._is_forward(clause, edge)
        left_type, right_type = (edge.source, edge.target) if forward else (edge.target, edge.source)
        left = self._bind(clause.left, scope.catalog.nodes[left_type])
        right = self._bind(clause.right, scope.catalog.nodes[right_type])
        if edge_variable is not None:
            scope.edges[edge_variable] = edge
        source, target = (left, right) if forward else (right, left)
        self.expands.append(
            Expand(edge.name, source, target, edge.source, edge.target, clause.undirected, low, high, edge_variable)
        )

    def _hops(self, hops: ast.Hops | None) -> tuple[int, int]:
        if hops is None:
            return 1, 1
        if hops.high is None:
            raise self.scope.fail("T15", "hops need an upper bound, such as {1,3}", hops.span)
        if not 1 <= hops.low <= hops.high:
            raise self.scope.fail("T15", f"hops go from at least 1 upwards, not {hops.low} to {hops.high}", hops.span)
        return hops.low, hops.high

    def _edge_variable(self, clause: ast.Traversal, low: int, high: int) -> str | None:
        variable, scope = clause.edge_variable, self.scope
        if variable is None or variable.name == ANONYMOUS:
            return None
        name = variable.name
        if name in scope.parameters:
            raise scope.fail(None, f"${name} is a parameter and cannot name an edge", variable.span)
        if (low, high) != (1, 1):
            raise scope.fail("T23", f"${name} cannot name the edges of several hops", variable.span)
        if name in (clause.left.name, clause.right.name):
            raise scope.fail("T23", f"${name} cannot be both the edge and its end", variable.span)
        if scope.node(name) is not None or scope.edge(name) is not None:
            raise scope.fail("T23", f"${name} is already bound", variable.span)
        return name

    def _is_forward(self, clause: ast.Traversal, edge: EdgeType) -> bool:
        """True when the left variable is at the edge's source; the variables' types decide where they differ."""
        left, right = self._bound_type(clause.left), self._bound_type(clause.right)
        same = clause.left.name == clause.right.name != ANONYMOUS
        if not (same and edge.source != edge.target):
            if left in (None, edge.source) and right in (None, edge.target):
                return True
            if edge.source != edge.target and left in (None, edge.target) and right in (None, edge.source):
                return False
        ends = f"${clause.left.name} ({left or 'not bound'}) and ${clause.right.name} ({right or 'not bound'})"
        raise self.scope.fail(
            "T5", f"{edge.name} joins {edge.source} to {edge.target}, which {ends} do not fit", clause.span
        )

    def _bound_type(self, variable: ast.Variable) -> str | None:
        if variable.name == ANONYMOUS:
            return None
        node = self.scope.node(variable.name)
        return None if node is None else node.name

    def _bind(self, variable: ast.Variable, node: NodeType) -> str:
        """Bind a variable to a node type, or see that it is bound to that type already; `$_` gets a fresh name."""
        scope, name = self.scope, variable.name
        if name == ANONYMOUS:
            name = next(scope.anonymous_names)
        elif name in scope.parameters:
            raise scope.fail(None, f"${name} is a parameter and cannot be matched", variable.span)
        elif scope.edge(name) is not None:
            raise scope.fail("T23", f"${name} is an edge and cannot be a node", variable.span)
        bound = scope.node(name)
        if bound is None:
            scope.nodes[name] = node
            self.scans.append(Scan(name, node.name))
        elif bound.name != node.name:
            raise scope.fail(None, f"${name} is already bound to {bound.name}, not {node.name}", variable.span)
        return name


# --- filters ---------------------------------------------------------------------------------------------------------


def predicate(scope: Scope, clause: ast.FilterClause) -> Predicate:
    """`left operator right` with its operand types checked."""
    left, right = operand(scope, clause.left), operand(scope, clause.right)
    if clause.operator == "contains" and type_of(left).is_list:
        return _membership(scope, clause, left, right)
    if clause.operator in ("contains", "starts_with"):
        return _string_test(scope, clause, left, right)
    left_type, right_type = type_of(left), type_of(right)
    for side, kind in ((clause.left, left_type), (clause.right, right_type)):
        if not kind.is_plain:
            raise scope.fail("T7", f"{kind} cannot be compared with '{clause.operator}'", side.span)
    if not are_compatible(left_type, right_type):
        raise scope.fail("T7", f"{left_type} and {right_type} cannot be compared", clause.span)
    return Comparison(ComparisonOperator(clause.operator), left, right)


def _membership(scope: Scope, clause: ast.FilterClause, left: object, right: object) -> Predicate:
    assert isinstance(left, PropertyRef | ParameterRef | Literal), "nothing else is a list"
    item = type_of(left)
    if isinstance(right, PropertyRef | ParameterRef | Literal | Now):
        kind = type_of(right)
        if kind.is_plain and (kind.scalar is item.scalar or (kind.is_numeric and _holds_numbers(item.scalar))):
            return ListContains(left, right)
        raise scope.fail("T7", f"{item} cannot contain {kind}", clause.right.span)
    raise scope.fail("T7", "a text function cannot be an item of a list", clause.right.span)


def _holds_numbers(scalar: Scalar) -> bool:
    return scalar in (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64)


def _string_test(scope: Scope, clause: ast.FilterClause, left: object, right: object) -> Predicate:
    for side, value in ((clause.left, left), (clause.right, right)):
        if isinstance(value, TextMatch | Now) or not _is_string(value):
            wanted = "a list or a String" if side is clause.left and clause.operator == "contains" else "a String"
            raise scope.fail("T7", f"'{clause.operator}' needs {wanted} here", side.span)
    assert isinstance(left, PropertyRef | ParameterRef | Literal)
    assert isinstance(right, PropertyRef | ParameterRef | Literal)
    return StringPredicate(StringTest(clause.operator), left, right)


def _is_string(value: object) -> bool:
    assert isinstance(value, PropertyRef | ParameterRef | Literal)
    return value.type.scalar is Scalar.STRING and not value.type.is_list
