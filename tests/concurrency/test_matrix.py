"""Two writers of one branch: what each sort of write meets in each other.

Rows of the table are the writer that publishes first, columns the one that was prepared before that and comes second:

- `ok` it is rebased and lands;
- `409` it is refused with the table, the version it expected and the one it met; once it has read again it lands;
- `new` it is refused because the schema is another one now, and lands under the new one;
- `lock` there is no such order: whoever changes the schema keeps the others out, so the first is refused while the
  second is at it, and lands afterwards.
"""

from __future__ import annotations

import threading

import pytest
from tests.concurrency.conftest import SCHEMA

from omnigraph.engine.operations.migrate import apply_schema
from omnigraph.engine.operations.optimize import optimize
from omnigraph.errors import ConflictError, ConstraintError, ExpectedVersionMismatchError, KeyConflictError
from omnigraph.failpoints import SCHEMA_HOLDING_LOCK
from omnigraph.graph import connect
from omnigraph.testing.failpoints import configured

NODE = '{"type":"P","data":{"k":"%s","n":%d}}'

MATRIX = """
first       append  insert  merge  update  patch  delete  overwrite  optimize  schema
append      ok      ok      ok     409     409    409     409        ok        lock
insert      ok      ok      ok     409     409    409     409        ok        lock
merge       ok      ok      ok     409     409    409     409        ok        lock
update      ok      ok      ok     409     409    409     409        ok        lock
patch       ok      ok      ok     409     409    409     409        ok        lock
delete      ok      ok      ok     409     409    409     409        ok        lock
overwrite   ok      ok      ok     409     409    409     409        ok        lock
optimize    ok      ok      ok     409     409    409     409        ok        lock
schema      new     new     new    new     new    new     new        ok        lock
"""

FIRST = {
    "append": lambda g: g.load(NODE % ("new", 1), mode="append"),
    "merge": lambda g: g.load(NODE % ("b", 1), NODE % ("m", 1), mode="merge"),
    "insert": lambda g: g.mutate('insert P { k: "m", n: 1 }'),
    "update": lambda g: g.mutate('update P set { n: 1 } where k = "b"'),
    "patch": lambda g: g.load(NODE % ("b", 1), mode="update"),
    "delete": lambda g: g.mutate('delete P where k = "c"'),
    "overwrite": lambda g: g.load(NODE % ("a", 1), NODE % ("b", 1), mode="overwrite"),
    "optimize": lambda g: optimize(g.context),
    "schema": lambda g: apply_schema(g.context, SCHEMA.replace("n: I64?", "n: I64?  note: String?")),
}
OTHER = {
    "append": lambda g, base: g.load(NODE % ("z", 2), mode="append", base=base),
    "merge": lambda g, base: g.load(NODE % ("b", 2), mode="merge", base=base),
    "insert": lambda g, base: g.mutate('insert P { k: "z", n: 2 }', base=base),
    "update": lambda g, base: g.mutate('update P set { n: 2 } where k = "a"', base=base),
    "patch": lambda g, base: g.load(NODE % ("a", 2), mode="update", base=base),
    "delete": lambda g, base: g.mutate('delete P where k = "a"', base=base),
    "overwrite": lambda g, base: g.load(NODE % ("a", 2), NODE % ("b", 2), mode="overwrite", base=base),
    "optimize": lambda g, base: optimize(g.context),
}
LENIENT = ("append", "merge", "insert")


def _cells() -> list[tuple[str, str, str]]:
    head, *rows = (line.split() for line in MATRIX.strip().splitlines())
    return [(row[0], other, cell) for row in rows for other, cell in zip(head[1:], row[1:], strict=True)]


@pytest.mark.parametrize(("first", "other", "cell"), _cells())
def test_the_matrix(people, first, other, cell):
    if cell == "lock":
        _second_changes_the_schema(people, first)
        return
    base = people.snapshot()
    FIRST[first](people)
    between = people.snapshot()
    if cell == "ok":
        OTHER[other](people, base)
        if other in LENIENT:
            assert people.snapshot().version == between.version + 1
            assert people.rows("node:P")["b" if other == "merge" else "z"]["n"] == 2
    else:
        with pytest.raises(ExpectedVersionMismatchError if cell == "409" else ConflictError) as caught:
            OTHER[other](people, base)
        if cell == "409":
            assert caught.value.facts()["manifest_conflict"]["table_key"] in ("node:P", "edge:E")
        else:
            assert "schema" in str(caught.value)
        assert people.snapshot().version == between.version
        people.context = connect(people.context.root).context
        OTHER[other](people, None)
        assert people.snapshot().version == between.version + 1
    people.check_settled()


def _second_changes_the_schema(people, first):
    """A schema change holds its lock while the first tries to write: that is refused, and possible afterwards."""
    with configured(f"{SCHEMA_HOLDING_LOCK}=1*pause") as plan:
        changing = threading.Thread(target=FIRST["schema"], args=(people,))
        changing.start()
        plan.wait_until_reached(SCHEMA_HOLDING_LOCK)
        before = people.snapshot().version
        with pytest.raises(ConflictError):
            FIRST[first](people)
        assert people.snapshot().version == before
        plan.release(SCHEMA_HOLDING_LOCK)
        changing.join()
    assert people.snapshot().version == before + 1
    people.context = connect(people.context.root).context
    if first != "schema":
        FIRST[first](people)
    people.check_settled()


def test_the_second_of_two_optimizations_finds_no_work(people):
    FIRST["append"](people)
    assert optimize(people.context).commit_id is not None
    version = people.snapshot().version
    assert optimize(people.context).commit_id is None
    assert people.snapshot().version == version


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
    assert people.mutate('update P set { n: 5 } where k = "a"', base=base).affected_nodes == 1
    assert people.mutate('delete L where text = "x"', base=people.snapshot()).affected_nodes == 1
    people.check_settled()


def test_a_stale_strict_write_succeeds_after_reading_again(people):
    base = people.snapshot()
    people.mutate('insert P { k: "m" }')
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        people.mutate('update P set { n: 2 } where k = "a"', base=base)
    assert "refresh and retry" in str(caught.value)
    assert people.mutate('update P set { n: 2 } where k = "a"', base=people.snapshot()).affected_nodes == 1
