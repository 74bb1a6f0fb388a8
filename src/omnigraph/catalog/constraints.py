"""The rules a declaration puts on its own properties, from syntax to the normal form of the catalog.

`@key`, `@unique` and `@index` behind a property mean the same as the body form with that one column, so both end in
one place here. Everything wrong is a `ParseError` that points at the annotation or constraint.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog.model import CheckRule, Embedding, Property, RangeRule
from omnigraph.catalog.types import Scalar
from omnigraph.language import schema_ast as ast
from omnigraph.language.source import Source, Span

COLUMN_CONSTRAINTS = ("key", "unique", "index")
STRUCTURAL = frozenset({"key", "unique", "index", "embed", "range", "check"})
EDGE_COLUMNS = ("src", "dst")
ANNOTATIONS = STRUCTURAL | {"card", "default", "description", "instruction", "rename_from"}
"""Every annotation and constraint that means something."""
USER_PREFIX = "x_"
"""Annotations whose names begin so belong to users; they are kept and mean nothing here."""


class Rules(Struct):
    """Constraints of one type while they are collected."""

    key: tuple[str, ...] = ()
    unique: list[tuple[str, ...]] = field(default_factory=list)
    indexes: list[tuple[str, ...]] = field(default_factory=list)
    ranges: list[RangeRule] = field(default_factory=list)
    checks: list[CheckRule] = field(default_factory=list)


class Owner(Struct, frozen=True):
    """The declaration whose rules are checked: what it is, its name and its resolved properties."""

    kind: str
    name: str
    properties: Mapping[str, Property]
    source: Source

    def column(self, name: ast.Name) -> Property | None:
        """The property a constraint names, or None for an edge's `src` and `dst`."""
        if name.text in self.properties:
            return self.properties[name.text]
        if self.kind == "edge" and name.text in EDGE_COLUMNS:
            return None
        raise self.source.parse_error(f"{self.kind} {self.name} has no property '{name.text}'", name.span)


def add_column_rule(rules: Rules, owner: Owner, name: str, columns: tuple[ast.Name, ...], span: Span) -> None:
    """Check one `@key`, `@unique` or `@index` over columns and add it."""
    texts = tuple(column.text for column in columns)
    for position, column in enumerate(columns):
        if column.text in texts[:position]:
            raise owner.source.parse_error(f"@{name} names '{column.text}' twice", column.span)
        found = owner.column(column)
        if found is not None:
            _check_column(owner, name, found, column.span)
    if name == "key":
        if rules.key:
            raise owner.source.parse_error(f"{owner.kind} {owner.name} has two keys", span)
        rules.key = _key_order(owner, texts, span)
    elif name == "unique":
        _add_once(rules.unique, tuple(sorted(texts)))
    else:
        _add_once(rules.indexes, texts)


def _key_order(owner: Owner, columns: tuple[str, ...], span: Span) -> tuple[str, ...]:
    """The columns of a key in the order of ids, whatever order they are written in."""
    properties = tuple(sorted(set(columns) - set(EDGE_COLUMNS) if owner.kind == "edge" else columns))
    if owner.kind != "edge":
        return properties
    if not set(EDGE_COLUMNS) <= set(columns):
        raise owner.source.parse_error(
            f"the key of an edge is made of both its ends: @key(src, dst{''.join(f', {name}' for name in properties)})",
            span,
        )
    return EDGE_COLUMNS + properties


def add_constraint(rules: Rules, owner: Owner, constraint: ast.Constraint) -> None:
    """Check one constraint of a body and add it."""
    if owner.kind == "edge" and constraint.name not in COLUMN_CONSTRAINTS:
        raise owner.source.parse_error(
            f"an edge takes @key, @unique and @index only, not @{constraint.name}", constraint.span
        )
    if constraint.name in COLUMN_CONSTRAINTS:
        columns = tuple(_named(owner, constraint.name, argument) for argument in constraint.arguments)
        add_column_rule(rules, owner, constraint.name, columns, constraint.span)
    elif constraint.name == "range":
        rules.ranges.append(_range_rule(owner, constraint))
    else:
        rules.checks.append(_check_rule(owner, constraint))


def check_column_annotation(owner_kind: str, name: str, prop: Property, source: Source, span: Span) -> None:
    """Refuse `@key`, `@unique` or `@index` on a property that cannot have it."""
    if owner_kind == "edge" and name == "key":
        raise source.parse_error(
            f"the key of an edge is made of both its ends: write @key(src, dst, {prop.name}) into its body", span
        )
    _check_column(Owner(owner_kind, "", {prop.name: prop}, source), name, prop, span)


