"""The rules of schemas, by the table of schema errors."""

from __future__ import annotations

import pytest

from omnigraph.catalog.model import Annotation, Cardinality, Catalog, CheckRule, Embedding, RangeRule
from omnigraph.catalog.resolve import KEPT_SCHEMAS, compile_schema, resolve
from omnigraph.errors import ParseError, SchemaError
from omnigraph.language import parse_schema

PARSE_ERRORS = {
    "S1": [
        "node vessel { }",
        "node { }",
        "enum Kind { }",
        "node A { name String }",
        "type A = String",
        "node A { a: Text }",
        "node A { a: [String?] }",
        "node A { a: [[String]] }",
        "node A { a: [enum(x)] }",
        "interface I @x { }",
        "edge E: A -> B implements I",
    ],
    "S2": ["node A { v: Vector(0) }", "node A { v: Vector(2147483648) }", "node A { v: Vector }"],
    "S3": ["node A { files: [Blob] }"],
    "S4": ["node A { s: enum(a, b, a) }", "node A { s: enum() }"],
    "S5": ["node A implements Nope { x: I32 }", "interface I { } node A implements I, I { }"],
    "S6": [
        "interface I { x: I32 } node A implements I { x: String }",
        "interface I { x: I32 } node A implements I { x: I32? }",
        "interface I { x: enum(a, b) } node A implements I { x: enum(a) }",
        "interface I { x: [I32] } node A implements I { x: I32 }",
    ],
    "S7": [
        "node A { a: String @key b: String @key }",
        "node A { a: String @key @key(a) }",
        "interface I { a: String @key } interface J { b: String @key } node A implements I, J { }",
    ],
    "S8": [
        "node A { @key(missing) }",
        "node A { @unique(missing) }",
        "node A { @index(missing) }",
        "node A { @range(missing, 0..1) }",
        'node A { @check(missing, "x") }',
        "node A { @unique(src) }",
    ],
    "S9": [
        "node A { a: String? @key }",
        "node A { a: [String] @key }",
        "node A { a: Vector(2) @key }",
        "node A { a: Blob @key }",
        "node A { a: String b: String? @key(a, b) }",
        "node A { a: String @key(a, a) }",
    ],
    "S10": [
        "node A { a: [String] @unique }",
        "node A { a: [String] @index }",
        "node A { t: String a: [String] @embed(t) }",
        "node A { a: Blob @unique }",
        "node A { a: Blob @index }",
        "node A { t: String a: Blob @embed(t) }",
        "node A { a: Vector(2) @unique }",
        "node A { a: Blob @unique(a) }",
        "node A { a: [String] @unique(a) }",
        "node A { a: [String] @index(a) }",
        "node A { a: Vector(2) @unique(a) }",
        "interface I { a: Blob @index }",
    ],
    "S11": [
        "node A { a: String @range(a, 0..1) }",
        'node A { a: I32 @check(a, "x") }',
        "node A { p: I32 @range(p) }",
        "node A { p: String @check(p) }",
        "node A { p: I32 @range(p, 5) }",
        "node A { p: String @check(p, 5) }",
        'node A { p: String @check(p, "x", "y") }',
        "node A { p: [I32] @range(p, 0..1) }",
        'node A { p: [String] @check(p, "x") }',
        "node A { p: I32 @range }",
        "node A { p: String @check }",
        'node A { p: String @check(p, "(") }',
        'node A { p: String @check(p, "(?=x)") }',
        'node A { p: String @check(p, "(a)\\\\1") }',
    ],
    "S12": [
        "node A { } edge E: A -> A { k: String @key(k) }",
        "node A { } edge E: A -> A { k: I32 @range(k, 0..1) }",
        'node A { } edge E: A -> A { k: String @check(k, "x") }',
        "node A { } edge E: A -> A { k: String @key }",
        "node A { } edge E: A -> A { t: String k: Vector(2) @embed(t) }",
    ],
    "S13": [
        "node A @unique { a: I32 }",
        "node A @key { a: I32 }",
        "node A { } edge E: A -> A @index",
        "node A @embed(x) { }",
        "node A @unique(a) { a: I32 }",
        "node A @range { }",
    ],
    "S14": [
        "node A { t: String e: Vector(2) @embed }",
        "node A { t: String e: String @embed(t) }",
        "node A { e: Vector(2) @embed(t) }",
        "node A { t: I32 e: Vector(2) @embed(t) }",
        "node A { t: [String] e: Vector(2) @embed(t) }",
        'node A { t: String e: Vector(2) @embed("t", provider="x") }',
        'node A { t: String e: Vector(2) @embed("t", model="") }',
        'node A { t: String e: Vector(2) @embed(" ") }',
        "node A { t: String e: Vector(2) @embed(t) @embed(t) }",
        "node A { t: String e: Vector(2) @embed(5) }",
    ],
    "S15": [
        'node A @description("") { }',
        'node A @description("  ") { }',
        "node A @description { }",
        'node A @description("a") @description("b") { }',
        'node A { a: I32 @instruction("x") }',
        'node A { a: I32 @description("a") @description("b") }',
    ],
    "S16": [
        "node A { } edge E: A -> A @card(3..1)",
        "node A { } edge E: A -> A @card(1)",
        "node A { } edge E: A -> A @card(0..*)",
        "node A { } edge E: A -> A @note @card(0..1)",
        "node A { } edge E: A -> A @card",
        "node A @card(0..1) { }",
        "node A { a: I32 @card(1) }",
    ],
    "S17": ['node A { @unique("x") }', "node A { @index(5) }", "node A { @key(1..2) }", "node A { @key(true) }"],
    "S18": [
        "node A { a: I32 a: I32 }",
        "node A { id: String }",
        "interface I { id: String }",
        "node A { _rowid: I64 }",
        "node A { _row_last_updated_at_version: I64 }",
        "node A { } edge E: A -> A { src: String }",
        "node A { } edge E: A -> A { dst: String }",
        "node A { } edge E: A -> A { from: String }",
        "node A { } edge E: A -> A { to: String }",
    ],
    "S21": ['node A @description("x\\q") { }'],
    "rename": [
        "node A @rename_from { }",
        'node A @rename_from("") { }',
        'node A @rename_from("B", x=1) { }',
        'node A @rename_from("B") @rename_from("C") { }',
    ],
    "once": ["node A { a: I32 @index @index }", "node A { a: I32 @unique @unique }"],
    "annotation": [
        "node A { @note a: I32 }",
        "node A { a: I32 @unique(a) @note }",
        "interface I { a: I32 @unique(a) }",
    ],
}
SCHEMA_ERRORS = [
    "node A { } node A { }",
    "interface I { } interface I { }",
    "node A { } edge E: A -> A edge E: A -> A",
    "node A { } edge Tows: A -> A edge TOWS: A -> A",
    "node A { } edge E: A -> B",
    "interface I { } node A { } edge E: A -> I",
    "interface I { x: I32 } interface J { x: I64 } node A implements I, J { }",
]


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, texts in PARSE_ERRORS.items() for text in texts])
def test_a_broken_local_rule_is_a_parse_error_with_a_place(rule: str, text: str) -> None:
    with pytest.raises(ParseError) as caught:
        compile_schema(text)
    assert caught.value.code == "parse"
    assert caught.value.span is not None
    assert caught.value.span.end > caught.value.span.start


