"""The guides are sessions: their blocks run from the first to the last, and print what the comments beside them say."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.docs.blocks import ROOT, Block, blocks, run
from tests.docs.session import Session

import omnigraph

SESSIONS = ("branch", "changes", "client", "frames", "policy", "recovery")
CHECKED_ELSEWHERE = {"schema", "query", "change", "from-cypher"}
"""Pages with Python that the tests of the languages run."""
ON_SPARK = {"pipeline"}
"""Pages that take a graph, its files and a Spark session as given."""


def _told(block: Block) -> list[str]:
    """What the comments behind prints say, in order."""
    return re.findall(r"^ *print\(.*\)  # (.+)$", block.text, re.MULTILINE)


@pytest.mark.long
@pytest.mark.parametrize("page", SESSIONS)
def test_a_guide_is_a_session_that_prints_what_it_says(page: str, tmp_path: Path) -> None:
    if page in ("client", "policy", "recovery"):
        omnigraph.create(tmp_path / "team.omni", "node Person { name: String @key }").close()
    steps = blocks(f"docs/guide/{page}.md")
    with Session(tmp_path) as session:
        for block, printed, _ in session.follow(steps):
            if block.language == "python":
                told = [line for line in _told(block) if line in printed]
                assert told == _told(block), printed
                assert re.search(".*".join(map(re.escape, told)), printed, re.DOTALL), printed


def _prepare_for_spark(folder: Path) -> omnigraph.Graph:
    """The graph and the files that the guide to Spark speaks of."""

    def person(name: str) -> str:
        return json.dumps({"type": "Person", "data": {"name": name, "age": 40}}) + "\n"

    (folder / "people.jsonl").write_text(person("Ann") + person("Ben"), encoding="utf-8")
    for year in ("2025", "2026"):
        (folder / year).mkdir()
    (folder / "2025" / "all.jsonl").write_text(person("Cid"), encoding="utf-8")
    (folder / "2026" / "january.jsonl.gz").write_bytes(gzip.compress(person("Dan").encode()))
    (folder / "2026" / "left-out.txt").write_text("not a record", encoding="utf-8")
    parquet.write_table(pa.table({"full_name": ["Ann", "Fay"], "shoe": [39, 40]}), folder / "people.parquet")
    (folder / "knows.csv").write_text("from,to\nAnn,Fay\nFay,Ann\n", encoding="utf-8")
    (folder / "inbox").mkdir()
    (folder / "inbox" / "1.jsonl").write_text(person("Gus"), encoding="utf-8")
    schema = "node Person { name: String @key  age: I32?  rank: F64? }\nedge Knows: Person -> Person"
    return omnigraph.create(folder / "graph.omni", schema)


@pytest.mark.long
@pytest.mark.spark
def test_the_guide_to_spark_is_a_session(tmp_path: Path, spark: Any) -> None:
    """Every block runs as it stands; after it, the graph holds what the block says it put there."""
    graph = _prepare_for_spark(tmp_path)
    page = blocks("docs/guide/pipeline.md")
    people = "query q() { match { $p: Person } return { $p.name as name, $p.age as age, $p.rank as rank } }"

    def told() -> dict[str, Any]:
        return {row["name"]: (row["age"], row["rank"]) for row in graph.query(people)}

    ran = 0
    with Session(tmp_path, graph=graph, session=spark) as session:
        for block in page:
            if block.language != "python":
                continue
            # The page says it: Spark itself opens these, and its processes have started elsewhere.
            for name in ("inbox/", "inbox.checkpoint", "graph.omni"):
                block = replace(block, text=block.text.replace(f'"{name}"', repr(str(tmp_path / name))))
            session.do(block)
            ran += 1
            if "full_name" in block.text:
                assert told().keys() == {"Ann", "Ben", "Cid", "Dan", "Eve", "Fay"}
                assert told()["Eve"] == (29, None)
                assert graph.table("Knows").num_rows == 2
            elif "write_back" in block.text:
                assert all(rank is not None for _, rank in told().values())
            elif "awaitTermination" in block.text:
                assert told()["Gus"] == (40, None)
        frames = {name: session.names[name] for name in ("people", "knows", "frame")}
        assert {row["id"] for row in frames["people"].collect()} <= told().keys()
        assert frames["knows"].count() == 2
        assert frames["frame"].columns == ["name", "age"]
        for name in ("graph.jsonl", "backup", "tables"):
            with omnigraph.create(tmp_path / f"{name}.omni", graph.schema.source) as copy:
                copy.load(tmp_path / name)
                assert copy.table("Person").num_rows == len(told())
    assert ran == 7


@pytest.mark.long
@pytest.mark.spark
def test_the_commands_of_the_guide_to_spark_run(tmp_path: Path) -> None:
    _prepare_for_spark(tmp_path).close()
    commands = [block for block in blocks("docs/guide/pipeline.md") if block.language == "sh"]
    printed = "".join(run(block, tmp_path) for block in commands)
    assert "2 nodes across 1 node types, 2 edges across 1 edge types" in printed
    assert list((tmp_path / "backup").rglob("*.parquet"))


def test_every_guide_with_python_is_run() -> None:
    guides = {path.stem for path in (ROOT / "docs" / "guide").glob("*.md") if "```python" in path.read_text("utf-8")}
    assert guides <= {*SESSIONS, *CHECKED_ELSEWHERE, *ON_SPARK}
