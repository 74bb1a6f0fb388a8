"""States that cannot be read any more are removed with the versions they name; every other state stays."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph.engine.operations import forget
from omnigraph.engine.operations.cleanup import CleanupReport
from omnigraph.engine.operations.verify import verify
from omnigraph.engine.storage import layout, steps
from omnigraph.errors import VersionReclaimedError
from omnigraph.graph import Graph, connect, create

SCHEMA = "node Person { name: String @key }\nnode City { name: String @key }"
NAMES = "query q() { match { $p: Person } return { $p.name as name } order { $p.name } }"


def add(graph: Graph, name: str, branch: str = "main", kind: str = "Person") -> None:
    graph.mutate(f'query q() {{ insert {kind} {{ name: "{name}" }} }}', branch=branch)


def people(graph: Graph, branch: str = "main", at: str | None = None) -> list[str]:
    return [row["name"] for row in graph.query(NAMES, branch=branch, at=at)]


def manifests(graph: Graph) -> list[int]:
    return sorted(graph.context.store.version_times(layout.MANIFEST))


def clean(graph: Graph, keep: int) -> CleanupReport:
    report = graph.maintenance.cleanup(keep=keep)
    assert not report.failed, report
    return report


class BeforeTheRef:
    """Stops the creation of a branch right before it is there."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def before(self, name: str, target: str) -> None:
        if (name, target) == ("create_branch", layout.MANIFEST):
            self.reached.set()
            assert self.go_on.wait(30)

    def after(self, name: str, target: str) -> None:
        """Nothing happens after an operation."""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = create(tmp_path / "graph", SCHEMA)
    for number in range(12):
        add(graph, f"p{number:02d}")
    return graph


@pytest.fixture
def _nothing_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forget, "YOUNG", timedelta(0))


@pytest.mark.usefixtures("_nothing_is_young")
def test_exactly_the_states_go_that_cannot_be_read(graph: Graph) -> None:
    add(graph, "rome", kind="City")
    commits = [commit.graph_commit_id for commit in graph.context.manifest.history.list()]
    before = manifests(graph)
    report = clean(graph, keep=5)
    assert report.manifest.old_versions_removed == len(before) - len(manifests(graph)) > 0
    assert report.manifest.bytes_removed > 0
    reader = connect(graph.uri)
    assert [commit.graph_commit_id for commit in reader.context.manifest.history.list()] == commits
    readable = 0
    for age, commit in enumerate(commits):
        if age <= 5:  # The newest five versions of Person, and the commit of a city on top.
            assert len(people(reader, at=commit)) == 12 - max(0, age - 1)
            readable += 1
        else:
            with pytest.raises(VersionReclaimedError, match="of the graph has been removed by cleanup"):
                people(reader, at=commit)
    assert readable == len(manifests(graph))
    add(reader, "zoe")
    assert len(people(connect(graph.uri))) == 13
    assert verify(graph.context).clean
    assert clean(graph, keep=100).manifest.old_versions_removed == 0


def test_a_young_state_stays_whatever_became_of_its_tables(graph: Graph) -> None:
    before = manifests(graph)
    assert clean(graph, keep=1).manifest.old_versions_removed == 0
    assert manifests(graph) == before


@pytest.mark.usefixtures("_nothing_is_young")
def test_a_branch_reads_and_writes_on_after_the_state_it_began_at_is_long_gone(graph: Graph) -> None:
    graph.branches.create("review")
    began = graph.snapshot("review").version
    add(graph, "mine", "review")
    add(graph, "mine", "review", kind="City")
    for number in range(6):
        add(graph, f"q{number}")
        add(graph, f"q{number}", kind="City")
    clean(graph, keep=1)
    assert manifests(graph)[0] == began
    branch = connect(graph.uri)
    assert people(branch, "review") == ["mine", *(f"p{number:02d}" for number in range(12))]
    add(branch, "more", "review")
    assert len(people(graph, "review")) == 14
    graph.branches.create("second", from_="review")
    assert people(connect(graph.uri), "second") == people(graph, "review")


@pytest.mark.usefixtures("_nothing_is_young")
def test_a_branch_that_has_written_nothing_keeps_the_states_since_it_began(graph: Graph) -> None:
    graph.branches.create("review")
    began = graph.snapshot("review").version
    for number in range(4):
        add(graph, f"q{number}")
    clean(graph, keep=1)
    assert manifests(graph)[0] == began
    assert len(people(connect(graph.uri), "review")) == 12


@pytest.mark.usefixtures("_nothing_is_young")
def test_a_tagged_state_stays_readable(graph: Graph) -> None:
    tagged = graph.context.manifest.history.list()[8]
    graph.context.store.open(layout.MANIFEST).dataset.tags.create("release", tagged.manifest_version)
    clean(graph, keep=1)
    assert tagged.manifest_version in manifests(graph)
    assert len(people(connect(graph.uri), at=tagged.graph_commit_id)) == 4


@pytest.mark.usefixtures("_nothing_is_young")
def test_a_branch_that_is_being_created_is_waited_for(graph: Graph) -> None:
    """Its ref is not there when the branches are read, and main has gone on since it began."""
    pause = BeforeTheRef()
    previous = steps.observe(pause)
    try:
        creation = threading.Thread(target=graph.branches.create, args=("review",))
        creation.start()
        assert pause.reached.wait(30)
        other = connect(graph.uri)
        for number in range(4):
            add(other, f"q{number}")
        cleaning = threading.Thread(target=clean, args=(other, 1))
        cleaning.start()
        cleaning.join(0.3)
        assert cleaning.is_alive(), "cleanup did not wait"
        pause.go_on.set()
        creation.join()
        cleaning.join()
    finally:
        steps.observe(previous)
    assert len(people(connect(graph.uri), "review")) == 12
