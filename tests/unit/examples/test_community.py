"""The generated community."""

import hashlib
import json
from pathlib import Path

import pytest

from omnigraph.catalog.resolve import compile_schema
from omnigraph.examples import community
from omnigraph.plan.lint import lint


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, object]]]:
    written = community.write_files(tmp_path_factory.mktemp("data"), size=community.SMALL)
    return {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in written}


def test_the_full_size_is_a_hundred_thousand_nodes_and_half_a_million_edges() -> None:
    assert community.Size().nodes == 100_000
    assert community.Size().edges == 500_000


def test_the_small_size_has_as_many_lines_as_it_says(files: dict[str, list[dict[str, object]]]) -> None:
    assert sum(len(lines) for lines in files.values()) == community.SMALL.nodes + community.SMALL.edges


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    def digest(folder: str, seed: int) -> str:
        written = community.write_files(tmp_path / folder, size=community.SMALL, seed=seed)
        return hashlib.sha256(b"".join(path.read_bytes() for path in written)).hexdigest()

    assert digest("a", 7) == digest("b", 7) != digest("c", 8)


def test_every_edge_joins_existing_nodes_once(files: dict[str, list[dict[str, object]]]) -> None:
    people = {line["data"]["handle"] for line in files["person"]}  # type: ignore[index]
    projects = {line["data"]["slug"] for line in files["project"]}  # type: ignore[index]
    topics = {line["data"]["name"] for line in files["topic"]}  # type: ignore[index]
    assert (len(people), len(projects), len(topics)) == (700, 299, 10)
    ends = {
        "follows": (people, people),
        "maintains": (people, projects),
        "depends_on": (projects, projects),
        "about": (projects, topics),
    }
    for name, (sources, targets) in ends.items():
        pairs = [(line["from"], line["to"]) for line in files[name]]
        assert len(set(pairs)) == len(pairs)
        assert {source for source, _ in pairs} <= sources
        assert {target for _, target in pairs} <= targets


def test_the_queries_of_the_story_fit_its_schema() -> None:
    report = lint(
        compile_schema(community.schema()),
        community.queries(),
        query_path="community.gq",
        schema_source={"kind": "file", "path": "community.pg"},
    )
    assert report.is_ok, report.to_json()
    assert len(report.results) == 12
