"""One Spark session per test process, and small graphs to load into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph import Graph, create
from omnigraph.pipeline.session import obtain_session

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
    mood: enum(calm, glad)?
    born: Date?
    seen: DateTime?
    score: F64?
    tags: [String]?
    vec: Vector(2)?
    @range(age, 0..150)
}
node Note { text: String }
node City { code: I64 @key  size: U64? }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City @card(0..1) { }
"""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    # Tiny inputs: planning and compiling would cost more than running, and both ways give the same rows.
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    session = obtain_session(master="local[2]", conf=settings)
    yield session
    session.stop()


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", SCHEMA)
