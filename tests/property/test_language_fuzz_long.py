"""The fuzzing of the languages at length; a file of its own, so that it can run beside the others."""

from __future__ import annotations

import time

from tests.amounts import EXHAUSTIVE
from tests.property.test_language_fuzz import HARBOUR, QUERIES, SCHEMAS, fuzz

from omnigraph.catalog.resolve import compile_schema

SHORT_SCHEMAS = [
    "node A { x: I32 @key }",
    "node A { s: [String]? v: Vector(2)? @unique(s) }",
    "edge E: A -> B @card(0..1) { w: enum(a, b)? }",
    'interface I { a: String @description("d") }',
]
SHORT_QUERIES = [
    "query a() { match { $v: Berth } return { $v } }",
    'query b() { delete Tows where from = "x" }',
    "query c($p: I32?) { match { $a tows{1,2} $b } return { $a.code } }",
    "query d() { match { $v: Vessel not { $v tows $_ } } return { count($v) } limit 1 }",
    "query e($c: String) { insert Berth { code: $c, depth_m: 1.5 } }",
    'query g() { match { $v: Vessel $v.kind = "a" or not ($v.code in ["b"] and $v.built is null) } return { $v.* } }',
    "query h($k: I32) { match { $v: Vessel optional { $v tows $x } } return distinct { -$v.length_m + 1 as n } }",
    "query i() { match { path $p = shortest $a tows{1,3} $b } return { count(distinct $a) as n } having { n > 1 } }",
    "query j() { match { either { $a tows $b } or { $b tows $a } exists { $a mooredAt $_ } } return { $a } offset 1 }",
    'query f() { match { $v: Vessel search($v.name, "q") } return { $v.code } order { bm25($v.name, "q") } }',
]


@EXHAUSTIVE
def test_two_hundred_thousand_damaged_programs_end_in_a_tree_or_a_graph_error() -> None:
    harbour = compile_schema(HARBOUR)
    started = time.process_time()
    fuzz(harbour, count=150_000, seed=20_261, schemas=SHORT_SCHEMAS, queries=SHORT_QUERIES)
    fuzz(harbour, count=50_000, seed=20_262, schemas=SCHEMAS, queries=QUERIES)
    assert time.process_time() - started < 180
