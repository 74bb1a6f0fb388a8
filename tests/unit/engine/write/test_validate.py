from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.rules import arrow
from omnigraph.engine.rules.validate import NO_IDS, TableChange, findings, validate
from omnigraph.engine.values.entities import row_schema
from omnigraph.errors import ConstraintError, KeyConflictError

SCHEMA = """
node P { k: String @key  mail: String? @unique  a: I32?  b: I32?  @unique(a, b) }
node Q { name: String }
edge E: P -> Q @card(1..2) { note: String?  @unique(src, dst) }
edge F: P -> P
"""
CATALOG = compile_schema(SCHEMA)


class Tables:
    """Committed state held as plain tables: what the validator needs and nothing else."""

    def __init__(self, **rows):
        self.tables = {key.replace("_", ":"): value for key, value in rows.items()}

    def _table(self, key):
        entity = CATALOG.tables[key]
        return rows_of(entity, self.tables.get(key, []))

    def contains(self, key, ids):
        return pc.is_in(ids, value_set=self._table(key).column("id").combine_chunks())

    def rows_where_in(self, key, column, values, columns):
        table = self._table(key)
        return table.filter(pc.is_in(table.column(column), value_set=values)).select(columns)

    def all_rows(self, key, columns):
        return self._table(key).select(columns)


def rows_of(entity, rows):
    schema = row_schema(entity)
    return pa.Table.from_pylist(
        [{**dict.fromkeys(schema.names), **row} for row in rows],
        schema=pa.schema([f.with_nullable(True) for f in schema]),
    )


def change(key, *rows, **facts):
    entity = CATALOG.tables[key]
    for name in ("removed", "removed_sources"):
        if name in facts:
            facts[name] = pa.array(facts[name], pa.string())
    return TableChange(entity, rows_of(entity, rows), **facts)


def check(committed, *changes):
    validate(CATALOG, {each.entity.table_key: each for each in changes}, committed)


def p(k, **values):
    return {"id": k, "k": k, **values}


def e(id_, src, dst, **values):
    return {"id": id_, "src": src, "dst": dst, **values}


def violates(committed, *changes):
    with pytest.raises(ConstraintError) as caught:
        check(committed, *changes)
    return caught.value


def test_nothing_is_wrong_with_a_write_that_breaks_no_rule():
    committed = Tables(node_P=[p("x", mail="m")], node_Q=[{"id": "q", "name": "n"}])
    check(committed, change("node:P", p("y", mail="n")), change("edge:E", e("1", "y", "q")))


def test_a_unique_value_is_refused_while_another_entity_keeps_it():
    committed = Tables(node_P=[p("x", mail="m")])
    error = violates(committed, change("node:P", p("y", mail="m")))
    assert "@unique violation" in str(error)
    assert "'m'" in str(error)


def test_an_entity_may_keep_its_own_unique_value():
    check(Tables(node_P=[p("x", mail="m")]), change("node:P", p("x", mail="m", a=1)))


def test_a_unique_value_freed_by_the_same_write_may_be_taken():
    check(Tables(node_P=[p("x", mail="m")]), change("node:P", p("x", mail=None), p("y", mail="m")))


def test_a_unique_value_of_a_removed_entity_may_be_taken():
    check(Tables(node_P=[p("x", mail="m")]), change("node:P", p("y", mail="m"), removed=["x"]))


def test_two_new_entities_with_one_unique_value_are_refused():
    assert "@unique" in str(violates(Tables(), change("node:P", p("x", mail="m"), p("y", mail="m"))))


def test_a_tuple_with_a_null_is_exempt_and_tuples_compare_as_tuples():
    check(Tables(node_P=[p("x", a=1, b=None)]), change("node:P", p("y", a=1, b=None), p("z", a=1, b=2)))
    committed = Tables(node_P=[p("x", a=1, b=12), p("w", a=11, b=2)])
    check(committed, change("node:P", p("y", a=11, b=12)))
    assert "(a, b) = (1, 12)" in str(violates(committed, change("node:P", p("y", a=1, b=12))))


