"""Another schema is accepted: tables follow, rows stay, the past is read as it was."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.coordination.schema_lock import acquire_lock, new_lock, release_lock
from omnigraph.engine.schema.files import promote, stage_files, staged_record
from omnigraph.engine.storage import layout
from omnigraph.errors import ConflictError, InputError, ParseError, SchemaError, TypeCheckError, VersionReclaimedError
from omnigraph.ids import SCHEMA_LOCK_BRANCH
from omnigraph.testing.crash import check_recovered, content_of

SCHEMA = """
node Person { name: String @key
              age: I32?
              fax: String? }
node City { name: String @key }
edge LivesIn: Person -> City { since: I32? }
"""
LIST = "query q() { match { $p: Person } return { $p.name as name, %s } order { $p.name } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.create(tmp_path / "g.omni", schema=SCHEMA)
    for name, age in (("ann", 1), ("bob", 2)):
        run(graph, f'insert Person {{ name: "{name}", age: {age}, fax: "f-{name}" }}')
    run(graph, 'insert City { name: "oslo" } insert LivesIn { from: "ann", to: "oslo", since: 2020 }')
    return graph


def run(graph: omnigraph.Graph, text: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ {text} }}", branch=branch)


def people(graph: omnigraph.Graph, *columns: str, at: str | int | None = None) -> list[tuple[object, ...]]:
    shown = ", ".join(f"$p.{column} as {column}" for column in columns)
    return [tuple(row.values()) for row in graph.query(LIST % shown, at=at)]


def sound(graph: omnigraph.Graph) -> None:
    check_recovered(graph.uri, (content_of(graph),))
    store = graph.context.store
    assert not store.objects.has(layout.SCHEMA_LOCK)
    assert SCHEMA_LOCK_BRANCH not in store.table_branches(layout.MANIFEST)


def test_a_property_is_added_and_can_be_written(graph: omnigraph.Graph) -> None:
    done = graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?\n bio: String?\n tags: [String]?"), actor="ana")
    assert (done.applied, done.supported, len(done.steps)) == (True, True, 2)
    assert done.manifest_version == graph.snapshot().version
    assert graph.history.show(str(done.commit_id)).actor_id == "ana"
    assert people(graph, "age", "bio", "tags") == [("ann", 1, None, None), ("bob", 2, None, None)]
    run(graph, 'update Person set { bio: "hello" } where name = "ann"')
    run(graph, 'insert Person { name: "cid", bio: "new", tags: ["x"] }')
    assert people(graph, "age", "bio", "tags") == [
        ("ann", 1, "hello", None),
        ("bob", 2, None, None),
        ("cid", None, "new", ["x"]),
    ]
    graph.maintenance.optimize()
    assert people(graph, "bio") == [("ann", "hello"), ("bob", None), ("cid", "new")]
    sound(graph)


def test_a_property_is_renamed_and_keeps_its_values(graph: omnigraph.Graph) -> None:
    assert people(graph, "age") == [("ann", 1), ("bob", 2)]
    graph.schema.apply(SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")'))
    assert people(graph, "years") == [("ann", 1), ("bob", 2)]
    with pytest.raises(TypeCheckError):
        people(graph, "age")
    run(graph, 'update Person set { years: 9 } where name = "bob"')
    assert people(graph, "years") == [("ann", 1), ("bob", 9)]
    sound(graph)


def test_two_properties_may_exchange_their_places(graph: omnigraph.Graph) -> None:
    assert people(graph, "age", "fax") == [("ann", 1, "f-ann"), ("bob", 2, "f-bob")]
    text = SCHEMA.replace("age: I32?", 'zip: I32? @rename_from("age")')
    graph.schema.apply(text.replace("fax: String?", 'a: String? @rename_from("fax")'))
    assert people(graph, "a", "zip") == [("ann", "f-ann", 1), ("bob", "f-bob", 2)]
    assert graph.snapshot().open("node:Person").schema.names == ["id", "a", "name", "zip"]  # type: ignore[arg-type]
    sound(graph)


def test_a_dropped_property_comes_back_empty(graph: omnigraph.Graph) -> None:
    before = graph.snapshot()
    without = SCHEMA.replace("fax: String?", "")
    graph.schema.apply(without, confirm_drops=True)
    assert people(graph, "age") == [("ann", 1), ("bob", 2)]
    run(graph, 'insert Person { name: "cid" }')
    # The same name with another type: nothing of the old column may show.
    graph.schema.apply(SCHEMA.replace("fax: String?", "fax: I64?"), confirm_drops=True)
    assert people(graph, "fax") == [("ann", None), ("bob", None), ("cid", None)]
    graph.schema.apply(without, confirm_drops=True)
    graph.schema.apply(SCHEMA, confirm_drops=True)
    assert people(graph, "fax") == [("ann", None), ("bob", None), ("cid", None)]
    run(graph, 'update Person set { fax: "new" } where name = "ann"')
    assert people(graph, "fax") == [("ann", "new"), ("bob", None), ("cid", None)]
    assert people(graph, "fax", at=before.head) == [("ann", "f-ann"), ("bob", "f-bob")]
    sound(graph)


def test_numbers_of_columns_are_never_given_again(graph: omnigraph.Graph) -> None:
    seen: set[int] = set()
    for round_ in range(4):
        graph.schema.apply(SCHEMA.replace("age: I32?", f"age: I32?\n extra{round_}: [String]?"))
        fields = graph.snapshot().open("node:Person").field_ids  # type: ignore[arg-type]
        assert fields[f"extra{round_}"] not in seen
        seen.add(fields[f"extra{round_}"])
        assert people(graph, f"extra{round_}") == [("ann", None), ("bob", None)]
        graph.schema.apply(SCHEMA, confirm_drops=True)
        graph.maintenance.optimize()


def test_a_type_is_renamed_without_moving(graph: omnigraph.Graph) -> None:
    before = graph.snapshot()
    renamed = SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {').replace("Person ->", "Human ->")
    graph.schema.apply(renamed)
    after = graph.snapshot()
    assert after.entry("node:Human").path == before.entry("node:Person").path  # type: ignore[arg-type]
    assert "node:Person" not in after.entries
    rows = graph.query("query q() { match { $h: Human $h livesIn $c } return { $h.name as n, $c.name as c } }")
    assert rows.to_pylist() == [{"n": "ann", "c": "oslo"}]
    run(graph, 'insert Human { name: "cid" }')
    assert people(graph, "age", at=before.head) == [("ann", 1), ("bob", 2)]
    sound(graph)
    # A new type of the old name is another table.
    graph.schema.apply(renamed.replace("node City", "node Person { name: String @key }\nnode City"), confirm_drops=True)
    assert graph.snapshot().entry("node:Person").path != before.entry("node:Person").path  # type: ignore[arg-type]
    assert people(graph) == []
    run(graph, 'insert Person { name: "eve" }')
    assert people(graph) == [("eve",)]
    assert people(graph, at=before.head) == [("ann",), ("bob",)]
    sound(graph)


def test_a_type_may_get_its_old_name_back(graph: omnigraph.Graph) -> None:
    graph.schema.apply(SCHEMA.replace("City", "Town").replace("node Town {", 'node Town @rename_from("City") {'))
    graph.schema.apply(SCHEMA.replace("node City {", 'node City @rename_from("Town") {'))
    rows = graph.query("query q() { match { $c: City } return { $c.name as n } }")
    assert rows.to_pylist() == [{"n": "oslo"}]
    run(graph, 'insert City { name: "bergen" }')
    sound(graph)


def test_a_dropped_type_comes_back_empty(graph: omnigraph.Graph) -> None:
    before = graph.snapshot()
    graph.schema.apply("node Person { name: String @key\n age: I32?\n fax: String? }", confirm_drops=True)
    assert set(graph.snapshot().entries) == {"node:Person"}
    graph.schema.apply(SCHEMA, confirm_drops=True)
    assert graph.snapshot().entry("node:City").row_count == 0  # type: ignore[arg-type]
    run(graph, 'insert City { name: "rome" } insert LivesIn { from: "ann", to: "rome" }')
    cities = "query q() { match { $c: City } return { $c.name as n } }"
    assert graph.query(cities).to_pylist() == [{"n": "rome"}]
    assert graph.query(cities, at=before.head).to_pylist() == [{"n": "oslo"}]
    assert len(list(graph.export(at=before.head))) == 4
    sound(graph)


def test_a_graph_made_anew_at_an_old_place_has_its_own_past(tmp_path: Path) -> None:
    root = tmp_path / "g.omni"
    for name in ("a", "b"):
        graph = omnigraph.create(root, schema=f"node Person {{ name: String @key\n {name}: I32? }}")
        run(graph, f'insert Person {{ name: "ann", {name}: 1 }}')
        before = graph.snapshot().head
        graph.schema.apply("node Person { name: String @key }", confirm_drops=True)
        assert people(graph, name, at=before) == [("ann", 1)]
        graph.close()
        shutil.rmtree(root)


def test_a_hard_drop_takes_the_past_with_it(graph: omnigraph.Graph, tmp_path: Path) -> None:
    before = graph.snapshot()
    desired = "node Person { name: String @key\n age: I32? }"
    done = graph.schema.apply(desired, allow_data_loss=True)
    assert {step["mode"] for step in done.to_json()["steps"]} == {"hard"}
    assert people(graph, "age") == [("ann", 1), ("bob", 2)]
    with pytest.raises(VersionReclaimedError):
        people(graph, "fax", at=before.head)
    assert not (Path(graph.uri) / before.entry("node:City").path).exists()  # type: ignore[arg-type]
    left = [file for file in Path(graph.uri).rglob("*.lance") if file.is_file() and b"f-ann" in file.read_bytes()]
    assert left == []
    run(graph, 'insert Person { name: "cid" }')
    sound(graph)


def test_what_changes_no_table_changes_no_version(graph: omnigraph.Graph) -> None:
    before = graph.snapshot()
    done = graph.schema.apply(SCHEMA.replace("node City {", 'node City @description("a place") {'))
    assert done.applied
    assert {key: entry.version for key, entry in graph.snapshot().entries.items()} == {
        key: entry.version for key, entry in before.entries.items()
    }
    sound(graph)


def test_the_same_schema_applies_nothing(graph: omnigraph.Graph) -> None:
    before = graph.snapshot().version
    done = graph.schema.apply("// only a comment\n" + SCHEMA)
    assert (done.applied, done.manifest_version, done.commit_id) == (False, before, None)
    assert graph.snapshot().version == before
    sound(graph)


def test_what_is_not_supported_changes_nothing(graph: omnigraph.Graph) -> None:
    before, files = graph.snapshot().version, graph.schema.source
    for desired, error in (
        (SCHEMA.replace("age: I32?", "age: String?"), SchemaError),
        (SCHEMA.replace("age: I32?", "age: I32?\n must: I32"), SchemaError),
        ("node {", ParseError),
    ):
        with pytest.raises(error):
            graph.schema.apply(desired)
    assert (graph.snapshot().version, graph.schema.source) == (before, files)
    run(graph, 'insert Person { name: "cid" }')
    sound(graph)


def test_a_schema_and_other_branches_exclude_each_other(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    with pytest.raises(ConflictError, match="review"):
        graph.schema.apply(SCHEMA.replace("fax: String?", ""), confirm_drops=True)
    graph.branches.delete("review")
    graph.schema.apply(SCHEMA.replace("fax: String?", ""), confirm_drops=True)
    graph.branches.create("review")
    run(graph, 'insert Person { name: "cid" }', "review")
    sound(graph)


def test_nobody_else_writes_while_the_lock_is_held(graph: omnigraph.Graph) -> None:
    recovery = graph.context.recovery
    lock = new_lock(graph.context.recovery, None)
    acquire_lock(recovery, lock)
    assert graph.branches.list() == ["main"]
    for refused in (
        lambda: run(graph, 'insert Person { name: "cid" }'),
        lambda: graph.branches.create("review"),
        lambda: graph.maintenance.optimize(),
        lambda: graph.maintenance.cleanup(keep=1),
        lambda: graph.maintenance.repair(confirm=True),
        lambda: graph.schema.apply(SCHEMA.replace("fax: String?", ""), confirm_drops=True),
    ):
        with pytest.raises(ConflictError, match="in progress"):
            refused()
    assert people(graph, "age") == [("ann", 1), ("bob", 2)]
    release_lock(recovery, lock)
    run(graph, 'insert Person { name: "cid" }')
    sound(graph)


def test_a_lock_can_be_removed_by_hand(graph: omnigraph.Graph) -> None:
    recovery = graph.context.recovery
    lock = new_lock(recovery, None)
    acquire_lock(recovery, lock)
    assert graph.schema.unlock()
    assert not graph.schema.unlock()
    run(graph, 'insert Person { name: "cid" }')
    release_lock(recovery, lock)
    sound(graph)


def test_the_lock_of_a_dead_process_is_removed_by_the_next_writer(graph: omnigraph.Graph) -> None:
    recovery = graph.context.recovery
    lock = new_lock(graph.context.recovery, None)
    acquire_lock(recovery, lock)
    record = Path(graph.uri) / layout.SCHEMA_LOCK
    body = json.loads(record.read_text())
    body["owner"]["pid"], body["owner"]["process_started"] = 2**22 + 1, "0"
    record.write_text(json.dumps(body))
    run(graph, 'insert Person { name: "cid" }')
    release_lock(recovery, lock)
    omnigraph.connect(graph.uri)
    sound(graph)


def test_another_handle_follows_a_new_schema(graph: omnigraph.Graph) -> None:
    other = omnigraph.connect(graph.uri)
    reader = omnigraph.connect(graph.uri, read_only=True)
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?\n bio: String?"))
    for handle in (other, reader):
        assert people(handle, "bio") == [("ann", None), ("bob", None)]
    run(other, 'insert Person { name: "cid", bio: "x" }')
    assert people(reader, "bio")[-1] == ("cid", "x")
    assert "bio" in other.schema.source


def test_a_write_prepared_under_the_old_schema_is_refused(graph: omnigraph.Graph) -> None:
    stale = graph.context
    graph.schema.apply(SCHEMA.replace("fax: String?", ""), confirm_drops=True)
    from omnigraph.engine.operations.load import load

    with pytest.raises(ConflictError, match="schema has been changed"):
        load(stale, b'{"type": "Person", "data": {"name": "cid", "fax": "x"}}', mode="append")
    sound(graph)


def test_a_composite_key_keeps_its_order_when_a_part_is_renamed(tmp_path: Path) -> None:
    text = "node Seat { row: I32\n place: I32\n @key(row, place) }"
    graph = omnigraph.create(tmp_path / "g.omni", schema=text)
    run(graph, "insert Seat { row: 1, place: 2 }")
    ids = "query q() { match { $s: Seat } return { $s as id } }"
    (before,) = graph.query(ids).to_pylist()
    graph.schema.apply(text.replace("row: I32", 'a: I32 @rename_from("row")').replace("(row,", "(a,"))
    for handle in (graph, omnigraph.connect(graph.uri)):
        run(handle, "insert Seat { a: 1, place: 2 }")
        assert handle.query(ids).to_pylist() == [before]


def test_blobs_and_vectors_survive_a_change_of_columns(tmp_path: Path) -> None:
    text = "node Doc { name: String @key\n scan: Blob?\n spot: Vector(2)? }"
    graph = omnigraph.create(tmp_path / "g.omni", schema=text)
    (tmp_path / "d.jsonl").write_text(
        '{"type": "Doc", "data": {"name": "a", "scan": "base64:AQID", "spot": [1.0, 2.0]}}\n'
    )
    graph.load(tmp_path / "d.jsonl", mode="append")
    before = graph.snapshot()
    graph.schema.apply(text.replace("scan: Blob?", 'page: Blob? @rename_from("scan")\n more: Blob?\n at: Vector(3)?'))
    assert graph.read_blob("Doc", "a", "page") == b"\x01\x02\x03"
    assert graph.read_blob("Doc", "a", "scan", at=before.head) == b"\x01\x02\x03"
    (tmp_path / "e.jsonl").write_text(
        '{"type": "Doc", "data": {"name": "b", "more": "base64:CQ==", "at": [1.0, 2.0, 3.0]}}\n'
    )
    graph.load(tmp_path / "e.jsonl", mode="append")
    assert graph.read_blob("Doc", "b", "more") == b"\x09"
    assert graph.read_blob("Doc", "a", "page") == b"\x01\x02\x03"
    lines = [json.loads(line)["data"] for line in graph.export()]
    assert lines[0]["spot"] == [1.0, 2.0]
    assert (lines[0]["more"], lines[1]["at"]) == (None, [1.0, 2.0, 3.0])


def test_many_small_writes_across_changes_fold_right(graph: omnigraph.Graph) -> None:
    for number in range(20):
        run(graph, f'insert Person {{ name: "p{number:02}", age: {number} }}')
    graph.schema.apply(SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")\n bio: String?'))
    for number in range(20, 60):
        run(graph, f'insert Person {{ name: "p{number:02}", years: {number}, bio: "b{number}" }}')
    rows = people(graph, "years", "bio")[2:]
    assert rows == [(f"p{n:02}", n, f"b{n}" if n >= 20 else None) for n in range(60)]
    sound(graph)


def test_a_read_only_graph_keeps_its_schema(graph: omnigraph.Graph) -> None:
    reader = omnigraph.connect(graph.uri, read_only=True)
    for refused in (lambda: reader.schema.apply(SCHEMA), lambda: reader.schema.unlock()):
        with pytest.raises(InputError, match="read-only"):
            refused()


WITH_BOATS = SCHEMA.replace("edge", "node Boat { name: String @key }\nedge")


@pytest.fixture
def at_failpoint() -> Iterator[Callable[[str, Callable[[], None]], None]]:
    """Something that happens once, when a failpoint is passed, as if this process had stood still there."""

    def meet(wanted: str, happen: Callable[[], None]) -> None:
        def passing(name: str) -> None:
            if name == wanted:
                failpoints.install(None)
                happen()

        failpoints.install(passing)

    yield meet
    failpoints.install(None)


def test_a_change_that_was_taken_for_dead_leaves_alone_the_table_that_others_have_made(
    graph: omnigraph.Graph, at_failpoint: Callable[[str, Callable[[], None]], None]
) -> None:
    def overtake() -> None:
        other = omnigraph.connect(graph.uri)
        other.schema.unlock()
        other.schema.apply(WITH_BOATS)
        run(other, 'insert Boat { name: "vega" }')

    at_failpoint(failpoints.SIDECAR_WRITE, overtake)
    with pytest.raises(ConflictError, match="lost its lock"):
        graph.schema.apply(WITH_BOATS)
    found = omnigraph.connect(graph.uri).query("query q() { match { $b: Boat } return { $b.name as name } }")
    assert [row["name"] for row in found] == ["vega"]
    sound(omnigraph.connect(graph.uri))


def test_a_change_that_was_finished_by_others_leaves_alone_what_the_next_one_stages(
    graph: omnigraph.Graph, at_failpoint: Callable[[str, Callable[[], None]], None]
) -> None:
    objects = graph.context.store.objects

    def finish_and_stage_another() -> None:
        promote(objects)
        for intent in graph.maintenance.unfinished():
            objects.delete(f"{layout.RECOVERY_DIR}/{intent.operation_id}.json")
        stage_files(objects, SCHEMA, compile_schema(SCHEMA))

    at_failpoint(failpoints.SCHEMA_AFTER_MANIFEST_COMMIT, finish_and_stage_another)
    graph.schema.apply(WITH_BOATS)
    assert staged_record(objects) is not None
    assert objects.read_text(layout.SCHEMA_SOURCE) == WITH_BOATS
