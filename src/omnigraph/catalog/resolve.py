"""From the syntax tree of a schema to its catalog: names resolved, interfaces expanded, every rule checked.

Start at `compile_schema`. Rules local to one declaration fail as `ParseError`, rules between declarations as
`SchemaError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from msgspec.structs import replace

from omnigraph.catalog import constraints
from omnigraph.catalog.constraints import (
    ANNOTATIONS,
    COLUMN_CONSTRAINTS,
    STRUCTURAL,
    USER_PREFIX,
    Owner,
    Rules,
)
from omnigraph.catalog.defaults import broken_rule, literal_text, read_default
from omnigraph.catalog.identity import schema_hash
from omnigraph.catalog.model import (
    Annotation,
    Cardinality,
    Catalog,
    Default,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
)
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.errors import SchemaError
from omnigraph.language import parse_schema
from omnigraph.language import schema_ast as ast
from omnigraph.language.source import Source, Span

ROW_METADATA = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
RESERVED = {
    "interface": ROW_METADATA | {"id"},
    "node": ROW_METADATA | {"id"},
    "edge": ROW_METADATA | {"id", "src", "dst", "from", "to"},
}
KEPT_SCHEMAS = 32
"""Schemas of graphs whose catalogs a process keeps: graphs are opened again and again, by a server not least."""
_T = TypeVar("_T")
_ONCE = frozenset({"key", "unique", "index", "embed", "default", "description", "instruction", "rename_from"})


def compile_schema(text: str, *, stored: bool = False) -> Catalog:
    """Read and check a schema.

    With `stored` the text is one that a graph already has: an earlier release may have accepted what is refused today,
    and a graph that could be opened once can always be.

    Raises:
        ParseError: the text does not fit the grammar, or a declaration breaks a rule of its own.
        SchemaError: declarations contradict each other, or an annotation is not known.

    >>> sorted(compile_schema("node A { x: I32 } edge E: A -> A").tables)
    ['edge:E', 'node:A']
    """
    return _accepted(text) if stored else resolve(parse_schema(text))


@lru_cache(KEPT_SCHEMAS)
def _accepted(text: str) -> Catalog:
    """The catalog of a text that a graph has; it follows from the text alone, and nobody can change it."""
    return resolve(parse_schema(text), stored=True)


def resolve(schema: ast.Schema, *, stored: bool = False) -> Catalog:
    """Check a syntax tree and give it its meaning; `stored` as in `compile_schema`."""
    resolver = _Resolver(schema, stored)
    nodes = {node.name: resolver.node(node) for node in resolver.nodes}
    edges = {edge.name: resolver.edge(edge) for edge in resolver.edges}
    resolver.check_names()
    interfaces = resolver.interfaces
    catalog = Catalog(_frozen(nodes), _frozen(edges), _frozen(interfaces), "")
    return replace(catalog, schema_hash=schema_hash(catalog))


def property_type(syntax: ast.TypeSyntax) -> PropertyType:
    """The meaning of a written type; enum values lose their order."""
    values = None if syntax.enum_values is None else tuple(sorted(syntax.enum_values))
    return PropertyType(Scalar(syntax.scalar), syntax.nullable, syntax.is_list, values, syntax.dimension)


class _Resolver:
    """One pass over one schema."""

    def __init__(self, schema: ast.Schema, stored: bool) -> None:
        self._source: Source = schema.source
        self._stored = stored
        declarations = schema.declarations
        self._interface_declarations = [d for d in declarations if isinstance(d, ast.InterfaceDeclaration)]
        self.nodes = [d for d in declarations if isinstance(d, ast.NodeDeclaration)]
        self.edges = [d for d in declarations if isinstance(d, ast.EdgeDeclaration)]
        self._inherited = {d.name: d for d in self._interface_declarations}
        self.interfaces = {d.name: self._interface(d) for d in self._interface_declarations}

    # --- declarations

    def node(self, declaration: ast.NodeDeclaration) -> NodeType:
        self._check_properties("node", declaration.name, declaration.properties)
        self._check_type_annotations("node", declaration.name, declaration.annotations)
        written = [*declaration.properties, *self._from_interfaces(declaration)]
        owner, rules = self._body("node", declaration.name, written, declaration.constraints)
        return NodeType(
            name=declaration.name,
            properties=owner.properties,
            unique=tuple(sorted(rules.unique)),
            indexes=tuple(sorted(rules.indexes)),
            ranges=tuple(sorted(set(rules.ranges), key=lambda rule: (rule.property, repr(rule)))),
            checks=tuple(sorted(set(rules.checks), key=lambda rule: (rule.property, rule.pattern))),
            annotations=_annotations(declaration.annotations),
            key=rules.key,
            declared=_declared(written),
            interfaces=tuple(sorted(reference.name for reference in declaration.implements)),
        )

    def edge(self, declaration: ast.EdgeDeclaration) -> EdgeType:
        self._check_properties("edge", declaration.name, declaration.properties)
        self._check_type_annotations("edge", declaration.name, declaration.annotations)
        owner, rules = self._body("edge", declaration.name, declaration.properties, declaration.constraints)
        card = declaration.cardinality
        return EdgeType(
            name=declaration.name,
            properties=owner.properties,
            unique=tuple(sorted(rules.unique)),
            indexes=tuple(sorted(rules.indexes)),
            annotations=_annotations(declaration.annotations),
            source=declaration.from_type.name,
            target=declaration.to_type.name,
            key=rules.key,
            declared=_declared(declaration.properties),
            cardinality=Cardinality() if card is None else Cardinality(card.low, card.high),
        )

    def check_names(self) -> None:
        """The rules between declarations: distinct names, and endpoints that are node types."""
        for kind, names in (
            ("interface", [d.name for d in self._interface_declarations]),
            ("node", [d.name for d in self.nodes]),
            ("edge", [d.name for d in self.edges]),
        ):
            for name, count in Counter(names).items():
                if count > 1:
                    raise SchemaError(f"{kind} {name} is declared {count} times")
        folded: dict[str, str] = {}
        for edge in self.edges:
            other = folded.setdefault(edge.name.lower(), edge.name)
            if other != edge.name:
                raise SchemaError(f"edges {other} and {edge.name} have the same name but for capital letters")
        node_names = {d.name for d in self.nodes}
        for edge in self.edges:
            for end in (edge.from_type, edge.to_type):
                if end.name not in node_names:
                    what = "an interface" if end.name in self._inherited else "not a node type of this schema"
                    meant = "" if end.name in self._inherited else did_you_mean(end.name, node_names)
                    line = self._source.locate(end.span).line
                    raise SchemaError(
                        f"edge {edge.name} has the endpoint {end.name}, which is {what} (line {line}){meant}"
                    )

    # --- parts

    def _interface(self, declaration: ast.InterfaceDeclaration) -> InterfaceType:
        self._check_properties("interface", declaration.name, declaration.properties)
        properties = self._properties(declaration.properties, keep=frozenset(COLUMN_CONSTRAINTS))
        owner = Owner("interface", declaration.name, properties, self._source)
        for written in declaration.properties:
            for annotation in written.annotations:
                if annotation.name in COLUMN_CONSTRAINTS:
                    prop = properties[written.name]
                    constraints.check_column_annotation(
                        "interface", annotation.name, prop, self._source, annotation.span
                    )
        embedded = self._embeddings(owner, declaration.properties, find_source=False)
        return InterfaceType(declaration.name, _frozen(embedded))

    def _from_interfaces(self, declaration: ast.NodeDeclaration) -> list[ast.Property]:
        """The properties a node receives, each once; interfaces must agree with the node and with each other."""
        own = {prop.name: prop for prop in declaration.properties}
        received: dict[str, tuple[str, ast.Property]] = {}
        seen: set[str] = set()
        for reference in declaration.implements:
            interface = self._inherited.get(reference.name)
            if interface is None:
                raise self._source.parse_error(f"there is no interface {reference.name}", reference.span)
            if reference.name in seen:
                raise self._source.parse_error(f"interface {reference.name} is listed twice", reference.span)
            seen.add(reference.name)
            for prop in interface.properties:
                self._check_agreement(declaration, reference, prop, own, received)
                if prop.name not in own:
                    received.setdefault(prop.name, (reference.name, prop))
        return [prop for _, prop in received.values()]

    def _check_agreement(
        self,
        declaration: ast.NodeDeclaration,
        reference: ast.TypeReference,
        prop: ast.Property,
        own: Mapping[str, ast.Property],
        received: Mapping[str, tuple[str, ast.Property]],
    ) -> None:
        wanted = property_type(prop.type)
        if prop.name in own:
            actual = property_type(own[prop.name].type)
            if actual != wanted:
                raise self._source.parse_error(
                    f"{declaration.name}.{prop.name} is {actual}, but interface {reference.name} says {wanted}",
                    own[prop.name].span,
                )
        elif prop.name in received:
            other, first = received[prop.name]
            if property_type(first.type) != wanted:
                raise SchemaError(
                    f"node {declaration.name} implements {other} and {reference.name},"
                    f" which disagree on the type of '{prop.name}'"
                )

    def _body(
        self, kind: str, name: str, written: Sequence[ast.Property], body: Iterable[ast.Constraint]
    ) -> tuple[Owner, Rules]:
        owner = Owner(kind, name, self._properties(written), self._source)
        rules = Rules()
        for prop in written:
            for annotation in prop.annotations:
                if annotation.name in COLUMN_CONSTRAINTS:
                    constraints.check_column_annotation(
                        kind, annotation.name, owner.properties[prop.name], self._source, annotation.span
                    )
                    column = ast.Name(prop.name, annotation.span)
                    constraints.add_column_rule(rules, owner, annotation.name, (column,), annotation.span)
        for constraint in body:
            constraints.add_constraint(rules, owner, constraint)
        self._check_defaults(owner, rules, written)
        embedded = self._embeddings(owner, written, find_source=True)
        return replace(owner, properties=_frozen(embedded)), rules

    def _properties(
        self, written: Iterable[ast.Property], *, keep: frozenset[str] = frozenset()
    ) -> dict[str, Property]:
        return {
            prop.name: Property(
                prop.name,
                property_type(prop.type),
                _annotations(prop.annotations, keep=keep),
                default=self._default(prop),
            )
            for prop in sorted(written, key=lambda prop: prop.name)
        }

    def _default(self, prop: ast.Property) -> Default | None:
        for annotation in prop.annotations:
            if annotation.name == "default":
                try:
                    return read_default(property_type(prop.type), annotation)
                except ValueError as problem:
                    if not self._stored:
                        raise self._fail(f"{prop.name}: {problem}", annotation.span) from None
        return None

    def _check_defaults(self, owner: Owner, rules: Rules, written: Iterable[ast.Property]) -> None:
        for prop in written:
            for annotation in prop.annotations:
                if annotation.name != "default" or self._stored:
                    continue
                if prop.name in rules.key:
                    raise self._fail(f"'{prop.name}' is part of the key, which is always given", annotation.span)
                broken = broken_rule(owner.properties[prop.name], rules.ranges, rules.checks)
                if broken:
                    raise self._fail(f"the default of '{prop.name}' breaks its {broken}", annotation.span)

    def _embeddings(self, owner: Owner, written: Iterable[ast.Property], *, find_source: bool) -> dict[str, Property]:
        properties = dict(owner.properties)
        for prop in written:
            for annotation in prop.annotations:
                if annotation.name == "embed":
                    declared = properties[prop.name]
                    source = constraints.embedding(owner, declared, annotation, find_source=find_source)
                    properties[prop.name] = replace(declared, embedding=source)
        return properties

    # --- local rules

    def _check_properties(self, kind: str, owner: str, properties: Sequence[ast.Property]) -> None:
        seen: set[str] = set()
        for prop in properties:
            if prop.name in RESERVED[kind]:
                raise self._source.parse_error(f"'{prop.name}' is reserved on {_article(kind)}", prop.span)
            if prop.name in seen:
                raise self._source.parse_error(f"{owner} declares '{prop.name}' twice", prop.span)
            seen.add(prop.name)
            self._check_annotations(f"property {owner}.{prop.name}", prop.annotations, is_property=True)

    def _check_type_annotations(self, kind: str, name: str, annotations: Sequence[ast.Annotation]) -> None:
        for annotation in annotations:
            if annotation.name in STRUCTURAL:
                raise self._fail(f"@{annotation.name} is not possible on a whole {kind}", annotation.span)
        self._check_annotations(f"{kind} {name}", annotations, is_property=False)

    def _check_annotations(self, target: str, annotations: Sequence[ast.Annotation], *, is_property: bool) -> None:
        seen: set[str] = set()
        for annotation in annotations:
            name = annotation.name
            if name in seen and name in _ONCE:
                raise self._fail(f"@{name} is given twice for {target}", annotation.span)
            seen.add(name)
            if not (name in ANNOTATIONS or name.startswith(USER_PREFIX) or self._stored):
                raise self._unknown(target, annotation)
            if name in ("range", "check"):
                raise self._fail(f"@{name} takes arguments in parentheses", annotation.span)
            if name == "default" and not (is_property or self._stored):
                raise self._fail("@default is for properties", annotation.span)
            if name == "instruction" and is_property:
                raise self._fail("@instruction is for nodes and edges, not for properties", annotation.span)
            if name in ("description", "instruction", "rename_from") and not _has_text(annotation):
                raise self._fail(f"@{name} takes one non-blank text", annotation.span)
            if name == "rename_from" and annotation.kwargs:
                raise self._fail("@rename_from takes no keywords", annotation.span)

    def _unknown(self, target: str, annotation: ast.Annotation) -> SchemaError:
        place = self._source.locate(annotation.span)
        return SchemaError(
            f"line {place.line}, column {place.column}: {target} has the unknown annotation '@{annotation.name}'"
            f"{did_you_mean(annotation.name, ANNOTATIONS, prefix='@') or '.'}"
            f" Names that begin with '@{USER_PREFIX}' are free for annotations of your own"
            f"\n{self._source.snippet(annotation.span)}"
        )

    def _fail(self, message: str, span: Span) -> Exception:
        return self._source.parse_error(message, span)


def _declared(written: Iterable[ast.Property]) -> tuple[str, ...]:
    return tuple(prop.name for prop in written)


def _annotations(written: Iterable[ast.Annotation], *, keep: frozenset[str] = frozenset()) -> tuple[Annotation, ...]:
    """The stored form, in canonical order; what has become a constraint or an embedding is left out."""
    stored = [
        Annotation(
            annotation.name,
            None if annotation.value is None else literal_text(annotation.value),
            tuple(sorted(annotation.kwargs)),
        )
        for annotation in written
        if annotation.name not in STRUCTURAL or annotation.name in keep
    ]
    return tuple(sorted(stored, key=repr))


def _has_text(annotation: ast.Annotation) -> bool:
    return isinstance(annotation.value, str) and bool(annotation.value.strip())


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _frozen(mapping: Mapping[str, _T]) -> Mapping[str, _T]:
    return MappingProxyType(dict(sorted(mapping.items())))
