from __future__ import annotations

from msgspec.structs import replace

from omnigraph.catalog.derived import once
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.rules.statement import rules_of
from omnigraph.engine.values.entities import row_schema

SCHEMA = "node P { k: String @key  n: I64? @unique }\nedge K: P -> P @card(0..3) { w: F64? }"


def test_what_follows_from_a_type_is_made_once_for_each_of_them():
    made = []

    @once
    def derived(entity):
        made.append(entity.name)
        return f"of {entity.name}"

    catalog = compile_schema(SCHEMA)
    node, edge = catalog.nodes["P"], catalog.edges["K"]
    assert [derived(node), derived(edge), derived(node)] == ["of P", "of K", "of P"]
    assert made == ["P", "K"]
    assert derived(replace(node, name="Q")) == "of Q"


def test_what_is_kept_with_a_type_makes_it_no_other():
    one, other = compile_schema(SCHEMA), compile_schema(SCHEMA)
    assert row_schema(one.nodes["P"]).names == ["id", "k", "n"]
    assert rules_of(one, "edge:K").degree is not None
    assert [rule.columns for rule in rules_of(one, "node:P").uniques] == [("n",)]
    assert [(end.edge.name, end.column) for end in rules_of(one, "node:P").named_by] == [("K", "src"), ("K", "dst")]
    assert one.nodes["P"] == other.nodes["P"]
    assert one == other
