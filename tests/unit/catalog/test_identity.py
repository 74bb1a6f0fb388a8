"""The canonical IR and its hash."""

import json
from pathlib import Path

import pytest

from omnigraph.catalog import identity
from omnigraph.catalog.resolve import compile_schema
from omnigraph.errors import SchemaError

HARBOUR = (Path(__file__).parents[2] / "conformance" / "harbour.pg").read_text()


def test_formatting_order_and_comments_do_not_change_the_hash() -> None:
    first = compile_schema(
        "node A { a: String @key e: enum(x, y)? @x_note @x_other(1) } edge E: A -> A { w: I32 @index }"
    )
    second = compile_schema(
        "// moved\nedge E : A->A { w: I32 @index(w) }\nnode A { e: enum(y, x)? @x_other(1) @x_note  a: String @key(a) }"
    )
    assert first == second
    assert first.schema_hash == second.schema_hash


@pytest.mark.parametrize(
    "text",
    [
        "node A { a: String }",
        "node A { a: String? @index }",
        "node A { a: String @unique }",
        'node A @description("x") { a: String @index }',
        "node A { a: String @index } node B { }",
        "node A { a: String @index } interface I { }",
        'node A { a: String @index @check(a, "x") }',
    ],
)
def test_every_difference_in_meaning_changes_the_hash(text: str) -> None:
    assert compile_schema(text).schema_hash != compile_schema("node A { a: String @index }").schema_hash


def test_where_a_type_came_from_is_not_part_of_its_meaning() -> None:
    renamed = compile_schema('node A @rename_from("B") { a: String @rename_from("b") }')
    assert renamed.schema_hash == compile_schema("node A { a: String }").schema_hash


def test_the_ir_is_json_that_reads_back_in_both_forms() -> None:
    ir = identity.schema_ir(compile_schema(HARBOUR))
    assert ir["ir_version"] == 1
    assert json.loads(identity.ir_json(ir)) == json.loads(identity.ir_json(ir, compact=True)) == ir
    assert [node["name"] for node in ir["nodes"]] == ["Berth", "LogEntry", "Sailor", "Vessel"]
    compact = identity.ir_json(ir, compact=True)
    assert ": " not in compact.replace('": "', "")
    assert identity.hash_ir(json.loads(compact)) == compile_schema(HARBOUR).schema_hash


def test_text_beyond_ascii_is_not_escaped() -> None:
    ir = identity.schema_ir(compile_schema('node A @description("Schiff für 漢字") { }'))
    assert "für 漢字" in identity.ir_json(ir, compact=True)


def test_the_state_names_the_hash() -> None:
    catalog = compile_schema("node A { }")
    assert identity.schema_state(catalog) == {
        "format_version": 1,
        "schema_ir_hash": catalog.schema_hash,
        "schema_identity_version": 1,
    }


def test_identifiers_are_fnv_1a_and_never_zero() -> None:
    assert identity.type_id("node", "Person") == identity._fnv32("node:Person")
    assert identity.property_id("node", "Person", "name") == identity._fnv32("node:Person:name")
    assert identity._fnv32("") == 0x811C9DC5
    assert identity._fnv32("a") == 0xE40C292C


def test_two_types_with_one_identifier_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_fnv32", lambda text: 7)
    with pytest.raises(SchemaError, match="same identifier"):
        compile_schema("node A { } node B { }")
