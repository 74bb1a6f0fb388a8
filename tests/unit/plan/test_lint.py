"""Reports on query files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omnigraph.catalog.resolve import compile_schema
from omnigraph.plan import compile_query
from omnigraph.plan.contract import parameters_json
from omnigraph.plan.lint import lint

HARBOUR = compile_schema((Path(__file__).parents[2] / "conformance" / "harbour.pg").read_text())
QUERIES = (Path(__file__).parents[2] / "conformance" / "harbour.gq").read_text()


def report(source: str) -> dict[str, Any]:
    return lint(HARBOUR, source, query_path="h.gq", schema_source={"kind": "file", "path": "h.pg"}).to_json()


def test_the_whole_shape_of_a_report() -> None:
    assert report(
        'query scrap($c: String) { delete CrewOf where to = $c } query reset() { delete Berth where code = "x" }'
    ) == {
        "status": "ok",
        "schema_source": {"kind": "file", "path": "h.pg"},
        "query_path": "h.gq",
        "queries_processed": 2,
        "errors": 0,
        "warnings": 1,
        "infos": 0,
        "results": [
            {
                "name": "scrap",
                "kind": "mutation",
                "status": "ok",
                "operation": {
                    "result": [
                        {"name": "affected_nodes", "kind": "bigint", "nullable": False},
                        {"name": "affected_edges", "kind": "bigint", "nullable": False},
                    ],
                    "reads": [{"kind": "edge", "type_name": "CrewOf"}],
                    "writes": [{"kind": "edge", "type_name": "CrewOf"}],
                },
            },
            {
                "name": "reset",
                "kind": "mutation",
                "status": "ok",
                "warnings": ["mutation has no parameters"],
                "operation": {
                    "result": [
                        {"name": "affected_nodes", "kind": "bigint", "nullable": False},
                        {"name": "affected_edges", "kind": "bigint", "nullable": False},
                    ],
                    "reads": [{"kind": "node", "type_name": "Berth"}],
                    "writes": [{"kind": "edge", "type_name": "MooredAt"}, {"kind": "node", "type_name": "Berth"}],
                },
            },
        ],
        "findings": [],
    }


def test_a_read_lists_columns_and_every_type_it_may_inspect() -> None:
    (result,) = report(
        "query q($p: String) { match { $v: Vessel not { $v mooredAt $_ } }"
        " return { $v, $v.length_m, $v.flags, $v.profile, $v.built, $v.last_seen, $v.kind as k, $p } }"
    )["results"]
    assert result["operation"] == {
        "result": [
            {"name": "v", "kind": "string", "nullable": False},
            {"name": "v.length_m", "kind": "float", "nullable": True},
            {"name": "v.flags", "kind": "list", "nullable": True, "item_kind": "string"},
            {"name": "v.profile", "kind": "vector", "nullable": True, "vector_dim": 4},
            {"name": "v.built", "kind": "date", "nullable": True},
            {"name": "v.last_seen", "kind": "datetime", "nullable": True},
            {"name": "k", "kind": "string", "nullable": False},
            {"name": "p", "kind": "string", "nullable": False},
        ],
        "reads": [
            {"kind": "edge", "type_name": "MooredAt"},
            {"kind": "node", "type_name": "Berth"},
            {"kind": "node", "type_name": "Vessel"},
        ],
        "writes": [],
    }
    (counted,) = report("query q() { match { $s: Sailor } return { $s.badge, count($s) as n } }")["results"]
    assert [column["kind"] for column in counted["operation"]["result"]] == ["int", "bigint"]


def test_an_edge_insert_reads_its_ends() -> None:
    (result,) = report('query q($a: String) { insert CrewOf { from: $a, to: "x" } }')["results"]
    assert result["operation"]["reads"] == [
        {"kind": "edge", "type_name": "CrewOf"},
        {"kind": "node", "type_name": "Sailor"},
        {"kind": "node", "type_name": "Vessel"},
    ]


def test_properties_that_no_update_sets_are_found_and_sorted() -> None:
    findings = report(QUERIES)["findings"]
    assert [finding["property"] for finding in findings] == ["built", "flags", "last_seen", "length_m", "manual"]
    assert findings[0] == {
        "severity": "warning",
        "code": "L201",
        "message": "no update query sets Vessel.built",
        "type_name": "Vessel",
        "property": "built",
        "query_names": ["register_tug"],
    }


def test_only_valid_updates_count() -> None:
    assert report("query q($n: I32) { update Sailor set { email: $n } where badge = $n }")["findings"] == []


def test_mixed_statements_a_changed_key_and_a_bad_type_are_all_errors() -> None:
    body = report(
        "query a($c: String) { insert LogEntry { body: $c } delete Berth where code = $c }"
        " query b($c: String) { update Vessel set { code: $c } where code = $c }"
        " query c($c: String) { match { $v: Nope } return { $v } }"
    )
    assert (body["status"], body["errors"]) == ("error", 3)
    assert [result["error"][:2] for result in body["results"]] == ["D2", "Ve", "T1"]
    assert not any("operation" in result for result in body["results"])


def test_a_file_that_does_not_parse_is_one_finding() -> None:
    body = report("query broken(")
    assert (body["status"], body["queries_processed"], body["errors"]) == ("error", 0, 1)
    (finding,) = body["findings"]
    assert set(finding) == {"severity", "code", "message"}
    assert finding["message"].startswith("line 1, column 14: expected ")


def test_an_empty_file_is_fine() -> None:
    body = report("// nothing yet")
    assert (body["status"], body["queries_processed"], body["results"], body["findings"]) == ("ok", 0, [], [])


def test_parameters_are_listed_in_the_words_of_the_wire() -> None:
    plan = compile_query(
        HARBOUR, "query q($a: U64?, $b: [Date], $c: Vector(3), $d: Blob) { match { $v: Vessel } return { $v } }"
    )
    assert parameters_json(plan) == [
        {"name": "a", "kind": "bigint", "nullable": True},
        {"name": "b", "kind": "list", "nullable": False, "item_kind": "date"},
        {"name": "c", "kind": "vector", "nullable": False, "vector_dim": 3},
        {"name": "d", "kind": "blob", "nullable": False},
    ]
