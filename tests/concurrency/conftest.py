from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.mutate import mutate
from omnigraph.engine.operations.outcomes import LoadResult, MutationResult
from omnigraph.engine.write.context import GraphContext
from omnigraph.graph import create
from omnigraph.plan import compile_query
from omnigraph.plan.parameters import bind
from omnigraph.plan.statements import WritePlan

SCHEMA = """
node P { k: String @key  n: I64?  u: String? @unique }
node L { text: String }
edge E: P -> P { w: F64? }
edge One: P -> P @card(0..1)
"""


class People:
    def __init__(self, context: GraphContext) -> None:
        self.context = context

    def mutate(
        self, body: str, signature: str = "", parameters: dict[str, Any] | None = None, **options: Any
    ) -> MutationResult:
        plan = compile_query(self.context.catalog, f"query m({signature}) {{ {body} }}", None)
        assert isinstance(plan, WritePlan)
        return mutate(self.context, plan, bind(plan.parameters, parameters), **options)

    def load(self, *lines: str, mode: str, **options: Any) -> LoadResult:
        return load(self.context, "\n".join(lines).encode(), mode=mode, **options)

    def snapshot(self) -> Snapshot:
        return self.context.manifest.snapshot()

    def rows(self, table_key: str) -> dict[str, dict[str, Any]]:
        found = self.snapshot().open(table_key).scan().to_pylist()
        assert len({row["id"] for row in found}) == len(found), f"an id occurs twice in {table_key}"
        return {row["id"]: row for row in found}

    def check_settled(self) -> None:
        """No intent is left, every head is published, no edge dangles, history is one line."""
        assert not self.context.store.objects.list_dir("__recovery")
        snapshot = self.snapshot()
        for key, entry in snapshot.entries.items():
            assert self.context.store.open(entry.path).version == entry.version, key
            assert snapshot.open(key).count_rows() == entry.row_count, key
        people = set(self.rows("node:P"))
        for key in ("edge:E", "edge:One"):
            for row in self.rows(key).values():
                assert {row["src"], row["dst"]} <= people, row
        commits = self.context.manifest.history.list("main")
        for child, parent in pairwise(commits):
            assert child.parent_commit_id == parent.graph_commit_id
        assert commits[-1].parent_commit_id is None
        assert len({commit.graph_commit_id for commit in commits}) == len(commits)


@pytest.fixture
def people(tmp_path: Path) -> People:
    graph = People(create(tmp_path / "people", SCHEMA).context)
    names = ("a", "b", "c")
    graph.load(*(f'{{"type":"P","data":{{"k":"{name}","n":0}}}}' for name in names), mode="append")
    graph.load('{"edge":"E","from":"a","to":"b","data":{"id":"e-1"}}', mode="append")
    return graph


@pytest.fixture(scope="session")
def schema() -> str:
    return SCHEMA
