"""Whatever text comes in, a tree or a `GraphError` comes out: no other exception, no hang, no deep recursion."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plain.printer import print_query_file, print_schema
from tests.property import programs

from omnigraph.catalog.migration import MigrationPlan, plan_migration
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.errors import GraphError, ParseError
from omnigraph.language import parse_query_file, parse_schema, query_ast, schema_ast
from omnigraph.plan import compile_file
from omnigraph.plan.explain import explain

HARBOUR = (Path(__file__).parents[1] / "conformance" / "harbour.pg").read_text()
SCHEMAS = [
    'interface I { a: String @key b: I32? @index }\nnode A implements I { v: Vector(3)? @embed(a, model="m") }',
    'node A { n: F64 s: enum(a, b-c, 2)? @description("x") @range(n, -1..9.5) @check(s, "^a") @unique(n, s) }',
    'node B @rename_from("A") { code: String @key }\nedge E: B -> B @card(0..3) { w: [I64]? @unique(src, dst) }',
]
QUERIES = [
    'query a($c: String) { match { $v: Vessel { kind: "tug", code: $c } $v mooredAt $b } return { $v.code } }',
    "query b() { match { $v: Vessel not { $v tows{1,3} $x $x.length_m > 2.5 } } return { $v as n } order {n} limit 5}",
    'query c($q: Vector(4)) { match { $v: Vessel search($v.name, "queen") } return { $v.code, bm25($v.name, "q") as s }'
    ' order { rrf(nearest($v.profile, $q), bm25($v.name, "q"), 60) } limit 3 }',
    "query d() { match { $a $e:tows $b $a <tows> $b } return { $a.kind, count($b) as n, max($e.line) } order {n desc}}",
    'query e($k: String?) { insert Vessel { code: "AB-1", name: "X", kind: "tug", last_seen: now(), flags: ["a", "b"] }'
    ' insert Tows { from: $k, to: "x" } update Vessel set { notes: $k } where code = "AB-1" }',
    'query f() @description("d\\n") { delete Sailor where badge >= 7 delete Tows where from = "AB-3" }',
    'query h($k: I64, $l: [String]) { match { $v: Vessel ($v.kind = "tug" or $v.length_m * 2 > -3.5) and not'
    " $v.notes is null $v.code in $l optional { $v mooredAt $b } exists { $v tows $_ } either"
    ' { $v.name matches "^A" } or { $v tows $x } } return distinct { $v.*, coalesce($b.code, lower($v.name)) as c }'
    ' having { c > "a" } order { c } limit $k offset 2 }',
    "query i() { match { path $p = shortest $a <tows>{1,6} $b $a != $b } return { length($p) as n, collect(distinct"
    " $a.code) as l, sum($a.length_m) / count($a) as m } having { n > 1 m is not null } order { n desc } offset 1 }",
    "query j($k: String) { match { $v: Vessel $v $e:tows $w } update $v set { notes: concat($w.name, notes), length_m:"
    ' -length_m + 1.5 } where kind in ["tug"] or notes is null update $e set { line: $k } as $x return { $v.code } }',
    'query k() { insert Tows { from: lower("A"), to: "b" } as $t return { $t.id, $t.line } }',
    'query l() { delete Vessel where not (name starts_with "x" and true) delete Tows where from != to }',
    'query g() { match { $v: Vessel $v.built < date("2001-05-04") $v.flags contains "ice" } return { $v } }',
]


def run_schema(text: str, accepted: Catalog) -> None:
    try:
        catalog = compile_schema(text)
    except GraphError:
        return
    plan_migration(accepted, catalog).to_json()


def run_queries(text: str, catalog: Catalog) -> None:
    try:
        outcomes = compile_file(catalog, text)
    except GraphError:
        return
    for outcome in outcomes.values():
        if not isinstance(outcome, GraphError):
            explain(outcome).to_text()


@pytest.fixture(scope="module")
def harbour() -> Catalog:
    return compile_schema(HARBOUR)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60))
def test_arbitrary_text_ends_in_a_tree_or_a_graph_error(text: str) -> None:
    catalog = compile_schema("node A { x: I32 }")
    run_schema(text, catalog)
    run_queries(text, catalog)


@settings(max_examples=60, deadline=None)
@given(programs.schemas)
def test_any_well_formed_schema_is_accepted_or_refused_with_a_graph_error(schema: schema_ast.Schema) -> None:
    run_schema(print_schema(schema), compile_schema("node A { x: I32 }"))


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(programs.query_files)
def test_any_well_formed_query_is_accepted_or_refused_with_a_graph_error(file: query_ast.QueryFile) -> None:
    run_queries(print_query_file(file), compile_schema(HARBOUR))


@pytest.mark.parametrize("seed", range(2))
def test_damaged_programs_end_in_a_tree_or_a_graph_error(harbour: Catalog, seed: int) -> None:
    fuzz(harbour, count=2_000, seed=seed)


def fuzz(
    harbour: Catalog,
    *,
    count: int,
    seed: int,
    schemas: Sequence[str] = SCHEMAS,
    queries: Sequence[str] = QUERIES,
) -> None:
    """Run `count` damaged programs, a quarter of them schemas."""
    for text in programs.damaged(schemas, count // 4, seed):
        run_schema(text, harbour)
    for text in programs.damaged(queries, count - count // 4, seed):
        run_queries(text, harbour)


@pytest.mark.parametrize("text", [*SCHEMAS, HARBOUR])
def test_a_plan_has_steps_exactly_when_two_schemas_differ_in_meaning(text: str) -> None:
    accepted = compile_schema(text)
    differing = 0
    for changed in programs.damaged([text], 1_000, seed=7):
        try:
            desired = compile_schema(changed)
        except GraphError:
            continue
        for older, newer in ((accepted, desired), (desired, accepted)):
            plan = plan_migration(older, newer)
            assert plan.is_empty is (older.schema_hash == newer.schema_hash) or _is_stale_rename(newer, plan), changed
        differing += accepted.schema_hash != desired.schema_hash
    assert differing > 10


def _is_stale_rename(newer: Catalog, plan: MigrationPlan) -> bool:
    """A `@rename_from` that cannot be followed is refused, though it is no part of a schema's meaning."""
    return any("rename_from" in str(step.to_json()) for step in plan.steps)


