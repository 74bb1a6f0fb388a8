"""Carries out the steps of a conformance row against the harbour schema and graph.

A step either begins an action (`schema`, `match`, `write`, `load` …), adds to it (`return`, `params` …) or states what
must come of it. An action runs when the first expectation asks for its outcome, so that an expected error and an
expected result are told apart by what the row says next. Errors of compiling need no graph; everything else goes
through the public API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.conformance.rows import Row, Step

import omnigraph
from omnigraph.catalog.arrow import table_schema
from omnigraph.catalog.migration import MigrationPlan
from omnigraph.catalog.model import Annotation, Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.embedding import EmbeddingConfig, Provider, make_embedder
from omnigraph.errors import (
    ConflictError,
    ConstraintError,
    ExecutionError,
    GraphError,
    InputError,
    NotFoundError,
    ParameterError,
    ParseError,
    SchemaError,
    TypeCheckError,
)
from omnigraph.plan import compile_query
from omnigraph.plan.lint import lint
from omnigraph.plan.parameters import bind
from omnigraph.plan.results import rows_to_json

HERE = Path(__file__).parent
SCHEMA = (HERE / "harbour.pg").read_text()
QUERIES = (HERE / "harbour.gq").read_text()
CLASSES: dict[str, type[GraphError]] = {
    "parse": ParseError,
    "catalog": SchemaError,
    "type": TypeCheckError,
    "param": ParameterError,
    "constraint": ConstraintError,
    "conflict": ConflictError,
    "not_found": NotFoundError,
    "exec": ExecutionError,
    "input": InputError,
    "schema": SchemaError,
}
COMPILE_CLASSES = ("parse", "type", "catalog")
CHANGING = ("write", "call", "load", "apply", "branch")
_DECLARATION = re.compile(r"^(?=(?:interface|node|edge) )", re.MULTILINE)
_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True)
class Wanted:
    """The graph a row needs: another schema, no data, or nothing that would change it."""

    schema: str | None
    is_empty: bool
    is_read_only: bool


OpenGraph = Callable[[Wanted], omnigraph.Graph]


class Harbour:
    """The state of one row while it runs."""

    def __init__(self, open_graph: OpenGraph, folder: Path) -> None:
        self._open_graph = open_graph
        self._folder = folder
        self._graph: omnigraph.Graph | None = None
        self._schema: str | None = None
        self._desired = SCHEMA
        self._is_empty = False
        self._is_read_only = False
        self._commits = 0
        self._past: Any = None
        self._query: dict[str, str] = {}
        self._compile: Callable[[], Any] = lambda: None
        self._action: Callable[[], Any] = lambda: None
        self._outcome: list[Any] = []

    def run(self, row: Row) -> None:
        self._is_read_only = not any(step.verb in CHANGING for step in row.steps)
        for step in row.steps:
            getattr(self, "do_" + step.verb.replace(" ", "_"))(step)

    # --- actions and their outcome

    def _begin(self, action: Callable[[], Any], compile_only: Callable[[], Any] | None = None) -> None:
        self._action, self._outcome = action, []
        self._compile = compile_only or action

    def result(self) -> Any:
        """What the action gave; it runs once, however many expectations look at it."""
        if not self._outcome:
            self._outcome = [self._action()]
        return self._outcome[0]

    @property
    def graph(self) -> omnigraph.Graph:
        if self._graph is None:
            self._graph = self._open_graph(Wanted(self._schema, self._is_empty, self._is_read_only))
            self._commits = len(self._graph.history.list())
        return self._graph

    @property
    def catalog(self) -> Catalog:
        return compile_schema(self._schema or SCHEMA)

    def do_error(self, step: Step) -> None:
        kind, *rest = step.text.split(" ", 1)
        code = re.match(r"(T\d+|D2)\b ?", rest[0]) if rest else None
        words = rest[0][code.end() :] if code else "".join(rest)
        with pytest.raises(CLASSES[kind]) as caught:
            (self._compile if kind in COMPILE_CLASSES else self._action)()
        if code:
            assert caught.value.code == code[1], caught.value
            assert caught.value.message.startswith(f"{code[1]}: ")
        for part in filter(None, (word.strip() for word in words.split(","))):
            assert part in caught.value.message

    # --- schemas

    def do_schema(self, step: Step) -> None:
        text = SCHEMA if step.text == "harbour.pg" else step.text
        self._schema = text
        self._begin(partial(compile_schema, text))

    def do_accepted(self, step: Step) -> None:
        assert isinstance(self.result(), Catalog)

    def do_nodes(self, step: Step) -> None:
        assert ", ".join(self.result().nodes) == step.text

    def do_edges(self, step: Step) -> None:
        assert ", ".join(self.result().edges) == step.text

    def do_interfaces(self, step: Step) -> None:
        assert ", ".join(self.result().interfaces) == step.text

    def do_columns(self, step: Step) -> None:
        outcome = self.result()
        if isinstance(outcome, Catalog):
            name, _, columns = step.text.partition(": ")
            assert ", ".join(table_schema(outcome.nodes[name]).names) == columns
        else:
            assert ", ".join(outcome.columns) == step.text

    def do_column(self, step: Step) -> None:
        owner, name, kind = re.fullmatch(r"(\w+)\.(\w+): (.+)", step.text).groups()  # type: ignore[union-attr]
        assert str(table_schema(self.result().nodes[owner]).field(name).type) == kind

    def do_type(self, step: Step) -> None:
        owner, name, kind = re.fullmatch(r"(\w+)\.(\w+): (.+)", step.text).groups()  # type: ignore[union-attr]
        assert str(self.result().nodes[owner].properties[name].type) == kind

    def do_key(self, step: Step) -> None:
        name, _, columns = step.text.partition(": ")
        assert ", ".join(self.result().nodes[name].key) == columns

    def do_same_as(self, step: Step) -> None:
        assert self.result() == compile_schema(step.text)

    def do_annotations(self, step: Step) -> None:
        target, _, expected = step.text.partition(": ")
        owner, _, name = target.partition(".")
        node = self.result().nodes[owner]
        found: tuple[Annotation, ...] = node.properties[name].annotations if name else node.annotations
        assert ", ".join(f"{a.name}={a.value}" if a.value is not None else a.name for a in found) == expected

    # --- evolution

    def do_change(self, step: Step) -> None:
        target, edit = step.text.split(": ", 1)
        old, new = (part.strip() for part in f"{edit} ".split("=> ", 1))
        parts = _DECLARATION.split(self._desired)
        (position,) = [i for i, part in enumerate(parts) if re.match(rf"(interface|node|edge) {target}\b", part)]
        assert old in parts[position], f"{old!r} is not in {target}"
        parts[position] = parts[position].replace(old, new, 1)
        self._plan("".join(parts))

    def do_drop(self, step: Step) -> None:
        parts = _DECLARATION.split(self._desired)
        kept = [part for part in parts if not re.match(rf"(interface|node|edge) {step.text}\b", part)]
        assert len(kept) == len(parts) - 1
        self._plan("".join(kept))

    def do_add(self, step: Step) -> None:
        self._plan(f"{step.text}\n{self._desired}")

    def _plan(self, desired: str) -> None:
        self._desired = desired
        self._begin(lambda: self.graph.schema.plan(desired), lambda: compile_schema(desired))

    def do_supported(self, step: Step) -> None:
        plan: MigrationPlan = self.result()
        assert plan.to_json()["supported"] is True
        plan.require_supported()

    def do_steps(self, step: Step) -> None:
        assert self.result().to_json()["steps"] == _json_lines(step.text)

    def do_data_loss(self, step: Step) -> None:
        plan = self.graph.schema.plan(self._desired, allow_data_loss=True)
        assert plan.to_json()["steps"] == _json_lines(step.text)

    def do_refused(self, step: Step) -> None:
        entity, _, code = step.text.partition(" ")
        plan: MigrationPlan = self.result()
        report = plan.to_json()
        assert report["supported"] is False
        refusals = [item for item in report["steps"] if item["kind"] == "unsupported_change"]
        assert [(item["entity"], item.get("code", "")) for item in refusals] == [(entity, code)]
        with pytest.raises(SchemaError) as caught:
            plan.require_supported()
        assert not code or caught.value.message.startswith(f"[{code}] ")

    def do_apply(self, step: Step) -> None:
        schema: Any = self.graph.schema
        desired = self._desired

        def apply() -> Any:
            report = schema.apply(desired, confirm_drops=step.text == "confirmed")
            self._schema = desired
            return report

        self._begin(apply)

    def do_broken(self, step: Step) -> None:
        """The number of rows in the way, then the ids of the first."""
        (refusal,) = [item for item in self.result().to_json()["steps"] if item["kind"] == "unsupported_change"]
        assert " ".join([str(refusal["row_count"]), *(row["id"] for row in refusal["rows"])]) == step.text

    def do_past(self, step: Step) -> None:
        """The commit before this row, which later reads of the row are about."""
        self._past = self.graph.snapshot().head

    def do_applied(self, step: Step) -> None:
        assert self.result().applied is (step.text == "true")

    def do_branch(self, step: Step) -> None:
        branches: Any = self.graph.branches  # type: ignore[attr-defined]
        branches.create(step.text)

    # --- reads

    def do_match(self, step: Step) -> None:
        self._query = {"match": step.text, "return": "$v.code"}
        self._begin(self._read, lambda: compile_query(self.catalog, self._source()))

    def _part(self, step: Step) -> None:
        self._query[step.verb] = step.text

    do_return = do_order = do_limit = do_params = do_with = _part

    def _source(self) -> str:
        parts = self._query
        head = f"query t({parts.get('params', '')})"
        if "write" in parts:
            return f"{head} {{ {parts['write']} }}"
        order = f"order {{ {parts['order']} }}" if "order" in parts else ""
        limit = f"limit {parts['limit']}" if "limit" in parts else ""
        return f"{head} {{ match {{ {parts['match']} }} return {{ {parts['return']} }} {order} {limit} }}"

    def _parameters(self) -> Any:
        return json.loads(self._query.get("with", "{}"))

    def _read(self) -> Any:
        return self.graph.query(self._source(), self._parameters(), at=self._past if "then" in self._query else None)

    def do_then(self, step: Step) -> None:
        self._query["then"] = step.text

    def do_rows(self, step: Step) -> None:
        result = self.result()
        actual = rows_to_json(result.to_arrow())
        expected = (
            [] if step.text == "none" else [_as_row(item, result.columns) for item in json.loads(f"[{step.text}]")]
        )
        if "order" not in self._query:
            actual, expected = (sorted(rows, key=_sort_key) for rows in (actual, expected))
        assert len(actual) == len(expected), actual
        for found, wanted in zip(actual, expected, strict=True):
            assert found == {
                name: pytest.approx(value, abs=1e-6) if isinstance(value, float) else value
                for name, value in wanted.items()
            }

    def do_row_count(self, step: Step) -> None:
        assert len(self.result()) == int(step.text)

    def do_ulids(self, step: Step) -> None:
        ids = [row["v"] for row in rows_to_json(self.result().to_arrow())]
        assert len(set(ids)) == int(step.text)
        assert all(_ULID.fullmatch(text) for text in ids)

    # --- writes

    def do_write(self, step: Step) -> None:
        self._query = {"write": step.text}
        self._begin(
            lambda: self.graph.mutate(self._source(), self._parameters()),
            lambda: compile_query(self.catalog, self._source()),
        )

    def do_call(self, step: Step) -> None:
        name, parameters = step.text.split(" ", 1)
        self._begin(lambda: self.graph.mutate(QUERIES, json.loads(parameters), name=name))

    def do_query(self, step: Step) -> None:
        self._begin(lambda: self.graph.query(step.text))

    def do_mutate(self, step: Step) -> None:
        self._begin(lambda: self.graph.mutate(step.text))

    def do_affected(self, step: Step) -> None:
        outcome = self.result()
        assert f"{outcome.affected_nodes} {outcome.affected_edges}" == step.text

    def do_ids(self, step: Step) -> None:
        assert [list(touched.ids) for touched in self.result().ids] == json.loads(f"[{step.text}]")

    def do_returned(self, step: Step) -> None:
        found = self.result().returned
        rows = [] if step.text == "none" else json.loads(f"[{step.text}]")
        assert rows_to_json(found) == [_as_row(row, found.column_names) for row in rows]

    def do_commits(self, step: Step) -> None:
        graph = self.graph
        assert len(graph.history.list()) - self._commits == int(step.text)

    # --- parameters and results

    def do_bind(self, step: Step) -> None:
        kind, value = step.text.split(" ", 1)
        plan = compile_query(self.catalog, f"query t($x: {kind}) {{ match {{ $v: Vessel }} return {{ $x }} }}")
        self._begin(lambda: bind(plan.parameters, {"x": json.loads(value)})["x"])

    def do_value(self, step: Step) -> None:
        assert str(self.result()) == step.text

    def do_result(self, step: Step) -> None:
        kind, value = step.text.split(" ")
        self._begin(lambda: pa.table({"x": pa.array([int(value)], pa.type_for_alias(kind))}))

    def do_wire(self, step: Step) -> None:
        assert json.dumps(rows_to_json(self.result())[0]["x"]) == step.text

    def do_sdk(self, step: Step) -> None:
        assert json.dumps(rows_to_json(self.result(), js_safe=True)[0]["x"]) == step.text

    # --- loads, exports, blobs

    def do_provider(self, step: Step) -> None:
        embedder = make_embedder(EmbeddingConfig(provider=Provider(step.text)))
        self._graph = omnigraph.Graph(self.graph.context, embedder=embedder)

    def do_empty(self, step: Step) -> None:
        self._is_empty = True

    def do_load(self, step: Step) -> None:
        mode, _, text = step.text.partition("\n")
        mode, _, name = mode.partition(" ")
        path = HERE / name if name else self._folder / "records.jsonl"
        if not name:
            path.write_text(f"{text}\n", encoding="utf-8")
        self._begin(lambda: self.graph.load(path, mode=mode))  # type: ignore[attr-defined]

    def do_loaded(self, step: Step) -> None:
        rows = self.result().rows
        counts = [sum(n for key, n in rows.items() if key.startswith(f"{kind}:")) for kind in ("node", "edge")]
        assert f"{counts[0]} {counts[1]}" == step.text

    def do_export(self, step: Step) -> None:
        def export(graph: Any, name: str) -> str:
            graph.export(self._folder / name)
            return (self._folder / name).read_text(encoding="utf-8")

        def both() -> tuple[str, str]:
            first = export(self.graph, "first.jsonl")
            copy: Any = omnigraph.create(self._folder / "copy.omni", SCHEMA)
            copy.load(self._folder / "first.jsonl", mode="overwrite")
            return first, export(copy, "second.jsonl")

        self._begin(both)

    def do_exported(self, step: Step) -> None:
        wanted = json.loads(step.text)
        lines = [json.loads(line) for line in self.graph.export()]  # type: ignore[union-attr]
        (found,) = [line for line in lines if line.get("data", {}).get("id") == wanted["data"]["id"]]
        _assert_includes(found, wanted)

    def do_round_trip(self, step: Step) -> None:
        first, second = self.result()
        assert first.count("\n") == 18
        assert first == second

    def do_blob(self, step: Step) -> None:
        type_name, entity_id, name = step.text.split(" ")
        graph: Any = self.graph
        self._begin(lambda: graph.read_blob(type_name, entity_id, name))

    def do_bytes(self, step: Step) -> None:
        assert bytes(self.result()) == bytes(map(int, step.text.split()))

    # --- lint

    def do_lint(self, step: Step) -> None:
        source = {"kind": "file", "path": "h.pg"}
        self._begin(lambda: lint(self.catalog, step.text, query_path="h.gq", schema_source=source).to_json())

    def do_report(self, step: Step) -> None:
        _assert_includes(self.result(), json.loads(step.text))


def _json_lines(text: str) -> list[Any]:
    return [] if text == "none" else [json.loads(line) for line in text.splitlines()]


def _as_row(item: Any, columns: list[str]) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    return dict(zip(columns, item if isinstance(item, list) else [item], strict=True))


def _sort_key(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def _assert_includes(actual: Any, expected: Any) -> None:
    """Everything expected is there: objects may have more members, lists have exactly the expected items."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            _assert_includes(actual[name], value)
    elif isinstance(expected, list):
        assert len(actual) == len(expected), actual
        for found, wanted in zip(actual, expected, strict=True):
            _assert_includes(found, wanted)
    else:
        assert actual == expected
