"""Bytes outside a graph: only from places it trusts, and copied where an entity is written by its id."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.values.external import ExternalBlobs
from omnigraph.errors import ConstraintError, ExternalBlobError, InputError

SCHEMA = "node Doc { name: String @key  body: Blob?  note: String? }"


@pytest.fixture
def depot(tmp_path: Path) -> Path:
    folder = tmp_path / "depot"
    folder.mkdir()
    (folder / "a b.bin").write_bytes(b"far away")
    (folder / "empty").write_bytes(b"")
    (tmp_path / "secret").write_bytes(b"not yours")
    return folder


@pytest.fixture
def graph(tmp_path: Path, depot: Path) -> omnigraph.Graph:
    return omnigraph.create(tmp_path / "g", SCHEMA, external_blobs=[depot.as_uri()])


def record(name: str, body: str | None) -> bytes:
    return json.dumps({"type": "Doc", "data": {"name": name, "body": body}}).encode()


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [
        ("s3://depot/in/a.png", True),
        ("S3://depot/in/deep/a.png", True),
        ("s3://depot/in", False),
        ("s3://depot/inner/a.png", False),
        ("s3://other/in/a.png", False),
        ("s3://depot/in/../secret", False),
        ("s3://depot/in/%2e%2e/secret", False),
        ("https://depot/in/a.png", False),
        ("/depot/in/a.png", False),
    ],
)
def test_a_base_is_a_prefix_component_by_component(uri: str, allowed: bool) -> None:
    assert ExternalBlobs(("s3://depot/in/",)).allows(uri) is allowed
    assert not ExternalBlobs().allows(uri)


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_by_id_copies_the_bytes(graph: omnigraph.Graph, depot: Path, mode: str) -> None:
    uri = (depot / "a b.bin").as_uri()
    inline = "base64:" + base64.b64encode(b"near").decode()
    lines = [
        record("far", uri),
        record("near", inline),
        record("none", None),
        record("empty", (depot / "empty").as_uri()),
    ]
    graph.load(b"\n".join(lines), mode=mode, engine="local")
    (depot / "a b.bin").unlink()
    assert graph.read_blob("Doc", "far", "body") == b"far away"
    assert graph.read_blob("Doc", "near", "body") == b"near"
    assert graph.stat_blob("Doc", "empty", "body").size == 0
    assert graph.stat_blob("Doc", "far", "body").kind == "managed"


def test_a_mutation_copies_the_bytes_and_leaves_stored_references_alone(graph: omnigraph.Graph, depot: Path) -> None:
    uri = (depot / "a b.bin").as_uri()
    graph.mutate("query q($u: Blob) { insert Doc { name: 'x', body: $u } }".replace("'", '"'), {"u": uri})
    assert graph.read_blob("Doc", "x", "body") == b"far away"
    graph.load(record("kept", uri), mode="overwrite", engine="local")
    assert graph.stat_blob("Doc", "kept", "body").uri == uri
    graph.mutate('query q() { update Doc set { note: "seen" } where name = "kept" }')
    assert graph.stat_blob("Doc", "kept", "body").uri == uri
    graph.mutate('query q($u: Blob) { update Doc set { body: $u } where name = "kept" }', {"u": uri})
    assert graph.read_blob("Doc", "kept", "body") == b"far away"


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_place_that_is_not_trusted_is_refused_and_nothing_changes(
    graph: omnigraph.Graph, tmp_path: Path, mode: str
) -> None:
    version = graph.snapshot().version
    for uri in ((tmp_path / "secret").as_uri(), f"{(tmp_path / 'depot').as_uri()}/../secret"):
        with pytest.raises(ConstraintError, match="none of the places"):
            graph.load(record("x", uri), mode=mode, engine="local")
    assert graph.snapshot().version == version


def test_bytes_that_cannot_be_read_refuse_the_write(graph: omnigraph.Graph, depot: Path) -> None:
    version = graph.snapshot().version
    with pytest.raises(ExternalBlobError, match="cannot be read") as refused:
        graph.load(record("x", (depot / "gone").as_uri()), mode="append", engine="local")
    assert (refused.value.uri, refused.value.reason) == ((depot / "gone").as_uri(), "not_found")
    assert graph.snapshot().version == version


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_without_a_named_place_no_reference_is_new(tmp_path: Path, depot: Path, mode: str) -> None:
    graph = omnigraph.create(tmp_path / "shut", SCHEMA)
    version = graph.snapshot().version
    uri = (depot / "a b.bin").as_uri()
    with pytest.raises(ConstraintError, match="external_blobs"):
        graph.load(record("x", uri), mode=mode, engine="local")
    with pytest.raises(ConstraintError, match="external_blobs"):
        graph.mutate('query q($u: Blob) { insert Doc { name: "x", body: $u } }', {"u": uri})
    assert graph.snapshot().version == version


@pytest.mark.parametrize(
    "tail", ["..%2fsecret", "%2e%2e%2Fsecret", "%2e%2e/secret", "link", "folder/secret", "a b.bin/"]
)
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite", "mutation"])
def test_no_spelling_and_no_link_reaches_beyond_the_place(
    graph: omnigraph.Graph, depot: Path, tail: str, mode: str
) -> None:
    (depot / "link").symlink_to(depot.parent / "secret")
    (depot / "folder").symlink_to(depot.parent)
    version = graph.snapshot().version
    uri = f"{depot.as_uri()}/{tail}"
    if mode == "mutation":
        write = partial(graph.mutate, 'query q($u: Blob) { insert Doc { name: "x", body: $u } }', {"u": uri})
    else:
        write = partial(graph.load, record("x", uri), mode=mode, engine="local")
    with pytest.raises(ConstraintError, match="none of the places"):
        write()
    assert graph.snapshot().version == version


def test_an_export_as_parquet_does_not_follow_a_reference(graph: omnigraph.Graph, depot: Path, tmp_path: Path) -> None:
    graph.load(record("x", (depot / "later").as_uri()), mode="overwrite", engine="local")
    (depot / "later").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match=r"depot/later"):
        graph.export(f"{tmp_path}/out/", format="parquet")
    assert graph.export(tmp_path / "out.jsonl") == 1


def test_a_place_that_is_no_uri_is_refused_when_the_graph_is_opened(tmp_path: Path, depot: Path) -> None:
    omnigraph.create(tmp_path / "g", SCHEMA)
    for wrong in (str(depot), "file:///a/../b", "s3:bucket"):
        with pytest.raises(InputError):
            omnigraph.connect(tmp_path / "g", external_blobs=[wrong])
