"""The verbs of a graph, on a store and behind a server: the same calls, the same results, the same errors."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.server.serving import ADD, LINES, PEOPLE, SET_AGE, Process, make_graph

import omnigraph
from omnigraph.change_verbs import ChangeVerbs
from omnigraph.client import RemoteGraph
from omnigraph.client import verbs as client_verbs
from omnigraph.client.changes import RemoteChanges
from omnigraph.client.verbs import RemoteBranches, RemoteHistory, RemoteMaintenance, RemoteSchema, RemoteTags
from omnigraph.errors import ExecutionError, GraphError, GraphNotFoundError, InputError, MergeConflictError
from omnigraph.graph import Graph
from omnigraph.verbs import BranchVerbs, HistoryVerbs, MaintenanceVerbs, SchemaVerbs, TagVerbs
from omnigraph.wire import branch_output, commit_output, snapshot_output, tag_output

WIDER = "    age: I32?\n    shoe: I32?\n"


class Pair:
    """Two equal graphs: one opened, one served."""

    def __init__(self, direct: Graph, served: Any) -> None:
        self.direct, self.served = direct, served

    def same(self, call: Callable[[Any], Any]) -> Any:
        """What both answer, after making sure that it is the same."""
        one, other = shown(call(self.direct)), shown(call(self.served))
        assert other == one
        return one

    def fails(self, call: Callable[[Any], Any]) -> GraphError:
        """What both raise, after making sure that class, code, sentence and facts are the same."""
        found = []
        for graph in (self.direct, self.served):
            with pytest.raises(GraphError) as caught:
                call(graph)
            found.append(caught.value)
        one, other = found
        assert type(other) is type(one)
        assert (other.code, other.message, known(other.facts())) == (one.code, one.message, known(one.facts()))
        return one


GENERATED = {"graph_commit_id", "parent_commit_id", "merged_parent_commit_id", "created_at", "properties", "commit_id"}
GENERATED |= {
    "commit",
    "source_commit",
    "target_commit",
    "base_commits",
    "seconds",
    "phases",
    "bytes_written",
    "engine",
}
GENERATED |= {"reason", "fingerprint", "operation_id", "table_path"}


def known(value: Any) -> Any:
    """A value without what is new with every graph: ids, times."""
    if isinstance(value, dict):
        return {name: known(item) for name, item in value.items() if name not in GENERATED}
    if isinstance(value, list | tuple):
        return [known(item) for item in value]
    return value


def shown(value: Any) -> Any:
    """A result as plain values."""
    if hasattr(value, "to_arrow"):
        return (value.query_name, value.to_arrow(), value.to_pylist(), value.columns, repr(value))
    if hasattr(value, "to_json"):
        return known(value.to_json())
    if hasattr(value, "__dataclass_fields__"):
        return known({name: getattr(value, name) for name in value.__dataclass_fields__})
    return value


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("seed") / "g.omni"
    make_graph(root)
    return root


@pytest.fixture(scope="module")
def pair(seed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    shutil.copytree(seed, folder / "direct.omni")
    shutil.copytree(seed, folder / "served.omni")
    server = Process("--store", folder / "served.omni", "--unauthenticated")
    try:
        direct = omnigraph.connect(folder / "direct.omni")
        with direct, omnigraph.connect(server.url) as served:
            assert isinstance(served, RemoteGraph)
            yield Pair(direct, served)
    finally:
        server.stop()


@pytest.mark.long
def test_rows_are_the_same_arrow_table(pair: Pair) -> None:
    _, table, rows, columns, _ = pair.same(lambda graph: graph.query(PEOPLE))
    assert isinstance(table, pa.Table)
    assert columns == ["p.name", "p.age"]
    assert {"p.name": "ada", "p.age": 36} in rows
    every = "query all() { match { $p: Person } return { $p.name, $p.height, $p.born, $p.seen, $p.tags } }"
    pair.same(lambda graph: graph.query(every))
    pair.same(lambda graph: graph.query('query none() { match { $p: Person { name: "x" } } return { $p.age } }'))
    pair.same(lambda graph: list(graph.query(PEOPLE)))
    pair.same(lambda graph: [batch.num_rows for batch in graph.query(PEOPLE).to_batches(2)])


def test_bytes_are_the_same(pair: Pair) -> None:
    text = "query put($id: String, $photo: Blob) { update Person set { photo: $photo } where id = $id }"
    for photo in (b"\0\xff", bytearray(b"abc"), memoryview(b""), b"x" * 70_000):
        assert pair.same(lambda graph, photo=photo: graph.mutate(text, {"id": "bob", "photo": photo}).affected_nodes)
        assert pair.same(lambda graph: graph.read_blob("Person", "bob", "photo")) == bytes(photo)
        assert pair.same(lambda graph: graph.stat_blob("Person", "bob", "photo").etag)
    assert "expected string, got bytes" in pair.fails(lambda graph: graph.mutate(text, {"id": b"bob"})).message


@pytest.mark.long
def test_mutations_loads_and_history_are_the_same(pair: Pair) -> None:
    pair.same(lambda graph: graph.mutate(ADD, {"name": "dora", "age": 7}))
    pair.same(lambda graph: graph.mutate(SET_AGE, {"name": "nobody", "age": 7}))
    pair.same(lambda graph: graph.load([{"type": "City", "data": {"name": "Rome"}}], "append"))
    pair.same(lambda graph: graph.load({"City": pa.table({"name": ["Oslo", "Bergen"]})}, "merge"))
    assert [
        commit["manifest_version"]
        for commit in pair.same(lambda graph: [known(commit_output(commit)) for commit in graph.history.list(limit=3)])
    ]
    pair.same(lambda graph: known(snapshot_output(graph.snapshot())))
    pair.same(lambda graph: graph.query(PEOPLE, at=graph.history.list()[-1].graph_commit_id))
    pair.same(lambda graph: graph.query(PEOPLE, at=graph.history.list()[-1]))
    pair.same(lambda graph: graph.query(PEOPLE, at=graph.snapshot().version))
    for graph in (pair.direct, pair.served):
        head = graph.snapshot().head
        result = graph.query(PEOPLE)
        assert result.commit_id == head
        assert graph.mutate(SET_AGE, {"name": "dora", "age": 8}, if_commit=head).affected_nodes == 1
        assert graph.history.show(graph.snapshot().head).parent_commit_id == head


def test_updates_by_load_are_the_same(pair: Pair) -> None:
    pair.same(lambda graph: graph.load([{"type": "Person", "data": {"name": "ada", "height": 1.5}}], "update"))
    pair.same(lambda graph: graph.load({"Person": pa.table({"name": ["ada"], "age": [37]})}, "update"))
    every = 'query ada() { match { $p: Person { name: "ada" } } return { $p.age, $p.height, $p.born, $p.tags } }'
    [row] = pair.same(lambda graph: list(graph.query(every)))
    assert (row["p.age"], row["p.height"]) == (37, 1.5)
    assert row["p.born"] is not None
    pair.fails(lambda graph: graph.load([{"type": "Person", "data": {"name": "zed", "age": 1}}], "update"))
    pair.same(lambda graph: graph.mutate(SET_AGE, {"name": "ada", "age": 36}))


def test_files_of_lines_are_streamed(pair: Pair, tmp_path: Path) -> None:
    for number in range(2):
        lines = [json.dumps({"type": "City", "data": {"name": f"f{number}-{i}"}}) for i in range(1_000)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    pair.same(lambda graph: graph.load(tmp_path, "append", engine="local"))
    pair.same(lambda graph: graph.load(str(tmp_path / "*.jsonl"), "merge", engine="local"))
    pair.same(lambda graph: graph.load([tmp_path / "0.jsonl", tmp_path / "1.jsonl"], "merge", engine="local"))
    heard: list[Any] = []
    pair.same(lambda graph: graph.load(tmp_path / "0.jsonl", "merge", progress=heard.append))
    assert heard[-1].phase == "write"
    assert heard[-1].rows >= 999
    pair.same(lambda graph: graph.load((tmp_path / "1.jsonl").open("rb"), "merge"))
    exported = pair.served.export(tmp_path / "out.jsonl", types=["City"])
    assert exported == pair.direct.export(tmp_path / "direct.jsonl", types=["City"])
    assert (tmp_path / "out.jsonl").read_text() == (tmp_path / "direct.jsonl").read_text()
    pair.same(lambda graph: sorted(line for line in graph.export() if '"type"' in line))


def test_branches_and_merges_are_the_same(pair: Pair) -> None:
    pair.same(lambda graph: known(snapshot_output(graph.branches.create("work/a"))))
    pair.same(lambda graph: graph.mutate(SET_AGE, {"name": "ada", "age": 37}, branch="work/a"))
    pair.same(lambda graph: graph.branches.list())
    pair.same(lambda graph: [change.to_json() for change in graph.branches.diff("work/a")])
    pair.same(
        lambda graph: [change.to_json() for change in graph.diff("main", "work/a", values="full", kinds=["node"])]
    )
    pair.same(lambda graph: repr(graph.branches.diff("work/a")).splitlines()[1:])
    pair.same(lambda graph: (len(graph.branches.diff("work/a")), graph.branches.diff("work/a").updated))
    pair.same(lambda graph: known(branch_output(graph.branches.show("work/a"))))
    pair.same(lambda graph: known(branch_output(graph.branches.show("main", "work/a"))))
    pair.fails(lambda graph: graph.branches.show("nowhere"))
    pair.same(lambda graph: graph.branches.plan_merge("work/a"))
    pair.same(lambda graph: graph.mutate(SET_AGE, {"name": "ada", "age": 38}))
    pair.same(lambda graph: [known(conflict.to_json()) for conflict in graph.branches.conflicts("work/a")])
    for graph in (pair.direct, pair.served):
        [conflict] = graph.branches.conflicts("work/a", base=graph.branches.plan_merge("work/a").base_commits[0])
        assert list(graph.branches.conflicts("work/a", after=conflict.token)) == []
    pair.fails(lambda graph: graph.branches.merge("work/a"))
    pair.same(lambda graph: graph.branches.merge("work/a", resolve=lambda conflict: "theirs"))
    pair.same(lambda graph: graph.branches.merge("work/a"))
    pair.same(lambda graph: graph.branches.delete("work/a", force=True))
    pair.same(lambda graph: known(snapshot_output(graph.branches.create("past", at=graph.snapshot().version - 1))))
    pair.same(lambda graph: graph.query(PEOPLE, branch="past"))
    pair.fails(lambda graph: graph.branches.create("never", at=10_000))
    pair.same(lambda graph: graph.branches.delete("past"))
    pair.same(lambda graph: graph.branches.list())


def test_a_function_is_asked_about_the_same_conflicts(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every page, against the base that is named, and about a rule that only its own decisions break."""
    monkeypatch.setattr(client_verbs, "_CONFLICTS_AT_ONCE", 1)
    add = "query add($name: String, $age: I32) { insert Person { name: $name, age: $age } }"
    meets = 'query meets() { insert Knows { from: "moe", to: "max" } }'
    for name in ("mia", "moe", "max"):
        pair.same(lambda graph, name=name: graph.mutate(add, {"name": name, "age": 1}))
    pair.same(lambda graph: known(snapshot_output(graph.branches.create("work/b"))))
    for branch, age in (("main", 2), ("work/b", 3)):
        for name in ("mia", "moe"):
            values = {"name": name, "age": age}
            pair.same(lambda graph, values=values, branch=branch: graph.mutate(SET_AGE, values, branch=branch))
    pair.same(lambda graph: graph.mutate(SET_AGE, {"name": "max", "age": 2}))
    pair.same(lambda graph: graph.mutate(meets).affected_edges)
    pair.same(lambda graph: graph.mutate('query q() { delete Person where name = "max" }', branch="work/b"))
    first = {graph: graph.history.list()[-1].graph_commit_id for graph in (pair.direct, pair.served)}

    def take(conflict: Any) -> str:
        return "drop_edge" if str(conflict.kind) == "orphan_edge" else "theirs"

    listed = pair.same(lambda graph: [known(conflict.to_json()) for conflict in graph.branches.conflicts("work/b")])
    assert [(each["kind"], each["entity_id"]) for each in listed] == [
        ("delete_vs_update", "max"),
        ("divergent_update", "mia"),
        ("divergent_update", "moe"),
    ]
    told = pair.same(lambda graph: graph.branches.plan_merge("work/b", base=first[graph], resolve=lambda _: "ours"))
    assert told["resolved"]["ours"] > 1
    merged = pair.same(lambda graph: graph.branches.merge("work/b", resolve=take))
    assert merged["resolved"] == {"drop_edge": 1, "theirs": 3}
    pair.same(lambda graph: graph.query(PEOPLE))
    pair.same(lambda graph: graph.branches.delete("work/b"))
    for name in ("mia", "moe"):
        pair.same(lambda graph, name=name: graph.mutate(f'query q() {{ delete Person where name = "{name}" }}'))


