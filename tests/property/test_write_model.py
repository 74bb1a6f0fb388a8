"""Random writes against a model of plain dicts: the graph accepts what the model accepts and holds what it holds."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.amounts import EXHAUSTIVE

from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.mutate import mutate
from omnigraph.errors import ConstraintError, KeyConflictError
from omnigraph.graph import create
from omnigraph.plan import compile_query
from omnigraph.plan.parameters import bind

SCHEMA = """
node P { k: String @key  n: I32?  u: String? @unique  @range(n, -5..5) }
node Q { name: String }
edge E: P -> P @card(0..2) { w: I32? }
edge F: P -> Q { @unique(src, dst) }
"""
KEYS = ("a", "b", "c", "d")
QS = ("q1", "q2")


class Refused(Exception):
    """The model says that a rule is broken."""


class Model:
    """The graph as dicts: nodes by id, edges as a list in the order they came."""

    def __init__(self) -> None:
        self.p: dict[str, dict[str, Any]] = {}
        self.e: list[tuple[str, str, int | None]] = []
        self.f: list[tuple[str, str]] = []

    def copy(self) -> Model:
        other = Model()
        other.p = {key: dict(value) for key, value in self.p.items()}
        other.e, other.f = list(self.e), list(self.f)
        return other

    def run(self, statement: tuple[Any, ...]) -> tuple[int, int]:
        kind, *facts = statement
        if kind == "insert":
            key, n, u = facts
            self.p[key] = {"n": n, "u": u}
            return 1, 0
        if kind == "edge":
            source, target, w = facts
            self.e.append((source, target, w))
            return 0, 1
        if kind == "link":
            self.f.append(tuple(facts))
            return 0, 1
        if kind == "update":
            field, value, operator, bound = facts
            hits = [k for k, v in self.p.items() if _test(k if field == "k" else v["n"], operator, bound)]
            for key in hits:
                self.p[key].update(value)
            return len(hits), 0
        if kind == "delete":
            operator, bound = facts
            hits = {k for k, v in self.p.items() if _test(v["n"], operator, bound)}
            return self._remove(hits)
        if kind == "delete_key":
            return self._remove({facts[0]} & self.p.keys())
        operator, bound = facts
        before = len(self.e)
        self.e = [edge for edge in self.e if not _test(edge[2], operator, bound)]
        return 0, before - len(self.e)

    def _remove(self, hits: set[str]) -> tuple[int, int]:
        edges = len(self.e) + len(self.f)
        self.p = {k: v for k, v in self.p.items() if k not in hits}
        self.e = [edge for edge in self.e if not {edge[0], edge[1]} & hits]
        self.f = [link for link in self.f if link[0] not in hits]
        return len(hits), edges - len(self.e) - len(self.f)

    def check(self) -> None:
        """Every rule of the schema, over the whole graph."""
        mails = [v["u"] for v in self.p.values() if v["u"] is not None]
        if any(v["n"] is not None and not -5 <= v["n"] <= 5 for v in self.p.values()) or len(set(mails)) < len(mails):
            raise Refused
        if any(end not in self.p for edge in self.e for end in edge[:2]):
            raise Refused
        if any(link[0] not in self.p or link[1] not in QS for link in self.f) or len(set(self.f)) < len(self.f):
            raise Refused
        sources = [edge[0] for edge in self.e]
        if any(sources.count(source) > 2 for source in sources):
            raise Refused


def _test(value: Any, operator: str, bound: Any) -> bool:
    if value is None or bound is None:
        return False
    return {"=": value == bound, "!=": value != bound, "<": value < bound, ">=": value >= bound}[operator]


def text(statement: tuple[Any, ...], number: int) -> tuple[str, dict[str, Any]]:
    """One statement in the language, with its values as parameters."""
    kind, *facts = statement
    names = [f"v{number}_{place}" for place in range(4)]
    v = [f"${name}" for name in names]
    if kind == "insert":
        return f"insert P {{ k: {v[0]}, n: {v[1]}, u: {v[2]} }}", dict(zip(names, facts, strict=False))
    if kind == "edge":
        return f"insert E {{ from: {v[0]}, to: {v[2]}, w: {v[1]} }}", {
            names[0]: facts[0],
            names[1]: facts[2],
            names[2]: facts[1],
        }
    if kind == "link":
        return f"insert F {{ from: {v[0]}, to: {v[2]} }}", {names[0]: facts[0], names[2]: facts[1]}
    if kind == "update":
        field, value, operator, bound = facts
        sets = ", ".join(f"{key}: {v[1] if key == 'n' else v[2]}" for key in value)
        given = {names[1]: value.get("n"), names[2]: value.get("u")}
        place = 0 if field == "k" else 3
        given[names[place]] = bound
        return f"update P set {{ {sets} }} where {field} {operator} {v[place]}", given
    if kind == "delete":
        return f"delete P where n {facts[0]} {v[3]}", {names[3]: facts[1]}
    if kind == "delete_key":
        return f"delete P where k = {v[0]}", {names[0]: facts[0]}
    return f"delete E where w {facts[0]} {v[3]}", {names[3]: facts[1]}


_key = st.sampled_from(KEYS)
_number = st.none() | st.integers(-6, 6)
_mail = st.none() | st.sampled_from(["x", "y"])
_operator = st.sampled_from(["=", "!=", "<", ">="])
_values = st.fixed_dictionaries({}, optional={"n": _number, "u": _mail}).filter(bool)
_writes = st.one_of(
    st.tuples(st.just("insert"), _key, _number, _mail),
    st.tuples(st.just("edge"), _key, _key, _number),
    st.tuples(st.just("link"), _key, st.sampled_from([*QS, "nowhere"])),
    st.tuples(st.just("update"), st.just("n"), _values, _operator, st.integers(-6, 6)),
    st.tuples(st.just("update"), st.just("k"), _values, _operator, _key),
)
_deletes = st.one_of(
    st.tuples(st.just("delete"), _operator, st.integers(-6, 6)),
    st.tuples(st.just("delete_key"), _key),
    st.tuples(st.just("delete_edge"), _operator, st.integers(-6, 6)),
)
_mutations = st.one_of(st.lists(_writes, min_size=1, max_size=5), st.lists(_deletes, min_size=1, max_size=3))
_loads = st.tuples(
    st.sampled_from(["append", "merge", "overwrite"]),
    st.lists(st.tuples(_key, _number, _mail), min_size=1, max_size=4),
    st.lists(st.tuples(_key, _key), max_size=3),
)
_patch = st.tuples(_key, st.fixed_dictionaries({}, optional={"n": _number, "u": _mail}))
_patches = st.tuples(st.just("patch"), st.lists(_patch, min_size=1, max_size=3))

SIGNATURE = ", ".join(f"$v{n}_0: String?, $v{n}_1: I32?, $v{n}_2: String?, $v{n}_3: I32?" for n in range(5))


def run_mutation(context: Any, model: Model, statements: list[tuple[Any, ...]]) -> Model:
    expected, nodes, edges = model.copy(), 0, 0
    refused = False
    try:
        for statement in statements:
            changed = expected.run(statement)
            nodes, edges = nodes + changed[0], edges + changed[1]
        expected.check()
    except Refused:
        refused = True
    bodies = [text(statement, number) for number, statement in enumerate(statements)]
    plan = compile_query(context.catalog, f"query m({SIGNATURE}) {{ {' '.join(body for body, _ in bodies)} }}", None)
    parameters = bind(plan.parameters, {name: value for _, given in bodies for name, value in given.items()})
    before = context.manifest.snapshot().version
    if refused:
        with pytest.raises(ConstraintError):
            mutate(context, plan, parameters)
        assert context.manifest.snapshot().version == before
        return model
    result = mutate(context, plan, parameters)
    assert (result.affected_nodes, result.affected_edges) == (nodes, edges), statements
    assert (result.commit_id is not None) == bool(nodes + edges)
    return expected


def run_load(context: Any, model: Model, request: tuple[Any, ...]) -> Model:
    mode, people, edges = request
    expected, refused = model.copy(), False
    keys, mails = [p[0] for p in people], [p[2] for p in people if p[2] is not None]
    if mode == "overwrite":
        expected.p = {}
        if edges:
            expected.e = []
    if len(set(keys)) < len(keys) or len(set(mails)) < len(mails) or (mode == "append" and set(keys) & model.p.keys()):
        refused = True
    expected.p.update({key: {"n": n, "u": u} for key, n, u in people})
    expected.e += [(source, target, None) for source, target in edges]
    try:
        expected.check()
    except Refused:
        refused = True
    records: list[dict[str, Any]] = [{"type": "P", "data": {"k": k, "n": n, "u": u}} for k, n, u in people]
    records += [{"edge": "E", "from": source, "to": target} for source, target in edges]
    if refused:
        with pytest.raises((ConstraintError, KeyConflictError)):
            load(context, records, mode=mode)
        return model
    load(context, records, mode=mode)
    return expected


def run_patch(context: Any, model: Model, patches: list[tuple[str, dict[str, Any]]]) -> Model:
    """A load that updates."""
    keys, mails = [key for key, _ in patches], [data["u"] for _, data in patches if data.get("u") is not None]
    refused = len(set(keys)) < len(keys) or len(set(mails)) < len(mails) or not set(keys) <= model.p.keys()
    expected = model.copy()
    if not refused:
        for key, data in patches:
            expected.p[key].update(data)
        try:
            expected.check()
        except Refused:
            refused = True
    records = [{"type": "P", "data": {"k": key, **data}} for key, data in patches]
    if refused:
        with pytest.raises(ConstraintError):
            load(context, records, mode="update")
        return model
    load(context, records, mode="update")
    return expected


def run_step(context: Any, model: Model, step: Any) -> Model:
    if isinstance(step, list):
        return run_mutation(context, model, step)
    return run_patch(context, model, step[1]) if step[0] == "patch" else run_load(context, model, step)


def compare(context: Any, model: Model) -> None:
    snapshot = context.manifest.snapshot()
    people = snapshot.open("node:P").scan(["id", "k", "n", "u"]).to_pylist()
    assert {r["id"]: (r["k"], r["n"], r["u"]) for r in people} == {
        key: (key, value["n"], value["u"]) for key, value in model.p.items()
    }
    assert len(people) == len(model.p)

    def edges(key: str, *columns: str) -> list[str]:
        return sorted(str(tuple(row.values())) for row in snapshot.open(key).scan(list(columns)).to_pylist())

    assert edges("edge:E", "src", "dst", "w") == sorted(map(str, model.e))
    assert edges("edge:F", "src", "dst") == sorted(map(str, model.f))
    for key, entry in snapshot.entries.items():
        assert snapshot.open(key).count_rows() == entry.row_count, key


def _run(steps: list[Any]) -> None:
    folder = tempfile.mkdtemp(prefix="omnigraph-model-")
    try:
        context = create(f"{folder}/graph", SCHEMA).context
        load(context, [{"type": "Q", "data": {"id": q, "name": q}} for q in QS], mode="append")
        model = Model()
        for step in steps:
            model = run_step(context, model, step)
            compare(context, model)
    finally:
        shutil.rmtree(folder)


_steps = st.lists(st.one_of(_mutations, _mutations, _loads, _patches), min_size=1, max_size=8)


@pytest.mark.long
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(_steps)
def test_random_writes_are_accepted_and_stored_as_the_model_says(steps):
    _run(steps)


@EXHAUSTIVE
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(_mutations, _mutations, _loads, _patches), min_size=4, max_size=16))
def test_long_runs_of_random_writes_are_accepted_and_stored_as_the_model_says(steps):
    _run(steps)