@pytest.mark.parametrize("opening", ["[", "{", "(", "not {", "count(", "search("])
def test_ten_thousand_nested_brackets_are_a_clear_error(opening: str) -> None:
    inside = opening * 10_000 + {"{": "}", "[": "]", "(": ")"}[opening[-1]] * 10_000
    for text in (
        f"query q() {{ match {{ $v: V {inside} }} return {{ $v }} }}",
        f"query q() {{ match {{ $v.x = {inside}",
    ):
        with pytest.raises(ParseError, match="nested more than 64 deep"):
            parse_query_file(text)
    with pytest.raises(ParseError, match="nested more than 64 deep"):
        parse_schema(f"node A {{ {inside} }}")


def test_brackets_in_strings_and_comments_do_not_nest() -> None:
    noise = "[" * 10_000
    text = f'query q() {{ match {{ $v: Berth {{ code: "{noise}" }} }} /* {noise} */ return {{ $v }} }} // {noise}'
    assert len(parse_query_file(text).queries) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "query q() { match { $v.x = " + "9" * 1_000_000,
        '"' + "\\" * 1_000_000,
        '"\\' * 500_000,
        "/*" * 500_000,
        "/* *" * 250_000,
        "node A { a: String @" * 50_000,
        "$" * 1_000_000,
        "{" * 40 + "}" * 1_000_000,
        "query q() { match { $v: V } return { $v } } " * 2_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_megabyte_of_nonsense_is_refused_in_time(text: str) -> None:
    started = time.process_time()
    for parse in (parse_schema, parse_query_file):
        with pytest.raises(ParseError):
            parse(text)
    assert time.process_time() - started < 10


def test_a_string_of_a_megabyte_is_read_in_time() -> None:
    started = time.process_time()
    parse_query_file(f'query q() {{ match {{ $v: Berth {{ code: "{"x" * 1_000_000}" }} }} return {{ $v }} }}')
    assert time.process_time() - started < 10