def test_tags_and_undone_commits_are_the_same(pair: Pair) -> None:
    pair.same(lambda graph: graph.mutate(SET_AGE, {"name": "ada", "age": 50}))
    pair.same(lambda graph: known(tag_output(graph.tags.create("v1", message="shown"))))
    pair.same(lambda graph: known(tag_output(graph.tags.create("v0", graph.snapshot().version - 1))))
    pair.same(lambda graph: [known(tag_output(tag)) for tag in graph.tags.list()])
    pair.same(lambda graph: graph.query(PEOPLE, at="v0"))
    pair.fails(lambda graph: graph.tags.create("v1"))
    pair.same(lambda graph: graph.mutate(SET_AGE, {"name": "ada", "age": 51}))
    for graph in (pair.direct, pair.served):
        with pytest.raises(MergeConflictError) as refused:
            graph.revert("v1")
        assert [each["entity_id"] for each in refused.value.conflicts] == ["ada"]
    # The state before the commit is what is merged, and its name is a commit's.
    pair.same(
        lambda graph: known({**graph.revert("v1", resolve=lambda conflict: "theirs").to_json(), "source": "before"})
    )
    pair.same(lambda graph: graph.query(PEOPLE))
    pair.fails(lambda graph: graph.revert("nothing"))
    pair.same(lambda graph: [graph.tags.delete(name) for name in ("v0", "v1")])
    pair.fails(lambda graph: graph.tags.delete("v1"))


