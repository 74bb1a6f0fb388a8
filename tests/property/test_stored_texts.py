"""Whatever is stored is checked at the door; what an earlier release stored all the same never stops a graph."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.program import spawn

import omnigraph
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.manifest.delta import Lineage
from omnigraph.engine.recovery import audit
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.engine.write.transaction import WriteRequest
from omnigraph.errors import GraphError, InputError
from omnigraph.graph import Graph
from omnigraph.ids import CommitId, OperationId, new_ulid, now_micros

SCHEMA = """node Person { name: String @key  bio: String?  tags: [String]?  photo: Blob? }
edge Knows: Person -> Person { note: String? }"""
_NAMES = itertools.count()

Door = Callable[[Graph, Path, str], object]


def _record(**data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": f"p{next(_NAMES)}", **data}}


def _line(folder: Path, record: dict[str, object]) -> str:
    path = folder / "in.jsonl"
    path.write_text(json.dumps(record) + "\n")
    return str(path)


def _mutate(graph: Graph, body: str, **given: object) -> object:
    return graph.mutate(f"query q($t: String?, $l: [String]?) {{ {body} }}", given)


def _bytes(text: str) -> pa.Array:
    """A text as an Arrow column that claims to be UTF-8."""
    return pa.array([text.encode("utf-8", "surrogatepass")], pa.binary()).view(pa.utf8())


def _arrow(graph: Graph, _: Path, text: str) -> object:
    return graph.load({"Person": pa.table({"name": _bytes(f"a{next(_NAMES)}{text}")})})


def _arrow_list(graph: Graph, _: Path, text: str) -> object:
    tags = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pa.concat_arrays([pa.array(["x"]), _bytes(text)]))
    return graph.load({"Person": pa.table({"name": [f"p{next(_NAMES)}"], "tags": tags})})


def _arrow_edge(graph: Graph, _: Path, text: str) -> object:
    return graph.load({"Knows": pa.table({"from": _bytes(f"a{text}"), "to": ["ann"]})})


def _parquet(graph: Graph, folder: Path, text: str) -> object:
    path = folder / "person.parquet"
    pq.write_table(pa.table({"name": [f"p{next(_NAMES)}"], "bio": _bytes(text)}), path)
    return graph.load({"Person": str(path)})


def _schema(text: str) -> str:
    return SCHEMA + "\n" + text


DOORS: dict[str, Door] = {
    "actor of load": lambda g, _, t: g.load([_record()], actor=t),
    "actor of mutate": lambda g, _, t: g.mutate(f'query q() {{ insert Person {{ name: "{next(_NAMES)}" }} }}', actor=t),
    "actor of optimize": lambda g, _, t: g.maintenance.optimize(actor=t),
    "actor of schema": lambda g, _, t: g.schema.apply(_schema(f"node T{next(_NAMES)} {{ k: String @key }}"), actor=t),
    "actor of branch create": lambda g, _, t: g.branches.create(f"b{next(_NAMES)}", actor=t),
    "actor of branch delete": lambda g, _, t: g.branches.delete("kept", actor=t),
    "branch name": lambda g, _, t: g.branches.create(f"b{next(_NAMES)}{t}"),
    "branch source": lambda g, _, t: g.branches.create(f"b{next(_NAMES)}", from_=t),
    "branch to delete": lambda g, _, t: g.branches.delete(t),
    "branch of load": lambda g, _, t: g.load([_record()], branch=t),
    "branch of mutate": lambda g, _, t: g.mutate('query q() { insert Person { name: "x" } }', branch=t),
    "condition": lambda g, _, t: g.mutate('query q() { insert Person { name: "x" } }', if_commit=t),
    "key of record": lambda g, _, t: g.load([_record(name=f"{next(_NAMES)}{t}")]),
    "text of record": lambda g, _, t: g.load([_record(bio=t)]),
    "list of record": lambda g, _, t: g.load([_record(tags=["x", t])]),
    "blob of record": lambda g, _, t: g.load([_record(photo=f"file:///{t}")]),
    "id of record": lambda g, _, t: g.load([_record(id=t)], mode="merge"),
    "property of record": lambda g, _, t: g.load([_record(**{t or "?": 1})]),
    "type of record": lambda g, _, t: g.load([{"type": t, "data": {}}]),
    "end of record": lambda g, _, t: g.load([{"edge": "Knows", "from": t, "to": "ann"}]),
    "text of line": lambda g, f, t: g.load(_line(f, _record(bio=t))),
    "text of lenient line": lambda g, f, t: g.load(_line(f, _record(bio=t)), lenient=True),
    "key of lenient line": lambda g, f, t: g.load(_line(f, _record(id=t, name=t)), lenient=True),
    "key of Arrow": _arrow,
    "list of Arrow": _arrow_list,
    "end of Arrow": _arrow_edge,
    "text of Parquet": _parquet,
    "column of mapping": lambda g, _, t: g.load({"Person": pa.table({"n": ["x"]})}, columns={"Person": {"name": t}}),
    "parameter": lambda g, _, t: _mutate(g, f'insert Person {{ name: "{next(_NAMES)}", bio: $t }}', t=t),
    "list parameter": lambda g, _, t: _mutate(g, f'insert Person {{ name: "{next(_NAMES)}", tags: $l }}', l=[t]),
    "updated parameter": lambda g, _, t: _mutate(g, 'update Person set { bio: $t } where name = "ann"', t=t),
    "condition parameter": lambda g, _, t: _mutate(g, "delete Person where name = $t", t=t),
    "name of parameter": lambda g, _, t: _mutate(g, f'insert Person {{ name: "{next(_NAMES)}" }}', **{t: 1}),
    "literal": lambda g, _, t: g.mutate(f'query q() {{ insert Person {{ name: "l{t}" }} }}'),
    "query name": lambda g, _, t: g.mutate(f'query q{t}() {{ insert Person {{ name: "{next(_NAMES)}" }} }}'),
    "chosen query": lambda g, _, t: g.mutate('query q() { insert Person { name: "x" } }', name=t),
    "type name": lambda g, _, t: g.schema.apply(_schema(f"node T{t} {{ k: String @key }}")),
    "property name": lambda g, _, t: g.schema.apply(_schema(f"node T {{ k: String @key p{t}: I32? }}")),
    "description": lambda g, _, t: g.schema.apply(_schema(f'node T @description("{t}") {{ k: String @key }}')),
    "enum value": lambda g, _, t: g.schema.apply(_schema(f"node T {{ k: String @key e: enum(a{t})? }}")),
    "comment": lambda g, _, t: g.schema.apply(_schema(f"// {t}")),
    "schema of a new graph": lambda g, f, t: omnigraph.create(f / f"n{next(_NAMES)}", _schema(f"// {t}")),
    "commit property": lambda g, _, t: WriteRequest("main", WriterKind.LOAD, None, properties={"stream": t}),
    "name of commit property": lambda g, _, t: WriteRequest("main", WriterKind.LOAD, None, properties={t: "x"}),
}
"""Every text that a caller gives to a verb that writes."""

HALVES = st.text(st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF), min_size=1, max_size=1)
BROKEN = st.builds(lambda before, half, after: before + half + after, st.text(max_size=3), HALVES, st.text(max_size=3))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = omnigraph.create(tmp_path_factory.mktemp("texts") / "graph", SCHEMA)
    graph.load([_record(name="ann")])
    return graph


def _state(graph: Graph) -> tuple[str, ...]:
    return tuple(f"{snapshot.branch}:{snapshot.state.head}" for snapshot in graph.context.manifest.snapshots())


_MAY_PASS = {"name of parameter"}
"""What is given, and not stored."""


@pytest.mark.parametrize("door", DOORS)
@given(text=BROKEN)
@settings(max_examples=12, deadline=None)
def test_a_text_that_is_no_unicode_is_refused_at_every_door(
    graph: Graph, tmp_path_factory: pytest.TempPathFactory, door: str, text: str
) -> None:
    before = _state(graph)
    try:
        DOORS[door](graph, tmp_path_factory.getbasetemp(), text)
    except GraphError as refused:
        str(refused).encode()
        json.dumps(refused.facts()).encode()
        assert _state(graph) == before
    else:
        assert door in _MAY_PASS


@given(text=st.text(st.characters(codec="utf-8"), max_size=6))
@settings(max_examples=25, deadline=None)
def test_every_text_that_is_unicode_is_stored_as_it_is(graph: Graph, text: str) -> None:
    name = f"{next(_NAMES)}{text}"
    actor = f"a{text}"
    written = graph.load([_record(name=name, bio=text, tags=[text])], actor=actor)
    graph.load({"Person": pa.table({"name": [f"{name}!"], "bio": [text], "tags": [[text]]})})
    for key in (name, f"{name}!"):
        found = "{ $p.name as n, $p.bio as b, $p.tags as t }"
        query = f"query q($n: String) {{ match {{ $p: Person {{ name: $n }} }} return {found} }}"
        assert graph.query(query, {"n": key}).to_pylist() == [{"n": key, "b": text, "t": [text]}]
    assert graph.history.show(written.commit_id or "").actor_id == actor


# --- what an earlier release accepted --------------------------------------------------------------------------------


def _publish(graph: Graph, actor: str, properties: dict[str, str]) -> CommitId:
    """A commit as an earlier release made it: past the door."""
    commit_id = CommitId(new_ulid())
    graph.context.manifest.publish("main", [], lineage=Lineage(commit_id, actor, now_micros(), None, properties))
    return commit_id


@pytest.mark.long
def test_an_actor_that_cannot_be_encoded_is_kept_and_never_stops_the_graph(tmp_path: Path) -> None:
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    actors = ["\ud800", "ann\udfff", "zoë\udc80"]
    odd = {_publish(graph, actor, {"\ud801": "\udc02"}): actor for actor in actors}
    for number in range(100):
        graph.load([_record(name=f"n{number}")], actor="bob")
    graph.branches.create("side")
    graph.load([_record(name="aside")], branch="side")
    graph.branches.delete("side")
    for opened in (graph, omnigraph.connect(tmp_path / "g")):
        listed = {commit.graph_commit_id: commit for commit in opened.history.list()}
        assert {commit_id: listed[commit_id].actor_id for commit_id in odd} == odd
        assert all(listed[commit_id].properties == {"\ud801": "\udc02"} for commit_id in odd)
        assert [opened.history.show(commit_id).actor_id for commit_id in odd] == actors
        assert opened.maintenance.verify().clean
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep=1, older_than=timedelta(0))
    assert [omnigraph.connect(tmp_path / "g").history.show(commit_id).actor_id for commit_id in odd] == actors
    for form in ([], ["--json"]):
        told = spawn("commit", "list", tmp_path / "g", *form)
        assert told.code == 0, told.err
        assert "\\ud800" in told.out


def test_recovery_records_for_whom_it_was_also_when_the_name_cannot_be_encoded(tmp_path: Path) -> None:
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    row = audit.AuditRow(
        OperationId(new_ulid()), RecoveryKind.ROLLED_BACK, CommitId(new_ulid()), "\ud800", "load", (), now_micros()
    )
    audit.record(graph.context.store, row)
    assert [found.actor for found in audit.rows(graph.context.store)] == ["\\ud800"]


def test_an_input_error_names_what_cannot_be_stored(graph: Graph) -> None:
    with pytest.raises(InputError, match="actor"):
        graph.load([_record()], actor="\ud800")
    with pytest.raises(InputError, match=r"Person\.bio: the text is not valid Unicode"):
        graph.load([_record(bio="\ud800")])
    with pytest.raises(InputError, match=r"Person\.tags: item: the text is not valid Unicode"):
        _arrow_list(graph, Path(), "\ud800")
