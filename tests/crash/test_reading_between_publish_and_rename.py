"""A change of schema that died between its publish and the exchange of its files is read as it was published."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tests.crash.writes import SCHEMA, ApplySchema

from omnigraph import failpoints
from omnigraph.graph import connect
from omnigraph.testing.crash import copy_graph, crash_at_failpoint

WIDER = SCHEMA.replace("age: I32? }", 'years: I32? @rename_from("age")\n              bio: String? }')
PEOPLE = "query q() { match { $p: Person } return { $p.name as n, $p.years as y, $p.bio as b } order { $p.name } }"


def digest(root: str) -> dict[str, str]:
    files = (path for path in sorted(Path(root).rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", [failpoints.SCHEMA_AFTER_MANIFEST_COMMIT, failpoints.SCHEMA_BETWEEN_RENAMES])
def test_a_read_only_open_reads_new_data_with_the_new_schema_and_writes_nothing(
    name: str, seeded: Path, scratch: Path
) -> None:
    root = copy_graph(seeded, scratch / "graph")
    assert crash_at_failpoint(ApplySchema(WIDER), root, f"{name}=1*exit")
    assert list(Path(root).glob("*.staging")), "the files of the schema are not exchanged yet"
    before = digest(root)
    reader = connect(root, read_only=True)
    assert [(row["n"], row["y"], row["b"]) for row in reader.query(PEOPLE)] == [("ann", 30, None), ("bob", 40, None)]
    assert "bio" in reader.schema.source
    assert digest(root) == before
    assert [row["y"] for row in connect(root).query(PEOPLE)] == [30, 40]
    assert not list(Path(root).glob("*.staging"))
