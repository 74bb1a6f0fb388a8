"""The operators that checked queries become."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from omnigraph.catalog.resolve import compile_schema
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.plan import compile_query
from omnigraph.plan import operators as op
from omnigraph.plan import statements as st

HARBOUR = compile_schema((Path(__file__).parents[2] / "conformance" / "harbour.pg").read_text())
VESSEL = HARBOUR.nodes["Vessel"]


def read(match: str, rest: str = "return { $v.code }", parameters: str = "") -> op.ReadPlan:
    plan = compile_query(HARBOUR, f"query t({parameters}) {{ match {{ {match} }} {rest} }}")
    assert isinstance(plan, op.ReadPlan)
    return plan


def write(body: str, parameters: str = "") -> st.WritePlan:
    plan = compile_query(HARBOUR, f"query t({parameters}) {{ {body} }}")
    assert isinstance(plan, st.WritePlan)
    return plan


def ref(name: str, variable: str = "v") -> op.PropertyRef:
    return op.PropertyRef(variable, name, VESSEL.properties[name].type)


def test_the_types_of_the_ends_decide_the_direction_of_an_edge() -> None:
    for match in (
        "$v: Vessel $v mooredAt $b",
        "$v: Vessel $b mooredAt $v",
        "$b: Berth $b mooredAt $v",
        "$v mooredAt $b",
    ):
        (expand,) = read(match).pattern.expands
        assert (expand.source, expand.target) == ("v", "b")
        assert (expand.source_type, expand.target_type) == ("Vessel", "Berth")


def test_an_edge_between_equal_types_goes_as_written() -> None:
    (expand,) = read("$v: Vessel $x tows{1,3} $v").pattern.expands
    assert (expand.source, expand.target, expand.min_hops, expand.max_hops) == ("x", "v", 1, 3)
    (expand,) = read("$v: Vessel $x $e:<tows> $v").pattern.expands
    assert (expand.undirected, expand.edge_variable) == (True, "e")


def test_every_variable_has_one_scan_and_anonymous_ones_have_fresh_names() -> None:
    pattern = read('$_anon1: Vessel $v tows $_ $v tows $_ $v: Vessel { kind: "tug" }').pattern
    names = [scan.variable for scan in pattern.scans]
    assert names == ["_anon1", "v", "_anon2", "_anon3"]
    assert len(pattern.filters) == 1


def test_a_binding_is_equality_or_membership() -> None:
    pattern = read('$v: Vessel { flags: "ice", length_m: 5 }').pattern
    assert [filter_.predicate for filter_ in pattern.filters] == [
        op.ListContains(ref("flags"), op.Literal("ice", PropertyType(Scalar.STRING))),
        op.Comparison(op.ComparisonOperator.EQ, ref("length_m"), op.Literal(5, PropertyType(Scalar.I64))),
    ]


def test_a_negation_names_the_outer_variables_it_uses_through_every_depth() -> None:
    plan = read("not { $v tows $x not { $x tows $y $y.name = $w.name } } $v: Vessel $w: Vessel")
    (outer,) = plan.pattern.anti_joins
    assert outer.outer_variables == ("v", "w")
    assert [scan.variable for scan in outer.pattern.scans] == ["x"]
    (inner,) = outer.pattern.anti_joins
    assert inner.outer_variables == ("w", "x")
    assert [scan.variable for scan in inner.pattern.scans] == ["y"]


def test_literals_have_values_and_types() -> None:
    plan = read(
        '$v: Vessel $v.built = date("2001-05-04T23:30:00-01:00") $v.last_seen < datetime("2001-05-04 10:00")'
        " [1, 2.5] contains $v.length_m"
    )
    built, seen, member = (filter_.predicate for filter_ in plan.pattern.filters)
    assert isinstance(built, op.Comparison)
    assert built.right == op.Literal(dt.date(2001, 5, 5), PropertyType(Scalar.DATE))
    assert isinstance(seen, op.Comparison)
    assert seen.right == op.Literal(dt.datetime(2001, 5, 4, 10, tzinfo=dt.UTC), PropertyType(Scalar.DATETIME))
    assert isinstance(member, op.ListContains)
    assert member.items == op.Literal((1.0, 2.5), PropertyType(Scalar.F64, is_list=True))


def test_projections_have_names_and_types() -> None:
    plan = read(
        "$v: Vessel $v $e:tows $x",
        "return { $v, $v.flags, $p, 5, now(), search($v.name, $p), bm25($v.name, $p), nearest($v.profile, $p),"
        " $e.line, $v.name as alias, alias as again }",
        "$p: String",
    )
    assert [(p.column, str(p.type)) for p in plan.projections] == [
        ("v", "String"),
        ("v.flags", "[String]?"),
        ("p", "String"),
        ("literal", "I64"),
        ("now", "DateTime"),
        ("search", "Bool"),
        ("bm25", "F64"),
        ("nearest", "F64?"),
        ("e.line", "enum(long, short)?"),
        ("alias", "String"),
        ("again", "String"),
    ]
    assert plan.projections[-1].expression == ref("name")


def test_aggregates_have_names_and_types() -> None:
    plan = read(
        "$v: Vessel $v $e:tows $x",
        "return { $v.kind, count($v), count($e), count(1), sum($v.length_m), avg($x.length_m), min($v.name), max(2) }",
    )
    assert plan.is_aggregate
    assert [(p.column, str(p.type)) for p in plan.projections] == [
        ("v.kind", "enum(cargo, ferry, tanker, tug)"),
        ("v", "I64"),
        ("e", "I64"),
        ("count", "I64"),
        ("v.length_m", "F64?"),
        ("x.length_m", "F64?"),
        ("v.name", "String?"),
        ("max", "I64?"),
    ]
    assert plan.projections[2].expression == op.Aggregate(op.AggregateFunction.COUNT, op.EdgeCount("e"))


def test_a_rank_comes_first_and_the_other_orderings_follow() -> None:
    plan = read(
        "$v: Vessel", 'return { bm25($v.name, "q") as s, $v.code as c } order { s desc, c desc, $v.kind } limit 3'
    )
    assert plan.rank == op.Bm25(ref("name"), op.Literal("q", PropertyType(Scalar.STRING)))
    assert plan.order == (op.OrderKey(ref("code"), True), op.OrderKey(ref("kind"), False))
    assert (plan.limit, plan.is_ordered) == (3, True)


def test_an_alias_of_a_rank_that_is_not_first_orders_by_its_value() -> None:
    plan = read("$v: Vessel", 'return { bm25($v.name, "q") as s, $v.code as c } order { c, s desc }')
    assert plan.rank is None
    assert plan.order[1].descending
    assert isinstance(plan.order[1].expression, op.Bm25)


def test_defaults_of_search_functions_are_filled_in() -> None:
    plan = read(
        '$v: Vessel fuzzy($v.name, "q")',
        'return { $v } order { rrf(nearest($v.profile, "text"), nearest($v.profile, [1, 2, 3, 4])) } limit 1',
    )
    (filter_,) = plan.pattern.filters
    assert isinstance(filter_.predicate, op.TextMatch)
    assert filter_.predicate.max_distance == op.Literal(2, PropertyType(Scalar.I64))
    assert isinstance(plan.rank, op.Rrf)
    assert plan.rank.k == op.Literal(60, PropertyType(Scalar.I64))
    assert isinstance(plan.rank.first, op.Nearest)
    assert plan.rank.first.embed_model == "demo-embed-1"
    assert isinstance(plan.rank.second, op.Nearest)
    assert plan.rank.second.embed_model is None
    assert plan.rank.second.query == op.Literal((1.0, 2.0, 3.0, 4.0), PropertyType(Scalar.VECTOR, dimension=4))


def test_statements_become_write_operators_in_order() -> None:
    plan = write(
        'insert Tows { line: "long", to: $c, from: "x" } insert Berth { code: $c, depth_m: 3 }'
        " update Vessel set { notes: $c, profile: [1, 2, 3, 4] } where length_m >= 5",
        "$c: String",
    )
    parameter = op.ParameterRef("c", PropertyType(Scalar.STRING))
    edge, node, update = plan.statements
    assert edge == st.InsertEdge(
        "Tows",
        op.Literal("x", PropertyType(Scalar.STRING)),
        parameter,
        (st.Assignment("line", op.Literal("long", PropertyType(Scalar.STRING))),),
    )
    assert isinstance(node, st.InsertNode)
    assert node.assignments[1] == st.Assignment("depth_m", op.Literal(3, PropertyType(Scalar.I64)))
    assert isinstance(update, st.UpdateNodes)
    length = op.PropertyRef(st.SELF, "length_m", PropertyType(Scalar.F64, nullable=True))
    assert update.where == (op.Comparison(op.ComparisonOperator.GE, length, op.Literal(5, PropertyType(Scalar.I64))),)
    assert update.assignments[1].value == op.Literal((1.0, 2.0, 3.0, 4.0), PropertyType(Scalar.VECTOR, dimension=4))


def test_an_edge_is_selected_by_its_ends() -> None:
    plan = write("delete Tows where from = $c delete Tows where to != $c", "$c: String")
    tests = [statement.where[0] for statement in plan.statements]  # type: ignore[union-attr]
    assert [(test.left.property, str(test.operator)) for test in tests] == [("src", "="), ("dst", "!=")]