def test_edges_of_one_pair_are_refused_where_the_schema_says_so():
    committed = Tables(node_P=[p("x")], node_Q=[{"id": "q", "name": "n"}], edge_E=[e("1", "x", "q")])
    assert "another E already has (dst, src) = ('q', 'x')" in str(
        violates(committed, change("edge:E", e("2", "x", "q")))
    )
    check(committed, change("edge:E", e("1", "x", "q", note="again")))


def test_an_edge_needs_both_its_ends():
    committed = Tables(node_P=[p("x")], node_Q=[{"id": "q", "name": "n"}])
    assert "dst 'z' not found in Q" in str(violates(committed, change("edge:E", e("1", "x", "z"))))
    assert "src 'z' not found in P" in str(violates(committed, change("edge:E", e("1", "z", "q"))))


def test_ends_may_be_written_by_the_same_write_but_not_removed_by_it():
    committed = Tables(node_P=[p("x")], node_Q=[{"id": "q", "name": "n"}])
    check(committed, change("node:P", p("new")), change("edge:E", e("1", "new", "q")))
    error = violates(committed, change("node:P", removed=["x"]), change("edge:F", e("1", "x", "x")))
    assert "not found in P" in str(error)


def test_a_removed_node_must_take_its_edges_along():
    committed = Tables(node_P=[p("x"), p("y")], edge_F=[e("1", "x", "y"), e("2", "y", "x")])
    assert "orphan violation" in str(violates(committed, change("node:P", removed=["x"])))
    assert "edge F '2'" in str(violates(committed, change("node:P", removed=["x"]), change("edge:F", removed=["1"])))
    check(committed, change("node:P", removed=["x"]), change("edge:F", removed=["1", "2"], removed_sources=["x", "y"]))


def test_replacing_a_node_table_must_not_orphan_edges_that_stay():
    committed = Tables(node_P=[p("x"), p("y")], edge_F=[e("1", "x", "y")])
    error = violates(committed, change("node:P", p("x"), replaces_table=True))
    assert "orphan violation: edge F '1' would keep dst 'y'" in str(error)
    check(committed, change("node:P", p("x"), replaces_table=True), change("edge:F", replaces_table=True))
    check(committed, change("node:P", p("x"), p("y"), p("z"), replaces_table=True))


def test_replaced_node_tables_count_only_with_their_new_content():
    committed = Tables(node_P=[p("x")], node_Q=[{"id": "q", "name": "n"}])
    error = violates(committed, change("node:P", p("y"), replaces_table=True), change("edge:F", e("1", "x", "y")))
    assert "src 'x' not found in P" in str(error)


QS = [{"id": name, "name": name} for name in ("q1", "q2", "q3")]


def test_too_many_edges_of_a_source_are_refused_counting_committed_and_new():
    committed = Tables(node_P=[p("x")], node_Q=QS, edge_E=[e("1", "x", "q1")])
    check(committed, change("edge:E", e("2", "x", "q2")))
    error = violates(committed, change("edge:E", e("2", "x", "q2"), e("3", "x", "q3")))
    assert "@card violation: P 'x' has 3 E edges, outside @card(1..2)" in str(error)


def test_a_replaced_edge_counts_once():
    committed = Tables(node_P=[p("x")], node_Q=QS, edge_E=[e("1", "x", "q1"), e("2", "x", "q2")])
    check(committed, change("edge:E", e("2", "x", "q3"), removed_sources=["x"]))


def test_a_source_that_loses_its_last_needed_edge_is_refused_unless_it_goes_too():
    committed = Tables(node_P=[p("x")], node_Q=QS, edge_E=[e("1", "x", "q1")])
    lost = change("edge:E", removed=["1"], removed_sources=["x"])
    assert "has 0 E edges" in str(violates(committed, lost))
    check(committed, lost, change("node:P", removed=["x"]))


def test_a_source_whose_edge_moves_away_is_recounted():
    committed = Tables(node_P=[p("x"), p("y")], node_Q=QS, edge_E=[e("1", "x", "q1")])
    assert "P 'x' has 0" in str(violates(committed, change("edge:E", e("1", "y", "q1"), removed_sources=["x"])))


