from __future__ import annotations

import datetime as dt

import pytest

from omnigraph.errors import ConstraintError, PreconditionFailedError
from omnigraph.ids import RECOVERY_ACTOR

TOW = """
insert Vessel { code: $code, name: $name, kind: "tug", last_seen: now() }
insert Tows { from: $code, to: $tow, line: "long" }
update Vessel set { notes: "under tow", last_seen: now() } where code = $tow
"""
TOW_SIGNATURE = "$code: String, $name: String, $tow: String"


def tow(harbour, code, target, **options):
    parameters = {"code": code, "name": "Eider", "tow": target}
    return harbour.mutate(TOW, TOW_SIGNATURE, parameters=parameters, **options)


def test_statements_see_earlier_ones_and_become_one_commit(harbour):
    before = harbour.versions()
    result = tow(harbour, "AB-9", "AB-2", actor="act-ann")
    assert (result.affected_nodes, result.affected_edges) == (2, 1)
    after = harbour.versions()
    assert after["graph"] == before["graph"] + 1
    assert {key for key in after if after[key] != before[key]} == {"graph", "node:Vessel", "edge:Tows"}
    assert all(after[key] == before[key] + 1 for key in ("node:Vessel", "edge:Tows"))
    head = harbour.context.manifest.history.list("main", limit=1)[0]
    assert (head.graph_commit_id, head.actor_id) == (result.commit_id, "act-ann")
    assert result.to_json() == {
        "branch": "main",
        "query_name": "m",
        "affected_nodes": 2,
        "affected_edges": 1,
        "actor_id": "act-ann",
        "ids": [touched.to_json() for touched in result.ids],
    }
    assert result.ids[0].ids == ("AB-9",)
    assert [len(touched.ids) for touched in result.ids] == [1, 1, 1]
    assert not any(touched.more for touched in result.ids)


def test_now_is_one_moment_for_the_whole_query(harbour):
    tow(harbour, "AB-9", "AB-2")
    rows = harbour.rows("node:Vessel")
    assert rows["AB-9"]["last_seen"] == rows["AB-2"]["last_seen"]
    assert abs(rows["AB-9"]["last_seen"] - dt.date.today()).days <= 1


def test_a_keyed_insert_replaces_and_forgets_what_it_does_not_assign(harbour):
    harbour.mutate('insert Vessel { code: "AB-2", name: "Boreas II", kind: "cargo" }')
    rows = harbour.rows("node:Vessel")
    assert len(rows) == 4
    assert (rows["AB-2"]["name"], rows["AB-2"]["length_m"]) == ("Boreas II", None)


def test_an_upsert_keeps_the_row_id_and_the_creation_version(harbour):
    columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]

    def row():
        table = harbour.context.manifest.snapshot().open("node:Vessel").scan(columns, "id = 'AB-2'", with_row_id=True)
        return table.to_pylist()[0]

    before = row()
    harbour.mutate('insert Vessel { code: "AB-2", name: "Boreas II", kind: "cargo" }')
    after = row()
    assert after["_rowid"] == before["_rowid"]
    assert after["_row_created_at_version"] == before["_row_created_at_version"]
    assert after["_row_last_updated_at_version"] > before["_row_last_updated_at_version"]


def test_an_edge_may_be_written_before_the_node_it_names(harbour):
    harbour.mutate('insert Tows { from: "AB-7", to: "AB-1" } insert Vessel { code: "AB-7", name: "late", kind: "tug" }')
    assert "AB-7" in harbour.rows("node:Vessel")


def test_a_chained_update_tests_the_new_value_and_never_the_old_one(harbour):
    result = harbour.mutate(
        'update Vessel set { length_m: 99.0 } where kind = "tug"'
        '  update Vessel set { notes: "t" } where length_m = 99.0'
    )
    assert result.affected_nodes == 4
    result = harbour.mutate(
        'update Vessel set { length_m: 10.0 } where kind = "tug"'
        '  update Vessel set { notes: "old" } where length_m = 99.0'
    )
    assert result.affected_nodes == 2
    assert all(row["notes"] != "old" for row in harbour.rows("node:Vessel").values())


