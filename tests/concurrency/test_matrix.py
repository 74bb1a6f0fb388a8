"""Two writers on one table: the first publishes while the other, prepared before that, has not yet."""

from __future__ import annotations

import pytest

from omnigraph.errors import ConstraintError, ExpectedVersionMismatchError, KeyConflictError

NODE = '{"type":"P","data":{"k":"%s","n":%d}}'

FIRST = {
    "append": lambda g: g.load(NODE % ("new", 1), mode="append"),
    "merge": lambda g: g.load(NODE % ("b", 1), NODE % ("m", 1), mode="merge"),
    "insert": lambda g: g.mutate('insert P { k: "m", n: 1 }'),
    "update": lambda g: g.mutate('update P set { n: 1 } where k = "b"'),
    "delete": lambda g: g.mutate('delete P where k = "c"'),
    "overwrite": lambda g: g.load(NODE % ("a", 1), NODE % ("b", 1), mode="overwrite"),
}
OTHER = {
    "append": lambda g, base: g.load(NODE % ("z", 2), mode="append", base=base),
    "merge": lambda g, base: g.load(NODE % ("b", 2), mode="merge", base=base),
    "insert": lambda g, base: g.mutate('insert P { k: "z", n: 2 }', base=base),
    "update": lambda g, base: g.mutate('update P set { n: 2 } where k = "a"', base=base),
    "delete": lambda g, base: g.mutate('delete P where k = "c"', base=base),
    "overwrite": lambda g, base: g.load(NODE % ("a", 2), NODE % ("b", 2), mode="overwrite", base=base),
}
LENIENT = ("append", "merge", "insert")


@pytest.mark.parametrize("other", OTHER)
@pytest.mark.parametrize("first", FIRST)
def test_lenient_writers_are_rebased_and_strict_ones_refused(people, first, other):
    base = people.snapshot()
    FIRST[first](people)
    between = people.snapshot()
    if other in LENIENT:
        OTHER[other](people, base)
        assert people.snapshot().version == between.version + 1
        written = people.rows("node:P")
        assert written["b" if other == "merge" else "z"]["n"] == 2
    else:
        with pytest.raises(ExpectedVersionMismatchError) as caught:
            OTHER[other](people, base)
        assert caught.value.facts()["manifest_conflict"]["table_key"] in ("node:P", "edge:E")
        assert people.snapshot().version == between.version
        OTHER[other](people, None)
    people.check_settled()


def test_appending_a_key_that_was_merged_meanwhile_is_a_key_conflict(people):
    base = people.snapshot()
    people.load(NODE % ("same", 1), mode="merge")
    with pytest.raises(KeyConflictError):
        people.load(NODE % ("same", 2), mode="append", base=base)
    assert people.rows("node:P")["same"]["n"] == 1


def test_of_two_merges_of_one_new_key_the_last_wins_and_one_row_remains(people):
    base = people.snapshot()
    people.load(NODE % ("same", 1), mode="merge")
    people.load(NODE % ("same", 2), mode="merge", base=base)
    assert people.rows("node:P")["same"]["n"] == 2


def test_an_edge_to_a_node_deleted_meanwhile_is_refused(people):
    base = people.snapshot()
    people.mutate('delete P where k = "c"')
    with pytest.raises(ConstraintError, match="not found in P"):
        people.mutate('insert E { from: "a", to: "c" }', base=base)
    people.check_settled()


def test_deleting_a_node_that_got_an_edge_meanwhile_takes_that_edge_along(people):
    base = people.snapshot()
    people.mutate('insert E { from: "a", to: "c" }')
    assert people.mutate('delete P where k = "c"', base=base).affected_edges == 1
    people.check_settled()


def test_a_unique_value_taken_meanwhile_is_found_on_the_second_look(people):
    base = people.snapshot()
    people.mutate('insert P { k: "x", u: "mail" }')
    with pytest.raises(ConstraintError, match="@unique"):
        people.mutate('insert P { k: "y", u: "mail" }', base=base)


def test_a_cardinality_filled_meanwhile_is_found_on_the_second_look(people):
    base = people.snapshot()
    people.mutate('insert One { from: "a", to: "b" }')
    with pytest.raises(ConstraintError, match="@card"):
        people.mutate('insert One { from: "a", to: "c" }', base=base)


def test_writers_of_different_tables_do_not_hinder_each_other(people):
    base = people.snapshot()
    people.mutate('insert L { text: "x" }')
    people.mutate('update P set { n: 5 } where k = "a"', base=base)
    people.mutate('delete L where text = "x"', base=people.snapshot())
    people.check_settled()


def test_a_stale_strict_write_succeeds_after_reading_again(people):
    base = people.snapshot()
    people.mutate('insert P { k: "m" }')
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        people.mutate('update P set { n: 2 } where k = "a"', base=base)
    assert "refresh and retry" in str(caught.value)
    assert people.mutate('update P set { n: 2 } where k = "a"', base=people.snapshot()).affected_nodes == 1
