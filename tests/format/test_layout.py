"""What a graph is on disk, field by field, read with Lance and nothing of ours."""

import hashlib
import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph

SCHEMA = """
// every type there is
node Thing @description("anything") {
    code: String @key
    flag: Bool?
    small: I32
    big: I64?
    count: U32?
    huge: U64?
    single: F32?
    double: F64?
    day: Date?
    moment: DateTime?
    kind: enum(b, a)?
    tags: [String]?
    place: Vector(3)?
    body: Blob?
}
node Person { name: String @key }
edge Knows: Person -> Person { since: Date? }
"""
PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("format") / "g.omni"
    omnigraph.create(path, schema=SCHEMA).close()
    return path


def manifest(root: Path) -> Any:
    return lance.dataset(str(root / "__manifest"))


def rows(root: Path, kind: str) -> list[dict[str, Any]]:
    return [row for row in manifest(root).to_table().to_pylist() if row["object_type"] == kind]


def columns(schema: pa.Schema) -> list[tuple[str, pa.DataType, bool]]:
    return [(field.name, field.type, field.nullable) for field in schema]


def test_the_root_holds_exactly_what_the_format_names(root: Path) -> None:
    assert sorted(path.name for path in root.iterdir()) == [
        "__manifest",
        "__schema_state.json",
        "_graph_commit_actors.lance",
        "_graph_commits.lance",
        "_schema.ir.json",
        "_schema.pg",
        "edges",
        "nodes",
    ]
    assert sorted(path.name for path in (root / "nodes").iterdir()) == ["40d76f1f51639ec0", fnv1a64("Thing")]
    assert [path.name for path in (root / "edges").iterdir()] == ["602a25a3bd0b455b"]


def fnv1a64(text: str) -> str:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return f"{value:016x}"


def test_path_hashes_have_the_values_of_the_format() -> None:
    vectors = {
        "Person": "40d76f1f51639ec0",
        "Company": "7cb4e55c59663b1c",
        "Knows": "602a25a3bd0b455b",
        "WorksAt": "844eefbe5068b644",
    }
    assert {name: fnv1a64(name) for name in vectors} == vectors


