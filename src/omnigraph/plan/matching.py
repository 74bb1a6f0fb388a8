"""From the clauses of a match to a `Pattern`.

Clauses are checked top to bottom, so a filter uses only variables introduced above it. `not` and `exists` come last
within their block: they see every variable of the block around them, wherever that is bound, because the order of
clauses never changes a result.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from omnigraph.catalog.model import EdgeType, NodeType, Property
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.catalog.types import Scalar
from omnigraph.errors import TypeCheckError
from omnigraph.language import query_ast as ast
from omnigraph.language.condition_parser import WORD_OPERATORS
from omnigraph.plan.conditions import predicates
from omnigraph.plan.fitting import compared_value
from omnigraph.plan.names import MATCH
from omnigraph.plan.operators import (
    AntiJoin,
    Block,
    Comparison,
    ComparisonOperator,
    Expand,
    Filter,
    ListContains,
    OptionalMatch,
    Pattern,
    Predicate,
    PropertyRef,
    Scan,
    SemiJoin,
    ShortestPath,
    Union,
)
from omnigraph.plan.scope import ANONYMOUS, Scope


def match_pattern(scope: Scope, clauses: Sequence[ast.Clause]) -> Pattern:
    """Check the clauses of one block, binding its variables in `scope`."""
    block = _Block(scope)
    negations: list[ast.Negation | ast.Exists] = []
    failure: TypeCheckError | None = None
    for clause in clauses:
        if isinstance(clause, ast.Negation | ast.Exists):
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


class _Block(Struct):
    """The operators of one block while they are collected."""

    scope: Scope
    scans: list[Scan] = field(default_factory=list)
    expands: list[Expand] = field(default_factory=list)
    filters: list[Filter] = field(default_factory=list)
    anti_joins: list[AntiJoin] = field(default_factory=list)
    semi_joins: list[SemiJoin] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    paths: list[ShortestPath] = field(default_factory=list)

    def pattern(self) -> Pattern:
        return Pattern(
            tuple(self.scans),
            tuple(self.expands),
            tuple(self.filters),
            tuple(self.anti_joins),
            tuple(self.semi_joins),
            tuple(self.blocks),
            tuple(self.paths),
        )

    def add(self, clause: ast.Clause) -> None:
        match clause:
            case ast.Binding():
                self._binding(clause)
            case ast.Traversal():
                self._traversal(clause)
            case ast.Optional():
                self._optional(clause)
            case ast.Either():
                self._either(clause)
            case ast.ShortestPath():
                self._path(clause)
            case ast.Negation() | ast.Exists():
                self.add_negation(clause)
            case _:
                self.filters.extend(Filter(found) for found in predicates(self.scope, clause, MATCH))

    def add_negation(self, negation: ast.Negation | ast.Exists) -> None:
        inner = self.scope.inner()
        pattern = match_pattern(inner, negation.clauses)
        outer = self._note_used(inner)
        if not outer:
            word = "not" if isinstance(negation, ast.Negation) else "exists"
            raise self.scope.fail("T9", f"{word} {{ }} must use a variable that is bound outside it", negation.span)
        if isinstance(negation, ast.Negation):
            self.anti_joins.append(AntiJoin(pattern, outer))
        else:
            self.semi_joins.append(SemiJoin(pattern, outer))

    # --- blocks

    def _optional(self, clause: ast.Optional) -> None:
        scope = self.scope
        inner = scope.inner()
        pattern = match_pattern(inner, clause.clauses)
        scope.nodes.update(inner.nodes)
        scope.edges.update(inner.edges)
        scope.paths.update(inner.paths)
        binds = [*inner.nodes, *inner.edges, *sorted(inner.paths)]
        scope.nullable.update(binds)
        self._note_used(inner)
        self.blocks.append(OptionalMatch(pattern, tuple(binds)))

    def _either(self, clause: ast.Either) -> None:
        scope = self.scope
        scopes = [scope.inner() for _ in clause.arms]
        arms = tuple(match_pattern(inner, arm) for inner, arm in zip(scopes, clause.arms, strict=True))
        first = scopes[0]
        nodes = {
            name: node
            for name, node in first.nodes.items()
            if all(name in inner.nodes and inner.nodes[name].name == node.name for inner in scopes)
        }
        edges = {
            name: edge
            for name, edge in first.edges.items()
            if all(name in inner.edges and inner.edges[name].name == edge.name for inner in scopes)
        }
        paths = {
            name: kind for name, kind in first.paths.items() if all(inner.paths.get(name) == kind for inner in scopes)
        }
        scope.nodes.update(nodes)
        scope.edges.update(edges)
        scope.paths.update(paths)
        binds = [*nodes, *edges, *sorted(paths)]
        scope.nullable.update(name for name in binds if any(name in inner.nullable for inner in scopes))
        for inner in scopes:
            self._note_used(inner)
        self.blocks.append(Union(arms, tuple(binds)))

    def _note_used(self, inner: Scope) -> tuple[str, ...]:
        """The variables that an inner pattern uses of this one, which therefore uses them, too."""
        outer = sorted(name for name in inner.used if inner.is_bound_outside(name))
        self.scope.used.update(outer)
        return tuple(outer)

    # --- binding

    def _binding(self, clause: ast.Binding) -> None:
        scope = self.scope
        node = scope.catalog.nodes.get(clause.type_name)
        if node is None:
            guess = did_you_mean(clause.type_name, scope.catalog.nodes)
            raise scope.fail("T1", f"there is no node type {clause.type_name}{guess}", clause.span)
        variable = self._bind(clause.variable, node)
        for entry in clause.matches:
            self.filters.append(Filter(self._property_match(variable, node, entry)))

    def _property_match(self, variable: str, node: NodeType, entry: ast.PropertyMatch) -> Predicate:
        scope = self.scope
        prop: Property | None = node.properties.get(entry.property)
        if prop is None:
            guess = did_you_mean(entry.property, node.properties)
            raise scope.fail("T2", f"{node.name} has no property '{entry.property}'{guess}", entry.span)
        if prop.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
            raise scope.fail("T3", f"'{prop.name}' is {prop.type} and cannot be matched", entry.span)
        value = compared_value(scope, prop, entry.value)
        ref = PropertyRef(variable, prop.name, prop.type)
        return ListContains(ref, value) if prop.type.is_list else Comparison(ComparisonOperator.EQ, ref, value)

    # --- traversal

    def _edge_type(self, clause: ast.Traversal | ast.ShortestPath) -> EdgeType:
        scope = self.scope
        edge = scope.catalog.edges_by_lower_name.get(clause.edge_name.lower())
        if edge is None:
            guess = did_you_mean(clause.edge_name, [_written(edge_name) for edge_name in scope.catalog.edges])
            if clause.edge_name in WORD_OPERATORS:
                guess = "; between two variables a word is an edge, so put a condition like this one in brackets"
            raise scope.fail("T4", f"there is no edge type '{clause.edge_name}'{guess}", clause.span)
        if clause.undirected and edge.source != edge.target:
            raise scope.fail(
                "T22", f"{edge.name} joins {edge.source} and {edge.target}, so it has only one direction", clause.span
            )
        return edge

    def _path(self, clause: ast.ShortestPath) -> None:
        scope = self.scope
        edge = self._edge_type(clause)
        low, high = self._hops(clause.hops)
        name = clause.variable.name
        if name in scope.parameters or name == ANONYMOUS or scope.node(name) or scope.edge(name) or scope.is_path(name):
            raise scope.fail(None, f"${name} cannot name a path: it is taken", clause.variable.span)
        for end in (clause.left, clause.right):
            if end.name == ANONYMOUS:
                # Rows are told apart by their named variables; a path between nameless ends would break no tie.
                raise scope.fail(None, "a path leads between two named nodes: give $_ a name", end.span)
        source, target, forward = self._ends(clause, edge)
        scope.paths[name] = (edge.name, source, target, clause.undirected, not forward)
        ends = (source, target, edge.source, edge.target)
        self.paths.append(ShortestPath(name, edge.name, *ends, clause.undirected, low, high, not forward))

    def _traversal(self, clause: ast.Traversal) -> None:
        scope = self.scope
        edge = self._edge_type(clause)
        low, high = self._hops(clause.hops)
        edge_variable = self._edge_variable(clause, low, high)
        source, target, _ = self._ends(clause, edge)
        if edge_variable is not None:
            scope.edges[edge_variable] = edge
        self.expands.append(
            Expand(edge.name, source, target, edge.source, edge.target, clause.undirected, low, high, edge_variable)
        )

    def _ends(self, clause: ast.Traversal | ast.ShortestPath, edge: EdgeType) -> tuple[str, str, bool]:
        """The variables at the source and at the target of an edge, and whether the left one is the source."""
        nodes = self.scope.catalog.nodes
        forward = self._is_forward(clause, edge)
        left_type, right_type = (edge.source, edge.target) if forward else (edge.target, edge.source)
        left, right = self._bind(clause.left, nodes[left_type]), self._bind(clause.right, nodes[right_type])
        return (left, right, True) if forward else (right, left, False)

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

    def _is_forward(self, clause: ast.Traversal | ast.ShortestPath, edge: EdgeType) -> bool:
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
        elif scope.is_path(name):
            raise scope.fail(None, f"${name} is a path and cannot be a node", variable.span)
        bound = scope.node(name)
        if bound is None:
            scope.nodes[name] = node
            self.scans.append(Scan(name, node.name))
        elif bound.name != node.name:
            raise scope.fail(None, f"${name} is already bound to {bound.name}, not {node.name}", variable.span)
        return name


def _written(edge_name: str) -> str:
    """An edge type as a traversal names it."""
    return edge_name[:1].lower() + edge_name[1:]