def test_schemas_are_the_same(pair: Pair) -> None:
    pair.same(lambda graph: repr(graph.schema))
    wider = pair.direct.schema.source.replace("    age: I32?\n", WIDER)
    pair.same(lambda graph: graph.schema.source)
    pair.same(lambda graph: graph.schema.plan(wider))
    pair.same(lambda graph: graph.schema.apply(wider))
    pair.same(lambda graph: graph.schema.source)
    pair.same(lambda graph: graph.schema.apply(wider))
    pair.same(lambda graph: str(graph.explain(PEOPLE)))


FAILURES: dict[str, Callable[[Any], Any]] = {
    "text that is no query": lambda graph: graph.query("query q() {"),
    "unknown type": lambda graph: graph.query("query q() { match { $p: Nobody } return { $p.name } }"),
    "missing parameter": lambda graph: graph.mutate(ADD, {}),
    "parameter of another kind": lambda graph: graph.mutate(ADD, {"name": 7}),
    "unknown parameter": lambda graph: graph.mutate(ADD, {"name": "x", "shoe": 7}),
    "a read to mutate": lambda graph: graph.mutate(PEOPLE),
    "a mutation to query": lambda graph: graph.query(ADD, {"name": "x"}),
    "no such query": lambda graph: graph.query(PEOPLE, name="other"),
    "unknown branch": lambda graph: graph.snapshot("nowhere"),
    "unknown commit": lambda graph: graph.history.show("nothing"),
    "unknown moment": lambda graph: graph.query(PEOPLE, at="nothing"),
    "branch that exists": lambda graph: graph.branches.create("main"),
    "branch to create from": lambda graph: graph.branches.create("x", "nowhere"),
    "name that is none": lambda graph: graph.branches.create("a b\n"),
    "deleting main": lambda graph: graph.branches.delete("main"),
    "deleting what is not there": lambda graph: graph.branches.delete("nowhere"),
    "merging what is not there": lambda graph: graph.branches.merge("nowhere"),
    "wrong value": lambda graph: graph.load([{"type": "Person", "data": {"name": 1}}], "append"),
    "unknown type of a record": lambda graph: graph.load([{"type": "Nobody", "data": {}}], "append"),
    "id that exists": lambda graph: graph.load([LINES[0]], "append"),
    "edge to nowhere": lambda graph: graph.load([{"edge": "Knows", "from": "ada", "to": "zzz"}], "append"),
    "file that is not there": lambda graph: graph.load("nowhere.jsonl", "append"),
    "table file that is not there": lambda graph: graph.load({"City": "nowhere.csv"}, "append"),
    "mode that is none": lambda graph: graph.load([], "upsert"),
    "no such column": lambda graph: graph.load({"City": pa.table({"shoe": [1]})}, "append"),
    "head that moved": lambda graph: graph.mutate(ADD, {"name": "y"}, if_commit="01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    "schema that is none": lambda graph: graph.schema.apply("node {"),
    "schema that contradicts itself": lambda graph: graph.schema.plan("edge E: A -> B"),
    "export of no type": lambda graph: list(graph.export(types=["Nobody"])),
    "junk": lambda graph: graph.query(7),
    "junk parameters": lambda graph: graph.query(PEOPLE, at=True),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_the_same(pair: Pair, case: str) -> None:
    call = FAILURES[case]
    if case == "head that moved":
        with pytest.raises(omnigraph.PreconditionFailedError) as caught:
            call(pair.served)
        assert caught.value.expected == "01ARZ3NDEKTSV4RRFFQ69G5FAV"
        assert caught.value.actual == pair.served.snapshot().head
        return
    pair.fails(call)


def test_messages_and_the_feed_are_the_same(pair: Pair, tmp_path: Path) -> None:
    heads = {graph: graph.history.list(limit=1)[0].graph_commit_id for graph in (pair.direct, pair.served)}
    pair.same(lambda graph: graph.mutate(ADD, {"name": "fay"}, message="one more"))
    pair.same(lambda graph: graph.load([{"type": "Person", "data": {"name": "gil"}}], "append", message="and one"))
    pair.same(lambda graph: [each.message for each in graph.history.list(limit=2)])
    pair.fails(lambda graph: graph.mutate(ADD, {"name": "x"}, message=" "))

    def told(page: Any) -> Any:
        return [
            (block.cause.message, [(each.id, str(each.op), each.after.properties) for each in block.changes])
            for block in page.blocks
        ]

    first = pair.same(lambda graph: told(graph.changes.poll(start=f"after:{heads[graph]}", types=["Person"])))
    assert [message for message, _ in first] == ["one more", "and one"]
    pair.same(
        lambda graph: [told(each) for each in graph.changes.follow(start=f"after:{heads[graph]}", idle_seconds=0.05)]
    )
    pair.same(lambda graph: told_of(graph.changes.of(graph.history.list(limit=1)[0].graph_commit_id)))
    pair.same(lambda graph: graph.changes.baseline(tmp_path / "lines", types=["Person"]).entities)
    pair.fails(lambda graph: graph.changes.poll("no cursor"))


def told_of(page: Any) -> Any:
    return (page.cause.message, [each.id for each in page.changes], page.next_page_token)


def test_what_a_server_does_not_do_names_the_direct_way(pair: Pair) -> None:
    refused: list[Callable[[Any], Any]] = [
        lambda graph: graph.maintenance.optimize(),
        lambda graph: graph.maintenance.cleanup(keep=3),
        lambda graph: graph.maintenance.repair(),
        lambda graph: graph.maintenance.verify(),
        lambda graph: graph.maintenance.unfinished(),
        lambda graph: graph.schema.unlock(),
        lambda graph: graph.spark(),
        lambda graph: graph.load([], "append", engine="spark"),
        lambda graph: graph.export("folder/", format="parquet"),
    ]
    for call in refused:
        with pytest.raises(ExecutionError, match="behind a server: connect to its path"):
            call(pair.served)
    with pytest.raises(InputError, match="the one its token belongs to"):
        pair.served.mutate(ADD, {"name": "x"}, actor="ana")


def test_a_read_only_handle_refuses_writes_before_they_are_sent(pair: Pair) -> None:
    url = pair.served.uri
    with omnigraph.connect(url, read_only=True) as graph:
        assert len(graph.query(PEOPLE)) > 0
        with pytest.raises(InputError, match="read-only"):
            graph.mutate(ADD, {"name": "x"})
    with pytest.raises(ExecutionError, match="was closed"):
        graph.query(PEOPLE)


def test_addresses_that_are_none_are_refused() -> None:
    for address in ("http://", "http://h:port", "https://user:secret@h", "http://h?x=1"):
        with pytest.raises(InputError, match="server"):
            omnigraph.connect(address)
    with pytest.raises(InputError, match="belong to a server"):
        omnigraph.connect("some/folder", token="x")
    with pytest.raises(GraphNotFoundError, match="a server begins with http://"):
        omnigraph.connect("localhost:8080")
    with pytest.raises(InputError, match="leave them out"):
        omnigraph.connect("http://h", durability="full")


GROUPS = (
    (Graph, RemoteGraph),
    (BranchVerbs, RemoteBranches),
    (HistoryVerbs, RemoteHistory),
    (SchemaVerbs, RemoteSchema),
    (TagVerbs, RemoteTags),
    (ChangeVerbs, RemoteChanges),
    (MaintenanceVerbs, RemoteMaintenance),
)


@pytest.mark.parametrize(("direct", "served"), GROUPS, ids=lambda each: each.__name__)
def test_every_verb_is_there_with_its_arguments(direct: type, served: type) -> None:
    for name, verb in inspect.getmembers(direct, callable):
        if name.startswith("_"):
            continue
        there = getattr(served, name, None)
        assert there is not None, f"{served.__name__} has no {name}"
        wanted = inspect.signature(verb).parameters
        offered = inspect.signature(there).parameters
        assert list(wanted) == [each for each in offered if each in wanted], name
        assert all(offered[each].default == wanted[each].default for each in wanted), name


def test_pictures_are_the_same(pair: Pair) -> None:
    ends = "query q() { match { $p: Person } return { $p.name } order { $p.name } limit 2 }"
    for call in (
        lambda graph: graph.draw({"Person": ["ada"]}, hops=2),
        lambda graph: graph.draw(ends, at=graph.history.list()[0].graph_commit_id),
        lambda graph: graph.draw(nodes_max=3),
    ):
        one, other = call(pair.direct), call(pair.served)
        assert one.nodes
        assert other.part == one.part
        assert _picture(other) == _picture(one)
    assert pair.served.schema._repr_svg_() == pair.direct.schema._repr_svg_()
    pair.fails(lambda graph: graph.draw({"Cat": ["x"]}))
    assert [row.split()[1:3] for row in repr(pair.served.snapshot()).splitlines()[1:]] == [
        row.split()[1:3] for row in repr(pair.direct.snapshot()).splitlines()[1:]
    ]
    assert "node" in pair.served._repr_html_()
    assert len(repr(pair.served.history.list()).splitlines()) == len(repr(pair.direct.history.list()).splitlines())


def _picture(drawing: Any) -> str:
    """A picture without its title, in which the graph and its commit are named."""
    return str(drawing.to_svg()).replace(drawing.title, "")