def test_inserting_and_updating_one_node_counts_two_and_stores_the_last_image(harbour):
    result = harbour.mutate(
        'insert Berth { code: "N7", depth_m: 1.0 } update Berth set { depth_m: 2.0 } where code = "N7"'
        ' insert Berth { code: "N7", depth_m: 3.0 }'
    )
    assert result.affected_nodes == 3
    assert harbour.rows("node:Berth")["N7"]["depth_m"] == 3.0


def test_an_update_keeps_what_it_does_not_assign_blobs_included(harbour):
    harbour.mutate(
        'insert Vessel { code: "AB-20", name: "b", kind: "tug", manual: $b }',
        "$b: Blob",
        parameters={"b": "base64:AQID"},
    )
    harbour.mutate('update Vessel set { name: "c" } where code = "AB-20"')
    handle = harbour.context.manifest.snapshot().open("node:Vessel")
    [row] = handle.scan(["name", "manual"], "id = 'AB-20'", blob_bytes=True).to_pylist()
    assert row == {"name": "c", "manual": b"\x01\x02\x03"}
    harbour.mutate("update Vessel set { manual: $b } where name = $n", "$b: Blob?, $n: String", parameters={"n": "c"})
    [row] = harbour.context.manifest.snapshot().open("node:Vessel").scan(["manual"], "id = 'AB-20'").to_pylist()
    assert row == {"manual": None}


def test_deleting_a_node_takes_its_edges_of_every_type_in_the_same_commit(harbour):
    before = harbour.versions()["graph"]
    result = harbour.mutate('delete Vessel where code = "AB-2"')
    assert (result.affected_nodes, result.affected_edges) == (1, 5)
    assert harbour.versions()["graph"] == before + 1
    assert "AB-2" not in harbour.rows("node:Vessel")
    for key in ("edge:Tows", "edge:MooredAt", "edge:CrewOf"):
        assert all("AB-2" not in (row["src"], row["dst"]) for row in harbour.rows(key).values())


def test_a_later_delete_of_the_same_query_does_not_count_what_is_gone(harbour):
    result = harbour.mutate('delete Vessel where code = "AB-2"  delete CrewOf where to = "AB-2"')
    assert (result.affected_nodes, result.affected_edges) == (1, 5)
    result = harbour.mutate('delete Vessel where kind = "tug"  delete Vessel where kind = "tug"')
    assert result.affected_nodes == 2


def test_edges_are_deleted_by_an_end_or_a_property(harbour):
    assert harbour.mutate('delete CrewOf where from = "9"').affected_edges == 2
    assert harbour.mutate('delete Tows where line = "short"').affected_edges == 1


def test_a_query_that_affects_nothing_makes_no_commit(harbour):
    before = harbour.versions()
    result = harbour.mutate('update Vessel set { notes: "x" } where code = "ZZ-1"')
    assert (result.affected_nodes, result.affected_edges, result.commit_id) == (0, 0, None)
    assert harbour.mutate('delete Vessel where code = "ZZ-1"').commit_id is None
    assert harbour.versions() == before


def test_two_values_of_an_integer_key_are_two_nodes(harbour):
    harbour.mutate('insert Sailor { badge: 10, name: "Z" }')
    harbour.mutate('insert Sailor { badge: 10, name: "Y" }')
    assert harbour.rows("node:Sailor")["10"]["name"] == "Y"


