"""Graphs as releases of earlier formats left them, written with Lance and nothing of the engine.

Formats 1 to 3 published by a merge into `__manifest` and then appended the commit to `_graph_commits.lance`, which had
the same branches. Format 1 had not announced the key of the manifest, and up to format 2 there were branches of runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from omnigraph.catalog.identity import ir_json, schema_ir
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.schema.files import state_text

SCHEMA = "node Person { name: String @key  age: I64? }\nnode Town { name: String @key }\nedge Knows: Person -> Person"
PERSON, TOWN, KNOWS = "nodes/40d76f1f51639ec0", "nodes/5a8cd3fb3a295b65", "edges/602a25a3bd0b455b"
KEY = {"lance-schema:unenforced-primary-key": "true"}
STAMP = "omnigraph:internal_schema_version"
_REMOVAL = {"interval": 1, "older_than_seconds": 0}
_OPTIONS: dict[str, Any] = {"enable_stable_row_ids": True, "data_storage_version": "2.2"}

_COMMITS = pa.schema(
    [
        pa.field("graph_commit_id", pa.utf8(), nullable=False),
        pa.field("manifest_branch", pa.utf8()),
        pa.field("manifest_version", pa.uint64(), nullable=False),
        pa.field("parent_commit_id", pa.utf8()),
        pa.field("merged_parent_commit_id", pa.utf8()),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
_ACTORS = pa.schema(
    [
        pa.field("graph_commit_id", pa.utf8(), nullable=False),
        pa.field("actor_id", pa.utf8(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
_PEOPLE = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("name", pa.utf8(), nullable=False),
        pa.field("age", pa.int64()),
    ]
)
_TOWNS = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("name", pa.utf8(), nullable=False)])
_KNOWS = pa.schema([pa.field(name, pa.utf8(), nullable=False) for name in ("id", "src", "dst")])


def _manifest_schema(stamp: int) -> pa.Schema:
    return pa.schema(
        [
            pa.field("object_id", pa.utf8(), nullable=False, metadata=KEY if stamp > 1 else None),
            pa.field("object_type", pa.utf8(), nullable=False),
            pa.field("location", pa.utf8()),
            pa.field("metadata", pa.utf8()),
            pa.field("base_objects", pa.list_(pa.field("item", pa.utf8()))),
            pa.field("table_key", pa.utf8(), nullable=False),
            pa.field("table_version", pa.uint64()),
            pa.field("table_branch", pa.utf8()),
            pa.field("row_count", pa.uint64()),
        ],
        metadata=None if stamp == 1 else {STAMP: str(stamp)},
    )


class OldGraph:
    """A graph of an early format; format 1 has no stamp at all. `removal` makes Lance remove versions in commits."""

    def __init__(self, root: Path, stamp: int, *, removal: bool = False) -> None:
        self.root, self.stamp, self.schema = root, stamp, _manifest_schema(stamp)
        options = {**_OPTIONS, "auto_cleanup_options": _REMOVAL} if removal else _OPTIONS
        self.commits: list[str] = []
        self.heads: dict[str | None, str] = {}
        root.mkdir(parents=True)
        catalog = compile_schema(SCHEMA)
        (root / "_schema.pg").write_text(SCHEMA)
        (root / "_schema.ir.json").write_text(ir_json(schema_ir(catalog)))
        (root / "__schema_state.json").write_text(state_text(catalog))
        tables = {"node:Person": (PERSON, _PEOPLE), "node:Town": (TOWN, _TOWNS), "edge:Knows": (KNOWS, _KNOWS)}
        rows = []
        for key, (path, schema) in tables.items():
            made = lance.write_dataset(schema.empty_table(), str(root / path), **options)
            rows += [self._row(key, "table", key, location=path), self._version(key, made.version, None, 0)]
        manifest = lance.write_dataset(self._table(rows), str(root / "__manifest"), **options)
        manifest.update_config({"table_version_management": "true"})
        lance.write_dataset(_COMMITS.empty_table(), str(root / "_graph_commits.lance"), **options)
        lance.write_dataset(_ACTORS.empty_table(), str(root / "_graph_commit_actors.lance"), **options)
        self._record(None, lance.dataset(str(root / "__manifest")).version, None)

    def _row(self, object_id: str, kind: str, key: str, **columns: object) -> dict[str, object]:
        return {
            **dict.fromkeys(self.schema.names),
            "object_id": object_id,
            "object_type": kind,
            "table_key": key,
        } | columns

    def _version(self, key: str, version: int, branch: str | None, rows: int) -> dict[str, object]:
        facts = {"manifest_path": "", "manifest_size": None, "e_tag": None, "naming_scheme": "V2"}
        name = f"{key}${version:020d}"
        return self._row(
            name,
            "table_version",
            key,
            metadata=json.dumps(facts),
            table_version=version,
            table_branch=branch,
            row_count=rows,
        )

    def _table(self, rows: list[dict[str, object]]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self.schema)

    def _open(self, path: str, branch: str | None) -> lance.LanceDataset:
        dataset = lance.dataset(str(self.root / path))
        return dataset if branch is None else dataset.checkout_version((branch, None))

    def add(self, name: str, *, branch: str | None = None, actor: str | None = "act-old") -> str:
        """Publish one more person on a branch, forking its table if need be; returns the commit."""
        if branch is not None and branch not in lance.dataset(str(self.root / PERSON)).branches.list():
            pinned = max(self._pins(branch))
            lance.dataset(str(self.root / PERSON)).create_branch(branch, (None, pinned))
        people = self._open(PERSON, branch)
        row = pa.Table.from_pylist([{"id": name, "name": name, "age": len(name)}], schema=_PEOPLE)
        people = lance.write_dataset(row, people, mode="append")
        published = self._version("node:Person", people.version, branch, people.count_rows())
        merge = self._open("__manifest", branch).merge_insert("object_id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self._table([published]))
        return self._record(branch, self._open("__manifest", branch).version, actor)

    def _pins(self, branch: str) -> list[int]:
        rows = self._open("__manifest", branch).to_table().to_pylist()
        return [
            int(str(row["table_version"]))
            for row in rows
            if row["table_key"] == "node:Person" and row["object_type"] == "table_version"
        ]

    def _record(self, branch: str | None, version: int, actor: str | None) -> str:
        number = len(self.commits)
        commit_id = f"01HZZZZZZZZZZZZZZZZZ{number:06d}"
        row = {
            "graph_commit_id": commit_id,
            "manifest_branch": branch,
            "manifest_version": version,
            "parent_commit_id": self.heads.get(branch),
            "merged_parent_commit_id": None,
            "created_at": 1_700_000_000_000_000 + number,
        }
        lance.write_dataset(
            pa.Table.from_pylist([row], schema=_COMMITS), self._open("_graph_commits.lance", branch), mode="append"
        )
        if actor is not None:
            named = {"graph_commit_id": commit_id, "actor_id": actor, "created_at": row["created_at"]}
            place = str(self.root / "_graph_commit_actors.lance")
            lance.write_dataset(pa.Table.from_pylist([named], schema=_ACTORS), place, mode="append")
        self.commits.append(commit_id)
        self.heads[branch] = commit_id
        return commit_id

    def branch(self, name: str) -> None:
        """A branch of main, of the manifest and of the commit table alike."""
        for path in ("__manifest", "_graph_commits.lance"):
            dataset = lance.dataset(str(self.root / path))
            dataset.create_branch(name, (None, dataset.version))
        self.heads[name] = self.heads[None]

    def run_branch(self, name: str) -> None:
        """What a run of formats 1 and 2 left behind: a branch of the manifest alone."""
        dataset = lance.dataset(str(self.root / "__manifest"))
        dataset.create_branch(name, (None, dataset.version))


def old_graph(root: Path, stamp: int, *, people: int = 3) -> OldGraph:
    """A graph with some people on main, a branch with one more, and, up to format 2, branches of runs."""
    graph = OldGraph(root, stamp)
    for number in range(people):
        graph.add(f"p{number}")
    graph.branch("review")
    graph.add("reviewed", branch="review")
    if stamp < 3:
        for name in ("__run__1", "__run__deep/er"):
            graph.run_branch(name)
    return graph