def test_the_schema_files_agree(root: Path) -> None:
    assert (root / "_schema.pg").read_text() == SCHEMA
    ir = json.loads((root / "_schema.ir.json").read_text())
    state = json.loads((root / "__schema_state.json").read_text())
    compact = json.dumps(ir, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    assert state == {
        "format_version": 1,
        "schema_ir_hash": "sha256:" + hashlib.sha256(compact).hexdigest(),
        "schema_identity_version": 1,
    }
    assert ir["ir_version"] == 1
    assert [node["name"] for node in ir["nodes"]] == ["Person", "Thing"]
    assert [edge["name"] for edge in ir["edges"]] == ["Knows"]
    assert ir["interfaces"] == []


def test_the_manifest_has_its_schema_stamp_and_configuration(root: Path) -> None:
    dataset = manifest(root)
    assert columns(dataset.schema) == [
        ("object_id", pa.utf8(), False),
        ("object_type", pa.utf8(), False),
        ("location", pa.utf8(), True),
        ("metadata", pa.utf8(), True),
        ("base_objects", pa.list_(pa.field("item", pa.utf8())), True),
        ("table_key", pa.utf8(), False),
        ("table_version", pa.uint64(), True),
        ("table_branch", pa.utf8(), True),
        ("row_count", pa.uint64(), True),
    ]
    assert dataset.schema.field("object_id").metadata == PRIMARY_KEY
    assert dataset.schema.metadata[b"omnigraph:internal_schema_version"] == b"4"
    assert dataset.config()["table_version_management"] == "true"


def test_the_manifest_registers_and_publishes_every_table(root: Path) -> None:
    keys = ["edge:Knows", "node:Person", "node:Thing"]
    tables = rows(root, "table")
    assert [(row["object_id"], row["table_key"]) for row in tables] == [(key, key) for key in keys]
    assert [row["location"] for row in tables] == [
        "edges/602a25a3bd0b455b",
        "nodes/40d76f1f51639ec0",
        f"nodes/{fnv1a64('Thing')}",
    ]
    versions = rows(root, "table_version")
    for row, key in zip(versions, keys, strict=True):
        assert row["object_id"] == f"{key}${row['table_version']:020d}"
        assert row["row_count"] == 0
        assert row["table_branch"] is None
        assert set(json.loads(row["metadata"])) >= {"manifest_path", "manifest_size", "e_tag", "naming_scheme"}
    assert all(row["base_objects"] is None for row in manifest(root).to_table().to_pylist())


def test_the_first_commit_is_in_the_manifest_and_in_the_commit_table(root: Path) -> None:
    (commit,) = rows(root, "graph_commit")
    (head,) = rows(root, "graph_head")
    assert len(commit["object_id"]) == 26
    assert commit["table_key"] == ""
    assert commit["table_branch"] is None
    assert set(json.loads(commit["metadata"])) == {"created_at"}
    assert head["object_id"] == "graph_head:main"
    assert json.loads(head["metadata"]) == {"head_commit_id": commit["object_id"]}
    (archived,) = lance.dataset(str(root / "_graph_commits.lance")).to_table().to_pylist()
    assert archived["graph_commit_id"] == commit["object_id"]
    assert archived["manifest_version"] == commit["table_version"]
    assert archived["parent_commit_id"] is None
    assert archived["merged_parent_commit_id"] is None
    assert archived["manifest_branch"] is None


def test_the_commit_tables_have_their_schemas(root: Path) -> None:
    micros = pa.timestamp("us")
    assert columns(lance.dataset(str(root / "_graph_commits.lance")).schema) == [
        ("graph_commit_id", pa.utf8(), False),
        ("manifest_branch", pa.utf8(), True),
        ("manifest_version", pa.uint64(), False),
        ("parent_commit_id", pa.utf8(), True),
        ("merged_parent_commit_id", pa.utf8(), True),
        ("created_at", micros, False),
        ("actor_id", pa.utf8(), True),
        ("properties", pa.utf8(), True),
    ]
    assert columns(lance.dataset(str(root / "_graph_commit_actors.lance")).schema) == [
        ("graph_commit_id", pa.utf8(), False),
        ("actor_id", pa.utf8(), False),
        ("created_at", micros, False),
    ]


def test_node_and_edge_tables_have_the_columns_of_their_types(root: Path) -> None:
    thing = lance.dataset(str(root / "nodes" / fnv1a64("Thing"))).schema
    assert [name for name, _, _ in columns(thing)] == [
        "id", "big", "body", "code", "count", "day", "double", "flag", "huge", "kind", "moment", "place", "single",
        "small", "tags",
    ]  # fmt: skip
    expected = {
        "id": (pa.utf8(), False),
        "big": (pa.int64(), True),
        "code": (pa.utf8(), False),
        "count": (pa.uint32(), True),
        "day": (pa.date32(), True),
        "double": (pa.float64(), True),
        "flag": (pa.bool_(), True),
        "huge": (pa.uint64(), True),
        "kind": (pa.utf8(), True),
        "moment": (pa.date64(), True),
        "place": (pa.list_(pa.field("item", pa.float32()), 3), True),
        "single": (pa.float32(), True),
        "small": (pa.int32(), False),
        "tags": (pa.list_(pa.field("item", pa.utf8())), True),
    }
    assert {name: (kind, null) for name, kind, null in columns(thing) if name != "body"} == expected
    assert thing.field("body").nullable
    knows = lance.dataset(str(root / "edges" / "602a25a3bd0b455b")).schema
    assert columns(knows) == [
        ("id", pa.utf8(), False),
        ("src", pa.utf8(), False),
        ("dst", pa.utf8(), False),
        ("since", pa.date32(), True),
    ]


def every_dataset(root: Path) -> list[Path]:
    return [path.parent for path in sorted(root.rglob("_versions"))]


def test_every_dataset_has_stable_row_ids_and_the_right_storage_version(root: Path) -> None:
    found = every_dataset(root)
    assert len(found) == 6
    for path in found:
        dataset = lance.dataset(str(path))
        assert dataset.has_stable_row_ids, path
        assert dataset.data_storage_version == "2.2", path
        assert not [key for key in dataset.config() if key.startswith("lance.auto_cleanup")], path


def test_data_tables_fence_their_key(root: Path) -> None:
    for path in every_dataset(root):
        if path.parent.name in ("nodes", "edges"):
            assert PRIMARY_KEY.items() <= (lance.dataset(str(path)).schema.field("id").metadata or {}).items(), path
