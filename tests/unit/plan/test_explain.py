"""Plans as trees."""

from dataclasses import replace
from pathlib import Path

from omnigraph.catalog.resolve import compile_schema
from omnigraph.plan import compile_query
from omnigraph.plan.explain import explain

HARBOUR = compile_schema((Path(__file__).parents[2] / "conformance" / "harbour.pg").read_text())


def text(source: str) -> list[str]:
    return explain(compile_query(HARBOUR, source)).to_text().splitlines()


def test_a_read_is_a_tree_from_the_columns_down_to_the_scans() -> None:
    source = (
        "query near($c: String) { match { $b: Berth { code: $c } $v $e:mooredAt $b not { $v tows{1,2} $x } }"
        " return { $v.kind, count($v) as n } order { n desc, $v.kind } limit 5 }"
    )
    assert text(source) == [
        "query near($c: String)",
        "└─ project $v.kind, count($v) as n",
        "   └─ limit 5",
        "      └─ order count($v) desc, $v.kind asc",
        "         └─ aggregate by v.kind",
        "            └─ match",
        "               ├─ scan $b: Berth",
        "               ├─ scan $v: Vessel",
        "               ├─ expand $v -[$e:MooredAt]-> $b",
        "               ├─ filter $b.code = $c",
        "               └─ anti_join $v",
        "                  ├─ scan $x: Vessel",
        "                  └─ expand $v -[Tows{1,2}]-> $x",
    ]


def test_a_rank_and_its_literals_are_shown_as_they_are_written() -> None:
    source = (
        'query s($q: String) { match { $v <tows> $w $v.name starts_with "A\\n" fuzzy($v.name, $q) }'
        ' return { $v } order { rrf(nearest($v.profile, [1, 0, 0, 0.5]), bm25($v.name, "q")), $v.name } limit 2 }'
    )
    lines = text(source)
    order = next(line for line in lines if "order" in line)
    assert order.strip("└─ ") == (
        'order rank rrf(nearest($v.profile, [1.0, 0.0, 0.0, 0.5]), bm25($v.name, "q"), 60), $v.name asc'
    )
    assert any(line.endswith("expand $v -[Tows]- $w") for line in lines)
    assert any(line.endswith('filter $v.name starts_with "A\\n"') for line in lines)
    assert any(line.endswith("filter fuzzy($v.name, $q, 2)") for line in lines)


def test_a_mutation_lists_its_statements() -> None:
    source = (
        'query m($c: String) { insert Vessel { code: $c, name: "x", kind: "tug", built: date("2001-05-04") }'
        " insert Tows { from: $c, to: $c } update Vessel set { last_seen: now() } where code = $c }"
    )
    assert text(source) == [
        "mutation m($c: String)",
        '├─ insert_node Vessel { code: $c, name: "x", kind: "tug", built: date("2001-05-04") }',
        "├─ insert_edge Tows { from: $c, to: $c }",
        "└─ update_nodes Vessel set { last_seen: now() } where code = $c",
    ]
    assert text("query d($c: String) { delete Vessel where code = $c delete Tows where from != $c }")[1:] == [
        "├─ delete_nodes Vessel where code = $c",
        "└─ delete_edges Tows where from != $c",
    ]


def test_facts_of_an_execution_stand_beside_a_step() -> None:
    tree = explain(compile_query(HARBOUR, "query q() { match { $v: Berth } return { $v } }"))
    measured = replace(tree, facts={"rows": 2})
    assert measured.to_text().splitlines()[0] == "query q()  [rows=2]"
    assert measured.to_json() == {
        "operator": "query",
        "detail": "q()",
        "facts": {"rows": 2},
        "children": [
            {
                "operator": "project",
                "detail": "$v",
                "children": [{"operator": "match", "children": [{"operator": "scan", "detail": "$v: Berth"}]}],
            }
        ],
    }