def embedding(owner: Owner, prop: Property, annotation: ast.Annotation, *, find_source: bool = True) -> Embedding:
    """Check `@embed` on a property; an interface cannot know the source, so it leaves `find_source` to its nodes."""
    fail = owner.source.parse_error
    if owner.kind == "edge":
        raise fail("@embed is not possible on an edge property", annotation.span)
    if prop.type.scalar is not Scalar.VECTOR:
        raise fail(f"@embed needs a Vector property; '{prop.name}' is {prop.type}", annotation.span)
    value = annotation.value
    if not isinstance(value, str) or not value.strip():
        raise fail('@embed names the property whose text it stands for: @embed("name")', annotation.span)
    model: str | None = None
    for position, (keyword, given) in enumerate(annotation.kwargs):
        if keyword != "model" or position > 0 or not isinstance(given, str) or not given.strip():
            raise fail('the only keyword of @embed is model="…"', annotation.span)
        model = given
    if find_source:
        text = owner.properties.get(value)
        if text is None:
            raise fail(f"@embed names '{value}', which {owner.name} does not have", annotation.span)
        if text.type.scalar is not Scalar.STRING or text.type.is_list:
            raise fail(f"@embed needs a String source; '{value}' is {text.type}", annotation.span)
    return Embedding(value, model)


def _check_column(owner: Owner, name: str, prop: Property, span: Span) -> None:
    kind, fail = prop.type, owner.source.parse_error
    if kind.is_list or kind.scalar is Scalar.BLOB:
        raise fail(f"@{name} is not possible on '{prop.name}', which is {kind}", span)
    if kind.scalar is Scalar.VECTOR and name != "index":
        raise fail(f"@{name} is not possible on '{prop.name}', which is a Vector", span)
    if name == "key" and kind.nullable:
        raise fail(f"'{prop.name}' can be null, so it cannot be part of the key", span)


def _named(owner: Owner, name: str, argument: ast.ConstraintArgument) -> ast.Name:
    if not isinstance(argument, ast.Name):
        raise owner.source.parse_error(f"@{name} takes property names", argument.span)
    return argument


def _add_once(groups: list[tuple[str, ...]], columns: tuple[str, ...]) -> None:
    if columns not in groups:
        groups.append(columns)


def _two_arguments(owner: Owner, constraint: ast.Constraint) -> tuple[Property, ast.Name, ast.ConstraintArgument]:
    if len(constraint.arguments) != 2:
        raise owner.source.parse_error(
            f"@{constraint.name} takes two arguments, a property and its rule", constraint.span
        )
    first, second = constraint.arguments
    name = _named(owner, constraint.name, first)
    prop = owner.column(name)
    assert prop is not None, "only edges have columns that are not properties, and they take no such constraint"
    return prop, name, second


def _range_rule(owner: Owner, constraint: ast.Constraint) -> RangeRule:
    prop, name, bounds = _two_arguments(owner, constraint)
    if not prop.type.is_numeric:
        raise owner.source.parse_error(f"@range needs a number; '{prop.name}' is {prop.type}", name.span)
    if not isinstance(bounds, ast.Range):
        raise owner.source.parse_error("@range takes bounds such as 0..9, 5.. or ..5", bounds.span)
    low = None if bounds.low is None else float(bounds.low)
    high = None if bounds.high is None else float(bounds.high)
    return RangeRule(prop.name, low, high)


def _check_rule(owner: Owner, constraint: ast.Constraint) -> CheckRule:
    prop, name, pattern = _two_arguments(owner, constraint)
    if prop.type.scalar is not Scalar.STRING or prop.type.is_list:
        raise owner.source.parse_error(f"@check needs a String; '{prop.name}' is {prop.type}", name.span)
    if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str):
        raise owner.source.parse_error("@check takes a regular expression in double quotes", pattern.span)
    problem = pattern_problem(pattern.value)
    if problem:
        raise owner.source.parse_error(f"not a regular expression: {problem}", pattern.span)
    return CheckRule(prop.name, pattern.value)


def pattern_problem(pattern: str) -> str | None:
    """Why the engine that runs `@check` (RE2, by way of Arrow) refuses a pattern, or None."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as failure:
        return str(failure).removeprefix("Invalid regular expression: ")
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    return None
