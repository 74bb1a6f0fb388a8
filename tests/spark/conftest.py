"""Small graphs to load into."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import create
from omnigraph.graph import Graph

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


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", SCHEMA)
