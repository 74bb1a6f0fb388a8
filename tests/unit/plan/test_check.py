"""What the checker refuses, code by code, and what it lets pass."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph.catalog.resolve import compile_schema
from omnigraph.errors import ConstraintError, QueryNotFoundError, TypeCheckError
from omnigraph.plan import check, compile_file, compile_query

HARBOUR = compile_schema((Path(__file__).parents[2] / "conformance" / "harbour.pg").read_text())
PARAMETERS = (
    "$q: String, $n: I64, $f: F64?, $d: Date, $t: DateTime, $yes: Bool, $l: [String], $il: [I32], $v4: Vector(4),"
    " $v3: Vector(3), $raw: Blob"
)


def read(match: str, returned: str = "$v.code", tail: str = "") -> str:
    return f"query t({PARAMETERS}) {{ match {{ {match} }} return {{ {returned} }} {tail} }}"


def write(body: str) -> str:
    return f"query t({PARAMETERS}) {{ {body} }}"


def code_of(source: str) -> str:
    with pytest.raises(TypeCheckError) as caught:
        compile_query(HARBOUR, source)
    error = caught.value
    assert error.span is not None
    assert error.code == "type" or error.message.startswith(f"{error.code}: ")
    return error.code


V = "$v: Vessel "
REFUSED_MATCHES = [
    ("T1", "$v: Harbour"),
    ("T1", "$v: Tracked"),
    ("T1", "$v: Tows"),
    ("T2", "$v: Vessel { speed: 3 }"),
    ("T2", '$v: Vessel { id: "AB-1" }'),
    ("T3", '$v: Vessel { kind: "yacht" }'),
    ("T3", '$v: Vessel { length_m: "long" }'),
    ("T3", '$v: Vessel { flags: ["ice"] }'),
    ("T3", "$v: Vessel { flags: 5 }"),
    ("T3", '$v: Vessel { manual: "x" }'),
    ("T3", "$v: Vessel { profile: [1, 0, 0, 0] }"),
    ("T3", '$v: Vessel { built: "2001-05-04" }'),
    ("T3", '$v: Vessel { built: datetime("2001-05-04") }'),
    ("T3", "$v: Vessel { name: true }"),
    ("T4", "$v sails $b"),
    ("T5", "$b: Berth $b tows $v"),
    ("T5", V + "$s: Sailor $v mooredAt $s"),
    ("T5", V + "$w: Vessel $v mooredAt $w"),
    ("T5", V + "$v mooredAt $v"),
    ("T6", '$v.kind = "tug" $v: Vessel'),
    ("T6", V + '$_.kind = "tug"'),
    ("T6", V + '$q.x = "tug"'),
    ("T6", "$a $e:tows $v $e.src = $q"),
    ("T7", V + '$v.built = "2001-05-04"'),
    ("T7", V + "$v.built = $t"),
    ("T7", V + "$v.built = now()"),
    ("T7", V + "$v.name = 5"),
    ("T7", V + "$v.flags = $l"),
    ("T7", V + "$v.profile = $v4"),
    ("T7", V + "$v.manual = $raw"),
    ("T7", V + "$yes = 1"),
    ("T7", V + "$v.flags contains 5"),
    ("T7", V + "$v.flags contains $l"),
    ("T7", V + "$v.length_m contains 5"),
    ("T7", V + "$v.profile contains 1.0"),
    ("T7", V + "$v.name contains 5"),
    ("T7", V + "$v.name starts_with 5"),
    ("T7", V + '$v.flags starts_with "x"'),
    ("T7", V + 'now() starts_with "x"'),
    ("T7", V + "$v = 5"),
    ("T7", V + "count($v) = 5"),
    ("T7", V + "bm25($v.name, $q) > 1.0"),
    ("T7", V + "nearest($v.profile, $v4) < 1.0"),
    ("T7", "$v: Vessel { name: $l }"),
    ("T7", "$v: Vessel { name: $n }"),
    ("T7", "$v: Vessel { length_m: $q }"),
    ("T7", "$v: Vessel { name: now() }"),
    ("T7", "$v: Vessel { flags: $il }"),
    ("T7", "$v: Vessel { name: $raw }"),
    ("T9", V + "not { $x: Berth }"),
    ("T9", V + 'not { $a tows $b $a.kind = "tug" }'),
    ("T9", V + "not { 5 = 5 }"),
    ("T9", V + "not { $q = $q }"),
    ("T9", V + "not { $x: Berth not { $y: Berth } }"),
    ("T15", V + "$v tows{0,2} $x"),
    ("T15", V + "$v tows{3,1} $x"),
    ("T15", V + "$v tows{1,} $x"),
    ("T19", V + "search($v.length_m, $q)"),
    ("T19", V + "search($v.flags, $q)"),
    ("T19", V + "search($v.name, 5)"),
    ("T19", V + "search($v.name, $n)"),
    ("T19", V + "search($v.name, $v.notes)"),
    ("T19", V + 'search("a", "b")'),
    ("T19", V + "search($v, $q)"),
    ("T19", V + "fuzzy($v.name, $q, 1.5)"),
    ("T19", V + "fuzzy($v.name, $q, $q)"),
    ("T20", V + "match_text($v.length_m, $q)"),
    ("T20", V + "match_text($v.name, $l)"),
    ("T22", "$v <mooredAt> $b"),
    ("T23", "$v $e:tows{1,2} $x"),
    ("T23", "$v $e:tows{2,2} $x"),
    ("T23", "$v $v:tows $x"),
    ("T23", "$v $x:tows $x"),
    ("T23", "$v $e:tows $x $x $e:tows $y"),
    ("T23", V + "$x: Vessel $x $v:tows $y"),
    ("T23", "$v $e:tows $x $e tows $x"),
    ("T23", "$v $e:tows $x $e: Vessel"),
    ("T23", "$v $e:tows $x $e = 5"),
    ("T23", "$v $e:tows $x search($e.line, $q)"),
    ("T23", "$v $e:tows $x not { $v $e:tows $y }"),
    ("type", V + "$v: Berth"),
    ("type", "$v: Vessel { code: $v }"),
    ("type", "$v: Vessel { code: $zzz }"),
    ("type", "$q: Vessel $v: Vessel"),
    ("type", V + "$v tows $q"),
    ("type", V + "$v $q:tows $x"),
    ("type", V + "$zzz = 5"),
    ("type", V + "alias = 5"),
    ("type", V + '$v.built = date("2001-02-30")'),
    ("type", V + '$v.last_seen = datetime("yesterday")'),
    ("type", V + "$l contains [[1]]"),
    ("type", V + "$v.name = [1, true]"),
    ("type", V + "not { $v: Berth }"),
]


@pytest.mark.parametrize(("code", "match"), REFUSED_MATCHES)
def test_a_match_is_refused_with_its_code(code: str, match: str) -> None:
    assert code_of(read(match)) == code


REFUSED_RETURNS = [
    ("T6", "$v.src", ""),
    ("T8", "sum($v.name)", ""),
    ("T8", "avg($v.flags)", ""),
    ("T8", "max($v.profile)", ""),
    ("T8", "sum($v)", ""),
    ("T8", "min($v)", ""),
    ("T8", "count(count($v))", ""),
    ("T8", "count($v) as n, sum(n)", ""),
    ("T8", "sum(true)", ""),
    ("T9", "count($v) as n, bm25($v.name, $q)", ""),
    ("T15", "nearest($v.name, $v4)", ""),
    ("T15", "nearest($v.profile, [1, 0, 0])", ""),
    ("T15", "nearest($v.profile, [])", ""),
    ("T15", 'nearest($v.profile, ["a", "b", "c", "d"])', ""),
    ("T15", "nearest($v.profile, $v3)", ""),
    ("T15", "nearest($v.profile, $n)", ""),
    ("T15", "nearest($v.profile, $l)", ""),
    ("T15", "nearest($v.profile, 5)", ""),
    ("T15", "nearest($v.profile, $v)", ""),
    ("T15", "nearest($v.profile, now())", ""),
    ("T15", "nearest($v.profile, $v.name)", ""),
    ("T17", "$v.code", "order { nearest($v.profile, $v4) }"),
    ("T17", "nearest($v.profile, $v4) as d", "order { d }"),
    ("T18", "$v.code as n", "order { nearest($v.profile, $v4), n } limit 3"),
    ("T18", "$v.code as n, nearest($v.profile, $v4) as d", "order { d, n } limit 3"),
    ("T20", "bm25($v.name, 5)", ""),
    ("T20", "bm25($v.length_m, $q)", ""),
    ("T21", "$v.code", "order { rrf(bm25($v.name, $q), nearest($v.profile, $v4)) }"),
    ("T21", "$v.code", "order { rrf(bm25($v.name, $q), bm25($v.code, $q), 0) } limit 2"),
    ("T21", "$v.code", "order { rrf(bm25($v.name, $q), bm25($v.code, $q), 1.5) } limit 2"),
    ("T21", "$v.code", "order { rrf(bm25($v.name, $q), bm25($v.code, $q), $q) } limit 2"),
    ("T21", "rrf(bm25($v.name, $q), bm25($v.code, $q)) as s", "limit 2"),
    ("T21", "rrf(bm25($v.name, $q), bm25($v.code, $q)) as s", "order { bm25($v.name, $q) } limit 2"),
    ("T24", "$v.manual", ""),
    ("T24", "$raw", ""),
    ("T24", "count($v.manual)", ""),
    ("T24", "$v.code", "order { $v.manual }"),
    ("type", "$v.code, $v.code", ""),
    ("type", "$v.code, $v.name as code, $v.kind as code", ""),
    ("type", "$v.name as n, n", ""),
    ("type", "n, $v.name as n", ""),
    ("type", "$zzz", ""),
    ("type", "$_", ""),
    ("type", "$v.code", "order { n }"),
    ("type", "$v.code", "order { $v }"),
    ("type", "$v.code", "order { 5 }"),
    ("type", "$v.code", "order { $q }"),
    ("type", "$v.code", "order { $v.flags }"),
    ("type", "$v.code", "order { $v.profile }"),
    ("type", "$v.flags as f", "order { f }"),
    ("type", "$v.code", "order { $v.code, bm25($v.name, $q) }"),
    ("type", "nearest($v.profile, $v4) as d", "order { d desc } limit 3"),
    ("type", "count($v) as n", "order { bm25($v.name, $q) }"),
    ("type", "count($v) as n, $v.kind", "order { $v.name }"),
    ("type", "count($v) as n, $v.flags", ""),
    ("type", "count($v) as n, $v.profile", ""),
]


@pytest.mark.parametrize(("code", "returned", "tail"), REFUSED_RETURNS)
def test_a_return_or_order_is_refused_with_its_code(code: str, returned: str, tail: str) -> None:
    assert code_of(read(V, returned, tail)) == code


def test_rankings_of_two_variables_are_not_fused() -> None:
    source = read(V + "$w: Vessel", "$v.code", "order { rrf(bm25($v.name, $q), bm25($w.name, $q)) } limit 2")
    assert code_of(source) == "T21"


REFUSED_WRITES = [
    ("T3", "insert Berth { code: 5, depth_m: 1.0 }"),
    ("T3", "insert Sailor { badge: 1.0, name: $q }"),
    ("T3", "insert Sailor { badge: 5000000000, name: $q }"),
    ("T3", 'insert Sailor { badge: 1, name: $q, rank: "cook" }'),
    ("T3", "update Vessel set { profile: [1, 0] } where code = $q"),
    ("T3", 'update Vessel set { profile: "x" } where code = $q'),
    ("T3", "update Vessel set { flags: [1] } where code = $q"),
    ("T3", 'update Vessel set { flags: "x" } where code = $q'),
    ("T3", 'update Vessel set { manual: "base64:AA==" } where code = $q'),
    ("T3", f"update Berth set {{ depth_m: {'9' * 60}.0 }} where code = $q"),
    ("T3", 'update Sailor set { name: "x" } where rank = "cook"'),
    ("T3", "insert Tows { from: 5, to: $q }"),
    ("T7", "update Vessel set { built: now() } where code = $q"),
    ("T7", "update Vessel set { built: $t } where code = $q"),
    ("T7", "update Vessel set { name: $n } where code = $q"),
    ("T7", "update Vessel set { flags: $q } where code = $q"),
    ("T7", "update Vessel set { flags: $il } where code = $q"),
    ("T7", "update Vessel set { profile: $v3 } where code = $q"),
    ("T7", "update Vessel set { manual: $n } where code = $q"),
    ("T7", "update Vessel set { manual: now() } where code = $q"),
    ("T7", 'update Vessel set { notes: $q } where length_m = "x"'),
    ("T7", "update Vessel set { notes: $q } where length_m = $q"),
    ("T7", "delete Tows where from = 5"),
    ("T7", "delete Tows where from = $n"),
    ("T7", "insert Tows { from: $n, to: $q }"),
    ("T10", "delete Harbour where code = $q"),
    ("T10", "insert Tracked { code: $q }"),
    ("T11", "update Vessel set { speed: 3 } where code = $q"),
    ("T11", "update Vessel set { notes: $q } where speed = 3"),
    ("T11", "insert Berth { code: $q, depth_m: 1.0, id: $q }"),
    ("T11", "delete Tows where src = $q"),
    ("T11", "delete Vessel where from = $q"),
    ("T11", "delete Vessel where flags = $q"),
    ("T11", "delete Vessel where profile = $v4"),
    ("T11", "delete Vessel where manual = $raw"),
    ("T11", "insert Tows { from: $q, to: $q, src: $q }"),
    ("T12", "insert Berth { code: $q }"),
    ("T12", "insert Tows { from: $q }"),
    ("T12", "insert Tows { to: $q }"),
    ("T13", "insert Berth { code: $q, code: $q, depth_m: 1.0 }"),
    ("T13", "insert Tows { from: $q, from: $q, to: $q }"),
    ("T13", "update Vessel set { notes: $q, notes: $q } where code = $q"),
    ("T14", "delete Berth where code = $nope"),
    ("T14", "insert Berth { code: $nope, depth_m: 1.0 }"),
    ("T14", "insert Tows { from: $nope, to: $q }"),
    ("T16", "update Tows set { from: $q } where from = $q"),
    ("T11", "update Tows set { nope: 1 } where nope = 1"),
    ("T3", "update Vessel set { manual: concat($q, name) } where code = $q"),
    ("T5", "match { $v: Vessel $b: Berth } insert MooredAt { from: $b, to: $v }"),
    ("T7", "update Vessel set { notes: length_m } where code = $q"),
    ("T7", "update Sailor set { name: to_string(badge / 2) } where search(name, $q)"),
    ("T7", "match { $v: Vessel } update $v set { notes: $v }"),
    ("T7", "insert Sailor { badge: $f * 2.0, name: $q }"),
    ("T11", "delete Vessel where manual is null"),
    ("T14", "delete $v"),
    ("T14", "update $q set { notes: $q }"),
    ("T14", "insert Berth { code: code, depth_m: 1.0 }"),
    ("T14", "match { $v: Vessel } update $v set { notes: $w }"),
    ("T24", "update Vessel set { notes: manual } where code = $q"),
    ("type", "delete Vessel"),
    ("type", "update Vessel set { notes: $q }"),
    ("type", "insert Berth { code: $q, depth_m: 1.0 } return { $q as c }"),
    ("type", "insert Berth { code: $q, depth_m: 1.0 } as $b return { count($b) as n }"),
    ("type", "insert Berth { code: $q, depth_m: 1.0 } as $q return { $q }"),
    ("type", "match { $v: Vessel } insert Berth { code: $q, depth_m: 1.0 } as $b return { $b, $v }"),
    ("D2", "insert Berth { code: $q, depth_m: 1.0 } delete Berth where code = $q"),
    ("D2", "delete Berth where code = $q update Vessel set { notes: $q } where code = $q"),
    ("type", 'update Vessel set { built: date("nope") } where code = $q'),
]


@pytest.mark.parametrize(("code", "body"), REFUSED_WRITES)
def test_a_statement_is_refused_with_its_code(code: str, body: str) -> None:
    assert code_of(write(body)) == code


def test_a_key_is_never_assigned_by_an_update() -> None:
    with pytest.raises(ConstraintError, match="never changes"):
        compile_query(HARBOUR, write("update Vessel set { code: $q } where code = $q"))


@pytest.mark.parametrize(
    "parameters",
    ["$a: String, $a: I32", "$__nanograph_now: DateTime", "$_: String", "$v2: Vector(0)", "$l: [Blob]"],
)
def test_reserved_duplicate_and_impossible_parameters_are_refused(parameters: str) -> None:
    assert code_of(f"query t({parameters}) {{ match {{ $v: Vessel }} return {{ $v }} }}") == "type"


ACCEPTED = [
    read("$v: Vessel { length_m: 5, built: $d, last_seen: now(), flags: $q, kind: $q, }"),
    read("$v: Sailor { badge: 2.5 }", "$v.badge"),
    read("$v: Sailor { badge: 99999999999 }", "$v.badge"),
    read('$v: Vessel { kind: "tug" } $v: Vessel { name: $q }'),
    read(V + "5 < $v.length_m $n <= $v.length_m $v.length_m != $f"),
    read(V + '"ice" = $v.name $v.kind = "yacht" $yes = true $l contains "x" $l contains $v.name'),
    read(V + "$il contains 2.5 $il contains $v.length_m"),
    read(V + '[1, 2.5] contains $v.length_m [] contains $v.name [date("2001-05-04")] contains $v.built'),
    read(V + 'search($v.name, $q) = true false != fuzzy($v.name, "q", $n) $q starts_with "x"'),
    read("$v MOOREDAT $b".replace("MOOREDAT", "mOOREDAT")),
    read("$b: Berth not { $v mooredAt $b } $v: Vessel"),
    read(V + "not { $v tows $x not { $x tows $y not { $y tows $v } } }"),
    read(V + 'not { $v $e:tows $x $e.line = "short" }'),
    read('$v $e:tows $x not { $e.line = "short" }'),
    read(V + "not { search($v.name, $q) }"),
    read(V + "$x: Berth not { not { $v mooredAt $x } }"),
    read("$v tows $_ $_ mooredAt $b $v $_:tows{1,3} $y $v $e:tows{1,1} $z $v $_:<tows>{1,2} $w"),
    read("$v <tows> $x $x $e:<tows> $y", "$e.line, count($e) as n"),
    read("$v tows $v"),
    read(V, "$v.code as a, a as b, count(a) as n", "order { b, n desc }"),
    read(V, "$v, count($v) as n, $q, 5 as five, sum(1) as s, count(1), max($v.kind)"),
    read(V, "$v.name as n, search(n, $q) as hit, bm25(n, $q) as words", "order { words asc, hit, n }"),
    read(V, "nearest($v.profile, $q) as d, bm25($v.name, $q) as w", "order { d asc } limit 5"),
    read(V, "$v.name as n, bm25($v.name, $q) as w", "order { n, w desc }"),
    read(V, "now(), $v4, $l, [1], true as yes", "limit 0"),
    read(V, "rrf(nearest($v.profile, $il), bm25($v.name, $q), $n) as s", "order { s, $v.name } limit 5"),
    write("insert Vessel { code: $q, name: $q, kind: $q, length_m: 5, built: $d, last_seen: now(), flags: [] }"),
    write('insert Vessel { code: $q name: $q kind: "tug" profile: [1, 2, 3, 4.5] manual: $raw flags: $l }'),
    write("update Vessel set { manual: $q, length_m: $n, profile: $v4 } where length_m >= $n"),
    write("delete CrewOf where to != $q delete Vessel where last_seen < now()"),
    write("insert Sailor { badge: $n, name: $q } insert LogEntry { body: $q, at: $t }"),
    write("delete Sailor where badge = 2.5"),
]


@pytest.mark.parametrize("source", ACCEPTED)
def test_what_the_rules_allow_compiles(source: str) -> None:
    assert compile_query(HARBOUR, source).name == "t"


def test_a_vector_with_an_embedding_may_be_left_out_when_its_source_is_given() -> None:
    catalog = compile_schema("node A { t: String? v: Vector(2) @embed(t) }")
    compile_query(catalog, 'query t() { insert A { t: "x" } }')
    with pytest.raises(TypeCheckError) as caught:
        compile_query(catalog, "query t($v: Vector(2)?) { insert A { t: $nope } }")
    assert caught.value.code == "T14"
    with pytest.raises(TypeCheckError) as caught:
        compile_query(
            compile_schema("node A { t: String? u: I32? v: Vector(2) @embed(t) }"), "query t() { insert A { u: 1 } }"
        )
    assert caught.value.code == "T12"


def test_a_shared_name_means_the_node_in_mutations() -> None:
    catalog = compile_schema("node A { x: I32? } edge A: A -> A")
    compile_query(catalog, "query t() { update A set { x: 1 } where x = 2 }")


def test_a_query_is_chosen_by_name_or_by_being_the_only_one() -> None:
    two = "query a() { match { $v: Vessel } return { $v } } query b() { match { $v: Berth } return { $v } }"
    assert compile_query(HARBOUR, two, "b").name == "b"
    with pytest.raises(QueryNotFoundError, match="2 queries"):
        compile_query(HARBOUR, two)
    with pytest.raises(QueryNotFoundError, match="no query 'c'"):
        compile_query(HARBOUR, two, "c")
    with pytest.raises(QueryNotFoundError, match="no query"):
        compile_query(HARBOUR, "")


def test_a_compiled_query_is_kept_for_its_schema() -> None:
    source = read(V)
    assert compile_query(HARBOUR, source) is compile_query(HARBOUR, "".join(source))
    other = compile_schema("node Vessel { code: I32 }")
    assert compile_query(other, source) != compile_query(HARBOUR, source)


def test_a_file_is_compiled_query_by_query() -> None:
    outcomes = compile_file(
        HARBOUR, 'query a() { match { $v: Nope } return { $v } } query b() { delete Tows where from = "x" }'
    )
    assert isinstance(outcomes["a"], TypeCheckError)
    assert not isinstance(outcomes["b"], Exception)


def test_the_first_error_from_the_top_is_reported() -> None:
    assert code_of(read("not { $v: Nope } $v tows{0,1} $x $v: Vessel")) == "T1"
    assert code_of(read("$v tows{0,1} $x not { $v: Nope }")) == "T15"
    assert code_of(read(V, "sum($v.name), $v.nope")) == "T8"


def test_queries_compile_alike_from_many_threads() -> None:
    sources = [read(V, f"$v.code as c{number}") for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        plans = list(pool.map(lambda source: compile_query(HARBOUR, source), sources * 4))
    assert [plan.projections[0].column for plan in plans[:40]] == [f"c{number}" for number in range(40)]  # type: ignore[union-attr]
    shown = [repr(plan) for plan in plans]
    assert shown[:40] == shown[40:80] == shown[120:]


def test_the_cache_forgets_what_was_not_used_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_cache", check._PlanCache(2))
    first, second, third = (read(V, f"$v.code as x{number}") for number in range(3))
    kept = compile_query(HARBOUR, first)
    dropped = compile_query(HARBOUR, second)
    assert compile_query(HARBOUR, first) is kept
    compile_query(HARBOUR, third)
    assert compile_query(HARBOUR, first) is kept
    assert compile_query(HARBOUR, second) is not dropped


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('match { $v: Vessel $v.name like "A%" } return { $v }', "texts are tested with contains"),
        ("match { $v: Vessel $v.length_m between 1 and 2 } return { $v }", "write 'x >= a and x <= b'"),
        ("match { $v: Vessel where $v.length_m > 1.0 } return { $v }", "beside the patterns"),
        ("match { $v: Vessel } return { $v.length_m is null as n }", "a condition is no value"),
        ("match { $v: Vessel } return { case when $v.name then 1 end as n }", "choose by coalesce(a, b)"),
        ("match { $v: Vessel } return { $v.kind as k } having { n > 1 }", "having tests aliases of the return"),
        ("match { $v: Vessel path $p = shortest $v tows{1,2} $w } return { $p.nodes }", "use length($p), nodes($p)"),
        ('update Tows set { line: "long" } where src = "a"', "the ends of an edge are 'from' and 'to'"),
    ],
)
def test_habits_of_other_languages_are_told_what_to_write(body: str, words: str) -> None:
    with pytest.raises(TypeCheckError, match=re.escape(words)):
        compile_query(HARBOUR, f"query q() {{ {body} }}")


@pytest.mark.parametrize("word", ["in", "contains", "starts_with", "ends_with", "matches"])
def test_a_condition_between_parameters_that_reads_as_an_edge_is_told_to_take_brackets(word: str) -> None:
    declared = "$p: String, $q: [String]" if word == "in" else "$p: [String], $q: String"
    declared = declared if word in ("in", "contains") else "$p: String, $q: String"
    text = "query q({}) {{ match {{ $v: Vessel {} }} return {{ $v }} }}"
    with pytest.raises(TypeCheckError, match=r"T4: .*put a condition like this one in brackets"):
        compile_query(HARBOUR, text.format(declared, f"$p {word} $q"))
    assert compile_query(HARBOUR, text.format(declared, f"($p {word} $q)"))


def test_a_type_error_shows_the_line_with_carets_under_the_mistake() -> None:
    with pytest.raises(TypeCheckError) as caught:
        compile_query(HARBOUR, "query q() {\n    match { $v: Vessel }\n    return { $v.nam }\n}")
    assert caught.value.message == (
        "T6: Vessel has no property 'nam'; did you mean 'name'? (line 3, column 14)\n"
        "        return { $v.nam }\n"
        "                 ^^^^^^"
    )
