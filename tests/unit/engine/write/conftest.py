from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.operations.export import export_lines
from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.mutate import mutate
from omnigraph.engine.operations.outcomes import LoadResult, MutationResult
from omnigraph.engine.write.context import GraphContext
from omnigraph.graph import create
from omnigraph.plan import compile_query
from omnigraph.plan.parameters import bind
from omnigraph.plan.statements import WritePlan

HARBOUR = Path(__file__).parents[3] / "conformance" / "harbour.pg"
FIXTURE = Path(__file__).parents[3] / "conformance" / "harbour.jsonl"


class Harbour:
    """A graph with one-line verbs, so that a test reads as what it does."""

    def __init__(self, context: GraphContext) -> None:
        self.context = context

    def plan(self, body: str, signature: str = "") -> WritePlan:
        plan = compile_query(self.context.catalog, f"query m({signature}) {{ {body} }}", None)
        assert isinstance(plan, WritePlan)
        return plan

    def mutate(self, body: str, signature: str = "", **options: Any) -> MutationResult:
        parameters = options.pop("parameters", {})
        plan = self.plan(body, signature)
        return mutate(self.context, plan, bind(plan.parameters, parameters), **options)

    def load(self, *lines: str, mode: str = "merge", **options: Any) -> LoadResult:
        return load(self.context, "\n".join(lines).encode(), mode=mode, **options)

    def rows(self, table_key: str) -> dict[str, dict[str, Any]]:
        found = self.context.manifest.snapshot().open(table_key).scan().to_pylist()
        assert len({row["id"] for row in found}) == len(found), f"an id occurs twice in {table_key}"
        return {row["id"]: row for row in found}

    def versions(self) -> dict[str, int]:
        snapshot = self.context.manifest.snapshot()
        return {"graph": snapshot.version, **{key: entry.version for key, entry in snapshot.entries.items()}}

    def heads(self) -> dict[str, int]:
        snapshot = self.context.manifest.snapshot()
        return {key: self.context.store.open(entry.path).version for key, entry in snapshot.entries.items()}

    def lines(self) -> list[str]:
        return list(export_lines(self.context.catalog, self.context.manifest.snapshot()))


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return compile_schema(HARBOUR.read_text())


@pytest.fixture
def empty_harbour(tmp_path: Path) -> Harbour:
    return Harbour(create(tmp_path / "harbour", HARBOUR.read_text()).context)


@pytest.fixture
def harbour(empty_harbour: Harbour) -> Harbour:
    empty_harbour.load(FIXTURE.read_text(), mode="overwrite")
    return empty_harbour


@pytest.fixture(scope="module")
def lasting_harbour(tmp_path_factory: pytest.TempPathFactory) -> Harbour:
    """One graph for all tests of a module that must leave it as they found it, or nearly so."""
    graph = Harbour(create(tmp_path_factory.mktemp("lasting") / "harbour", HARBOUR.read_text()).context)
    graph.load(FIXTURE.read_text(), mode="overwrite")
    return graph


@pytest.fixture
def graph_of(tmp_path: Path) -> Callable[[str], Harbour]:
    def make(schema: str) -> Harbour:
        return Harbour(create(tmp_path / "graph", schema).context)

    return make