def test_a_condition_on_the_head_is_kept_or_refused(harbour):
    head = harbour.context.manifest.snapshot().head
    before = harbour.versions()
    with pytest.raises(PreconditionFailedError) as caught:
        harbour.mutate('insert Berth { code: "N9", depth_m: 1.0 }', if_commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert caught.value.actual == head
    assert harbour.versions() == before
    result = harbour.mutate('insert Berth { code: "N9", depth_m: 1.0 }', if_commit=head)
    assert result.commit_id is not None


BAD = [
    ('insert Vessel { code: "bad", name: "X", kind: "tug" }', "", {}, "@check violation"),
    ('insert Vessel { code: "AB-9", name: "X", kind: "tug", length_m: 501.0 }', "", {}, "@range violation"),
    ('insert Vessel { code: "AB-9", name: "X", kind: $k }', "$k: String", {"k": "yacht"}, "yacht"),
    ('insert MooredAt { from: "AB-3", to: "ZZ" }', "", {}, "dst 'ZZ' not found in Berth"),
    ('insert MooredAt { from: "ZZ", to: "N1" }', "", {}, "src 'ZZ' not found in Vessel"),
    ('insert MooredAt { from: "AB-1", to: "N2" }', "", {}, "@card violation"),
    ('insert Sailor { badge: 10, name: "Z", email: "ida@x" }', "", {}, "@unique violation"),
    ('update Sailor set { email: "ida@x" } where badge = 8', "", {}, "@unique violation"),
    ('update Sailor set { email: "new@x" } where badge > 7', "", {}, "@unique violation"),
    ("insert Sailor { badge: $b, name: $n }", "$b: I64, $n: String", {"b": 5_000_000_000, "n": "Z"}, "exceeds"),
    ("insert Sailor { badge: $b, name: $n }", "$b: I64, $n: String", {"b": -1, "n": "Z"}, "below"),
    ("insert Sailor { badge: 10, name: $n }", "$n: String?", {}, "Sailor.name"),
    ("update Vessel set { length_m: $x } where code = $c", "$x: F64, $c: String", {"x": 1e9, "c": "AB-1"}, "@range"),
    (TOW, TOW_SIGNATURE, {"code": "AB-9", "name": "E", "tow": "ZZ-1"}, "not found"),
]


@pytest.mark.parametrize(("body", "signature", "parameters", "message"), BAD)
def test_a_refused_mutation_leaves_no_trace_and_does_not_hinder_the_next(
    lasting_harbour, body, signature, parameters, message
):
    before, content = (lasting_harbour.versions(), lasting_harbour.heads()), lasting_harbour.lines()
    with pytest.raises(ConstraintError) as caught:
        lasting_harbour.mutate(body, signature, parameters=parameters)
    assert message in str(caught.value)
    assert (lasting_harbour.versions(), lasting_harbour.heads()) == before
    assert lasting_harbour.lines() == content
    assert not lasting_harbour.context.store.objects.list_dir("__recovery")
    assert lasting_harbour.mutate('insert Berth { code: "N9", depth_m: 1.0 }').commit_id is not None
    assert all(commit.actor_id != RECOVERY_ACTOR for commit in lasting_harbour.context.manifest.history.list("main"))


def test_a_lower_bound_is_met_by_two_inserts_of_one_query_and_kept_by_deletes(graph_of):
    graph = graph_of("node A { k: String @key } edge E: A -> A @card(2..) { n: I32? }")
    graph.mutate('insert A { k: "a" } insert A { k: "b" }')
    with pytest.raises(ConstraintError, match="@card"):
        graph.mutate('insert E { from: "a", to: "b" }')
    graph.mutate('insert E { from: "a", to: "b", n: 1 } insert E { from: "a", to: "a", n: 2 }')
    with pytest.raises(ConstraintError, match="@card"):
        graph.mutate("delete E where n = 1")
    with pytest.raises(ConstraintError, match="@card"):
        graph.mutate('delete A where k = "b"')
    assert graph.mutate('delete A where k = "a"').affected_edges == 2


@pytest.mark.parametrize("bound", ["", "@card(0..9)"], ids=["any number", "a bound"])
def test_edges_that_a_query_deletes_go_once_whether_they_are_named_or_follow_their_node(graph_of, bound):
    graph = graph_of(f"node A {{ k: String @key }} edge E: A -> A {bound} {{ n: I32? }}")
    graph.mutate('insert A { k: "a" } insert A { k: "b" } insert A { k: "c" }')
    pairs = [("a", "b"), ("b", "a"), ("a", "a"), ("b", "c"), ("c", "b"), ("c", "c")]
    for number, (source, target) in enumerate(pairs):
        graph.mutate(f'insert E {{ from: "{source}", to: "{target}", n: {number} }}')
    result = graph.mutate('delete E where n = 4 delete A where k = "a" delete E where n = 1')
    assert (result.affected_nodes, result.affected_edges) == (1, 4)
    assert sorted(row["n"] for row in graph.rows("edge:E").values()) == [3, 5]


def test_composite_keys_identify_by_all_their_columns(graph_of):
    graph = graph_of("node A { x: String  y: I32  z: String?  @key(x, y) }")
    graph.mutate('insert A { x: "p", y: 1, z: "one" } insert A { x: "p", y: 2, z: "two" }')
    graph.mutate('insert A { x: "p", y: 1, z: "new" }')
    assert {row_id: row["z"] for row_id, row in graph.rows("node:A").items()} == {
        '["p","1"]': "new",
        '["p","2"]': "two",
    }
