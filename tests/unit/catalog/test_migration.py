"""Plans from one schema to another, change by change."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.catalog.migration import carry_key_order, key_orders, plan_migration, with_key_orders
from omnigraph.catalog.resolve import compile_schema
from omnigraph.errors import SchemaError


def steps(accepted: str, desired: str) -> list[dict[str, Any]]:
    report = plan_migration(compile_schema(accepted), compile_schema(desired)).to_json()
    assert report["step_count"] == len(report["steps"])
    return list(report["steps"])


def summary(accepted: str, desired: str) -> list[str]:
    """Steps as short words: the kind and the names in it."""
    names = ("type_name", "name", "from", "to", "property_name", "entity", "code", "added_values")
    return [
        " ".join([step["kind"], *(str(step[name]) for name in names if name in step)])
        for step in steps(accepted, desired)
    ]


CARD = "change_cardinality E {'min': 0, 'max': None} {'min': 0, 'max': 1}"
CHANGES = [
    ("node A { x: I32 }", "node A { x: I64 }", ["widen_property A x"]),
    ("node A { x: U32 }", "node A { x: I64 }", ["widen_property A x"]),
    ("node A { x: U32 }", "node A { x: U64 }", ["widen_property A x"]),
    ("node A { x: F32 }", "node A { x: F64? }", ["widen_property A x", "make_nullable A x"]),
    ("node A { x: I64 }", "node A { x: I32 }", ["unsupported_change node:A.x OG-MF-106"]),
    ("node A { x: I32 }", "node A { x: U64 }", ["unsupported_change node:A.x OG-MF-106"]),
    ("node A { x: [I32] }", "node A { x: [I64] }", ["unsupported_change node:A.x OG-MF-106"]),
    ("node A { x: I32 @key }", "node A { x: I64 @key }", ["widen_property A x"]),
    ("node A { x: F32 @key }", "node A { x: F64 @key }", ["unsupported_change node:A.x OG-MF-106"]),
    ("node A { }", "node A { x: I32 @default(1) }", ["add_property A x"]),
    ("node A { x: I32? }", "node A { x: I32 @default(1) }", ["make_required A x", "set_default A x"]),
    ("node A { x: I32 @default(1) }", "node A { x: I32 }", ["set_default A x"]),
    ("node A { x: I32 @key y: I32 }", "node A { y: I32 }", ["unsupported_change node:A.x"]),
    ("node A { }", "node A { } node B { }", ["add_type B"]),
    ("node A { }", "", ["drop_type A"]),
    ("interface I { }", "", ["unsupported_change interface:I"]),
    ("", "interface I { x: I32 }", ["add_type I"]),
    ("node A { x: I32 }", "node B { x: I32 }", ["add_type B", "drop_type A"]),
    ("node A { }", 'node B @rename_from("A") { }', ["rename_type A B"]),
    ("node B { }", 'node B @rename_from("A") { }', []),
    ("node A { }", 'node A { } node B @rename_from("A") { }', ["unsupported_change node:B"]),
    (
        "node A { }",
        'node B @rename_from("A") { } node C @rename_from("A") { }',
        ["rename_type A B", "unsupported_change node:C"],
    ),
    ("node A { }", 'node B @rename_from("Z") { }', ["unsupported_change node:B", "drop_type A"]),
    ("node A { x: I32? }", 'node A { y: I32? @rename_from("x") }', ["rename_property A x y"]),
    (
        "node A { x: I32? }",
        'node A { y: I64? @rename_from("x") }',
        ["rename_property A x y", "widen_property A y"],
    ),
    ("node A { x: I32? }", 'node A { x: I32? y: I32? @rename_from("x") }', ["unsupported_change node:A.y"]),
    ("node A { x: I32? }", 'node A { x: I32? y: I32? @rename_from("z") }', ["unsupported_change node:A.y"]),
    (
        "node A { x: I32? y: I32? }",
        'node A { x: I32? @rename_from("y") y: I32? @rename_from("x") }',
        ["unsupported_change node:A.x", "unsupported_change node:A.y"],
    ),
    (
        "node A { } node B { }",
        'node A @rename_from("B") { } node B { }',
        ["unsupported_change node:A"],
    ),
    (
        'node A { x: I32? @rename_from("y") }',
        'node A { x: I32? @rename_from("y") y: I32? }',
        ["add_property A y"],
    ),
    (
        'node A { x: I32? @rename_from("y") y: I32? }',
        'node A { x: I32? @rename_from("y") y: I32? z: I32? }',
        ["add_property A z"],
    ),
    ("node A { x: I32 @index }", 'node A { y: I32 @index @rename_from("x") }', ["rename_property A x y"]),
    ("node A { x: I32 @key }", 'node A { y: I32 @key @rename_from("x") }', ["rename_property A x y"]),
    (
        "node A { x: I32 @range(x, 0..9) }",
        'node A { y: I32 @rename_from("x") @range(y, 0..9) }',
        ["rename_property A x y"],
    ),
    ("node A { x: I32 }", "node A { x: I32? }", ["make_nullable A x"]),
    ("node A { x: I32 }", "node A { x: [I32] }", ["unsupported_change node:A.x OG-MF-106"]),
    ("node A { x: enum(a, b) }", "node A { x: enum(b, a) }", []),
    ("node A { x: enum(a, b) }", "node A { x: enum(a) }", ["set_enum A x"]),
    ("node A { x: enum(a, b) }", "node A { x: String }", ["set_enum A x"]),
    ("node A { x: enum(a, b) }", "node A { x: enum(a, b, c)? }", ["extend_enum A x ['c']", "make_nullable A x"]),
    ("node A { x: enum(a) }", "node A { x: enum(c, a, b) }", ["extend_enum A x ['b', 'c']"]),
    ("node A { x: I32 }", "node A { x: I32 @unique }", ["add_constraint A"]),
    ("node A { x: I32 @unique }", "node A { x: I32 }", ["drop_constraint A"]),
    ("node A { x: I32 @index }", "node A { x: I32 }", ["drop_constraint A"]),
    ("node A { x: I32 }", "node A { x: I32 @key }", ["unsupported_change node:A"]),
    (
        "node A { x: I32 @range(x, 0..1) }",
        "node A { x: I32 @range(x, 0..2) }",
        ["drop_constraint A", "add_constraint A"],
    ),
    ("node A { x: String }", 'node A { x: String @check(x, "a") }', ["add_constraint A"]),
    ("node A { x: I32 }", "node A { x: I32 y: I32? @index }", ["add_property A y", "add_constraint A"]),
    ("node A { x: I32? y: I32? @index(x, y) }", "node A { y: I32? }", ["drop_property A x", "drop_constraint A"]),
    ("node A { } edge E: A -> A", "node A { } node B { } edge E: A -> B", ["add_type B", "unsupported_change edge:E"]),
    ("node A { } edge E: A -> A", 'node B @rename_from("A") { } edge E: B -> B', ["rename_type A B"]),
    ("node A { } edge E: A -> A", "node A { } edge E: A -> A @card(0..1)", [CARD]),
    ("node A { } edge E: A -> A { w: I32? }", "node A { } edge E: A -> A", ["drop_property E w"]),
    ("interface I { } node A { }", "interface I { } node A implements I { }", ["unsupported_change node:A"]),
    (
        "interface I { } node A implements I { }",
        "interface I { x: I32? } node A implements I { }",
        ["add_property I x", "add_property A x"],
    ),
    (
        "interface I { x: I32 } node A implements I { }",
        "interface I { x: I32 @index } node A implements I { }",
        ["add_constraint I", "add_constraint A"],
    ),
    ("interface I { x: I32 }", "interface I { x: I32 @unique }", ["add_constraint I"]),
    (
        "interface I { x: I32 @key } node A implements I { }",
        'interface I { y: I32 @key @rename_from("x") } node A implements I { }',
        ["rename_property I x y", "rename_property A x y"],
    ),
    ("node A { x: I32 }", 'node A { x: I32 @description("d") }', ["update_property_metadata A x"]),
    ('node A @description("d") @instruction("i") { }', 'node A @instruction("i") { }', ["update_type_metadata A"]),
    ("node A { x: I32 @x_note }", "node A { x: I32 @x_note(1) }", ["update_property_metadata A x"]),
    ("node A @x_note { }", "node A { }", ["update_type_metadata A"]),
    (
        "node A { t: String v: Vector(2) }",
        "node A { t: String v: Vector(2) @embed(t) }",
        ["unsupported_change node:A.v"],
    ),
    (
        "node A { t: String v: Vector(2) @embed(t) }",
        'node A { u: String @rename_from("t") v: Vector(2) @embed(u) }',
        ["rename_property A t u"],
    ),
    (
        "node A { b: I32? d: I32? z: I32? }",
        'node A { a: I32? c: I32? @rename_from("d") z: I32? @description("d") y: enum(q)? r: I32 }',
        [
            "rename_property A d c",
            "add_property A a",
            "add_property A y",
            "drop_property A b",
            "update_property_metadata A z",
            "unsupported_change node:A.r OG-MF-103",
        ],
    ),
]


@pytest.mark.parametrize(("accepted", "desired", "expected"), CHANGES)
def test_a_change_becomes_its_steps(accepted: str, desired: str, expected: list[str]) -> None:
    assert summary(accepted, desired) == expected


@pytest.mark.parametrize("text", sorted({text for accepted, desired, _ in CHANGES for text in (accepted, desired)}))
def test_a_schema_needs_no_steps_to_itself(text: str) -> None:
    # What is left of a rename after it was applied, its annotation, is no change either.
    plan = plan_migration(compile_schema(text), compile_schema(text))
    assert plan.is_empty
    assert plan.is_supported


def test_kinds_come_in_order_and_drops_last() -> None:
    accepted = "interface I { x: I32? } node A { } node C { } edge E: A -> A edge G: A -> A"
    desired = "interface I { y: I32? } node A { } node B { } edge F: A -> B edge G: A -> A"
    assert summary(accepted, desired) == [
        "add_property I y",
        "drop_property I x",
        "add_type B",
        "drop_type C",
        "add_type F",
        "drop_type E",
    ]


def test_the_first_refusal_is_raised_with_its_code() -> None:
    plan = plan_migration(
        compile_schema("node A { x: I32 } node B { }"), compile_schema("node A { x: Bool } node B { y: I32 }")
    )
    with pytest.raises(SchemaError, match=r"^\[OG-MF-106\] node:A\.x: its type changes from I32 to Bool: add a "):
        plan.require_supported()


def test_data_loss_makes_every_drop_hard() -> None:
    accepted, desired = compile_schema("node A { x: I32? } node B { }"), compile_schema("node A { }")
    plan = plan_migration(accepted, desired, allow_data_loss=True)
    assert [step["mode"] for step in plan.to_json()["steps"]] == ["hard", "hard"]


def test_a_renamed_key_keeps_its_place_in_the_key() -> None:
    accepted = compile_schema("node A { a: String b: String @key(a, b) }")
    desired = compile_schema('node B @rename_from("A") { z: String @rename_from("a") b: String @key(b, z) }')
    assert desired.nodes["B"].key == ("b", "z")
    carried = carry_key_order(accepted, desired, plan_migration(accepted, desired))
    assert carried.nodes["B"].key == ("z", "b")
    assert key_orders(accepted) == {}
    recorded = key_orders(carried)
    assert with_key_orders(desired, recorded).nodes["B"].key == ("z", "b")
    assert carried.schema_hash == desired.schema_hash