@pytest.mark.parametrize("text", SCHEMA_ERRORS)
def test_a_contradiction_between_declarations_is_a_schema_error(text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema(text)
    assert caught.value.code == "catalog"


@pytest.mark.parametrize(
    "text",
    [
        "node A { src: String dst: String from: String to: String }",
        "node A { } edge A: A -> A",
        "interface A { } node A implements A { }",
        "node A { _row_id: I64 _: I32 }",
        "edge E: A -> B node B { } node A { }",
        "node A { v: Vector(2147483647)? @index }",
        "node A { a: I32 @range(a, 9..1) }",
        "node A { a: I32 @range(a, -5..) @range(a, ..9.5) }",
        'node A { a: enum(x)? @unique @index @check(a, "^x$") }',
        "node A { a: F32 b: Bool c: Date d: DateTime e: enum(x) @key(a, b, c, d, e) }",
        "node A { } edge E: A -> A @card(0..0)",
        "node A { } edge E: A -> A { @index(src, dst) @unique(dst) w: I32 @index @unique }",
        'node A { a: I32 @x_default(5) @x_shiny(true, deep=1.5, b="x") }',
    ],
)
def test_what_the_rules_allow_is_accepted(text: str) -> None:
    assert isinstance(compile_schema(text), Catalog)


def test_a_catalog_holds_everything_a_schema_says() -> None:
    catalog = compile_schema(
        'interface I { code: String @key  text: String? @description("words") }\n'
        'node A @instruction("care") implements I { n: F64? v: Vector(2)? @embed(text, model="m") @index'
        ' @range(n, -1..2.5) @check(code, "^x") @unique(n, code) }\n'
        "edge E: A -> A @card(1..3) @x_note(7) { w: enum(b, a)? @unique(w, src) }"
    )
    node, edge = catalog.nodes["A"], catalog.edges["E"]
    assert list(node.properties) == ["code", "n", "text", "v"]
    assert (node.key, node.unique, node.indexes) == (("code",), (("code", "n"),), (("v",),))
    assert node.ranges == (RangeRule("n", -1.0, 2.5),)
    assert node.checks == (CheckRule("code", "^x"),)
    assert node.properties["v"].embedding == Embedding("text", "m")
    assert node.properties["text"].annotations == (Annotation("description", "words"),)
    assert node.annotations == (Annotation("instruction", "care"),)
    assert node.interfaces == ("I",)
    assert (edge.source, edge.target, edge.cardinality) == ("A", "A", Cardinality(1, 3))
    assert edge.unique == (("src", "w"),)
    assert edge.annotations == (Annotation("x_note", "7"),)
    assert catalog.edges_by_lower_name["e"] is edge
    assert [e.name for e in catalog.edges_touching("A")] == ["E"]
    assert list(catalog.tables) == ["edge:E", "node:A"]


def test_a_redeclared_property_does_not_take_the_annotations_of_the_interface() -> None:
    catalog = compile_schema("interface I { a: String @key } node A implements I { a: String }")
    assert catalog.nodes["A"].key == ()


def test_the_first_interface_gives_the_annotations_of_a_shared_property() -> None:
    catalog = compile_schema("interface I { a: I32 @index } interface J { a: I32 } node A implements I, J { }")
    assert catalog.nodes["A"].indexes == (("a",),)


def test_a_schema_that_is_kept_is_what_its_text_says_each_time() -> None:
    """More texts than are kept, of which some come back, beside the plain way."""
    texts = [f"node A {{ a{n}: I32 @default({n}) }} edge E: A -> A" for n in range(KEPT_SCHEMAS + 2)]
    for text in [*texts, *texts[:3], *texts[-3:]]:
        assert compile_schema(text, stored=True) == resolve(parse_schema(text), stored=True)


def test_an_unknown_annotation_of_a_stored_text_is_refused_in_a_new_one() -> None:
    text = "node A { a: I32 @colour }"
    for _ in range(2):
        assert compile_schema(text, stored=True).nodes["A"].properties["a"].annotations
        with pytest.raises(SchemaError, match="colour"):
            compile_schema(text)
