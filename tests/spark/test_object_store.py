"""Inputs on an object store are read by both engines, as files, folders and globs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from tests.contract.s3_server import BUCKET, s3_server
from tests.spark.conftest import SCHEMA
from tests.spark.records import city, person

from omnigraph import create
from omnigraph.engine.ingest.files import find_files
from omnigraph.errors import ConstraintError, NotFoundError

pytestmark = [pytest.mark.long]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Some inputs on a server; what stands before a path and behind it."""
    with s3_server() as endpoint:
        host = endpoint.removeprefix("http://")
        store = pafs.S3FileSystem(
            access_key="test", secret_key="test", endpoint_override=host, scheme="http", region="us-east-1"
        )

        def put(name: str, data: bytes) -> None:
            with store.open_output_stream(f"{BUCKET}/in/{name}", compression=None) as stream:
                stream.write(data)

        put("a.jsonl", "\n".join(json.dumps(record) for record in (person("a"), city(1))).encode())
        put("b.jsonl.gz", gzip.compress(json.dumps(person("b")).encode()))
        put("deep/c.jsonl", json.dumps(person("c")).encode())
        put("bad.txt", (json.dumps(person("x")) + "\n{").encode())
        put("tables/cities.csv", b"code,size\n7,70\n")
        with store.open_output_stream(f"{BUCKET}/in/tables/people.parquet") as stream:
            pq.write_table(pa.table({"name": ["p", "q"]}), stream)
        yield f"s3://test:test@{BUCKET}/in/{{}}?endpoint_override={host}&scheme=http&region=us-east-1"


def test_a_glob_of_a_uri_stays_within_its_folder(address: str) -> None:
    def found(path: str) -> list[str]:
        return [file.uri.partition("?")[0].partition("/in/")[2] for file in find_files(address.format(path))]

    assert found("*.jsonl") == ["a.jsonl"]
    assert found("**/*.jsonl") == ["a.jsonl", "deep/c.jsonl"]
    assert found("[ab].jsonl*") == ["a.jsonl", "b.jsonl.gz"]
    assert found("deep") == ["deep/c.jsonl"]
    with pytest.raises(NotFoundError):
        found("*.nothing")


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_inputs_on_an_object_store_load(engine: str, address: str, tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", SCHEMA)
    assert graph.load(address.format("*.jsonl*"), engine=engine).rows == {"node:City": 1, "node:Person": 2}
    assert graph.load([address.format("deep")], engine=engine).rows == {"node:Person": 1}
    tables = {"Person": address.format("tables/people.parquet"), "City": address.format("tables/*.csv")}
    assert graph.load(tables, engine=engine).rows == {"node:City": 1, "node:Person": 2}
    assert graph.snapshot().open("node:Person").count_rows() == 5
    with pytest.raises(ConstraintError, match=r"^bad\.txt: record 2 \(line 2\): not JSON"):
        graph.load(address.format("bad.txt"), engine=engine)