def test_replacing_an_edge_table_recounts_only_the_sources_it_names():
    committed = Tables(node_P=[p("x"), p("y")], node_Q=QS, edge_E=[e("1", "x", "q1")])
    check(committed, change("edge:E", e("9", "y", "q1"), replaces_table=True))
    error = violates(committed, change("edge:E", *[e(str(n), "y", f"q{n}") for n in (1, 2, 3)], replaces_table=True))
    assert "@card" in str(error)


def test_sources_the_write_does_not_touch_are_never_checked():
    committed = Tables(node_P=[p("x"), p("y")], node_Q=QS, edge_E=[])
    check(committed, change("node:P", p("z")), change("edge:E", e("1", "x", "q1")))


def test_an_id_that_must_be_new_is_a_key_conflict():
    with pytest.raises(KeyConflictError) as caught:
        check(Tables(node_P=[p("x")]), change("node:P", p("x"), taken=np.array([True])))
    assert caught.value.facts() == {"key_conflict": {"entity_kind": "node", "type_name": "P", "entity_id": "x"}}


def test_kinds_of_rules_are_reported_in_their_order_and_one_kind_whole():
    broken = [p("x", mail="m"), p("y", mail="m"), p("z", mail="m")]
    error = violates(Tables(), change("node:P", *broken), change("edge:F", e("1", "nope", "x")))
    assert len(error.violations) == 2
    assert all("@unique" in violation for violation in error.violations)


def test_no_ids_is_empty():
    assert len(NO_IDS) == 0


def test_nodes_of_many_edges_are_asked_for_once_and_found_missing_as_one_by_one(monkeypatch):
    asked = []

    class Counting(Tables):
        def contains(self, key, ids):
            asked.append(ids.to_pylist())
            return super().contains(key, ids)

    committed = Counting(node_P=[{"id": f"p{n}", "k": f"p{n}"} for n in range(50)])
    ends = [(f"p{n % 60}", f"p{n * 7 % 61}") for n in range(200)]
    edges = change("edge:F", *({"id": f"e{n}", "src": src, "dst": dst} for n, (src, dst) in enumerate(ends)))
    changes = {"edge:F": edges, "node:P": change("node:P", {"id": "p55", "k": "p55"}, removed=["p3"])}
    together = findings(CATALOG, changes, committed)
    assert len(asked) == 1
    assert len(asked[0]) == len(set(asked[0])) == 61
    monkeypatch.setattr(arrow, "ASKED_ONCE_ROWS", 1_000)
    assert findings(CATALOG, changes, committed) == together
    assert len(asked) == 3
    gone = {f"p{n}" for n in range(50, 61)} - {"p55"} | {"p3"}
    assert len(together) == sum((src in gone) + (dst in gone) for src, dst in ends)


def test_nodes_that_come_with_their_edges_are_not_asked_for_in_what_is_committed(monkeypatch):
    asked = []

    class Counting(Tables):
        def contains(self, key, ids):
            asked.append(key)
            return super().contains(key, ids)

    def found(ends):
        edges = change("edge:F", *({"id": f"e{n}", "src": src, "dst": dst} for n, (src, dst) in enumerate(ends)))
        nodes = change("node:P", *({"id": f"p{n}", "k": f"p{n}"} for n in range(50)))
        return findings(CATALOG, {"edge:F": edges, "node:P": nodes}, Counting(node_P=[{"id": "old", "k": "old"}]))

    ends = [(f"p{n % 50}", f"p{n * 7 % 50}") for n in range(200)]
    assert found(ends) == []
    assert asked == []
    for last in (("old", "p1"), ("p1", "gone")):
        later = found([*ends, last])
        with monkeypatch.context() as patched:
            patched.setattr(arrow, "ASKED_ONCE_ROWS", 1_000)
            assert found([*ends, last]) == later
        assert len(later) == ("gone" in last)


@pytest.mark.parametrize("ids", [["a"], ["b", None, "a"], [None], []])
@pytest.mark.parametrize("known", [["a", "c"], ["c", None], []])
def test_a_few_ids_are_found_among_others_as_many_are(monkeypatch, ids, known):
    asked = [pa.array(each, pa.string()) for each in (ids, known)]
    one_by_one = arrow._among(*asked)
    monkeypatch.setattr(arrow, "FEW_PAIRS", 0)
    assert arrow._among(*asked).tolist() == one_by_one.tolist() == [each in known for each in ids]
