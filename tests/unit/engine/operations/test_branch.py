"""Branches are created, written, read, refused and deleted."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.manifest.references import told
from omnigraph.engine.storage import layout
from omnigraph.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    CommitNotFoundError,
    ConflictError,
    InputError,
    VersionReclaimedError,
)
from omnigraph.testing.crash import check_recovered, content_of
from omnigraph.testing.faults import RecordingStore

SCHEMA = """
node Person { name: String @key
              age: I32? }
node City { name: String @key }
edge Knows: Person -> Person
"""
NAMES = "query q() { match { $p: Person } return { $p.name as name, $p.age as age } order { $p.name } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.create(tmp_path / "g.omni", schema=SCHEMA)
    insert(graph, "ann", 1)
    return graph


def insert(graph: omnigraph.Graph, name: str, age: int = 0, branch: str = "main") -> None:
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}", age: {age} }} }}', branch=branch)


def people(graph: omnigraph.Graph, branch: str = "main", at: str | int | None = None) -> dict[str, int]:
    return {row["name"]: row["age"] for row in graph.query(NAMES, branch=branch, at=at)}


def refs(graph: omnigraph.Graph) -> dict[str, list[str]]:
    store = graph.context.store
    return {key: store.table_branches(entry.path) for key, entry in graph.snapshot().entries.items()}


def test_a_branch_has_the_state_of_its_source_and_copies_nothing(graph: omnigraph.Graph) -> None:
    before = graph.snapshot()
    created = graph.branches.create("review")
    assert graph.branches.list() == ["main", "review"]
    assert (created.branch, created.head, created.version) == ("review", before.head, before.version)
    assert people(graph, "review") == {"ann": 1}
    assert set(map(tuple, refs(graph).values())) == {()}
    assert graph.snapshot().version == before.version


def test_a_write_on_a_branch_changes_no_other(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    graph.branches.create("other")
    before = content_of(graph)
    insert(graph, "bob", 2, "review")
    graph.mutate('query q() { update Person set { age: 9 } where name = "ann" }', branch="review")
    after = content_of(graph)
    assert {key for key in after if after[key] != before[key]} == {"review/node:Person"}
    assert people(graph, "review") == {"ann": 9, "bob": 2}
    insert(graph, "eve", 3)
    assert people(graph) == {"ann": 1, "eve": 3}
    assert people(graph, "review") == {"ann": 9, "bob": 2}
    assert {key for key, names in refs(graph).items() if names} == {"node:Person"}
    check_recovered(graph.uri, (content_of(graph),))


def test_a_branch_of_a_branch_starts_from_it(graph: omnigraph.Graph) -> None:
    graph.branches.create("a")
    insert(graph, "bob", 2, "a")
    graph.branches.create("b", from_="a")
    insert(graph, "cid", 3, "b")
    insert(graph, "dan", 4, "a")
    assert people(graph, "a") == {"ann": 1, "bob": 2, "dan": 4}
    assert people(graph, "b") == {"ann": 1, "bob": 2, "cid": 3}
    assert people(graph) == {"ann": 1}
    with pytest.raises(ConflictError, match="'b' was created from it"):
        graph.branches.delete("a")
    graph.branches.delete("b")
    graph.branches.delete("a")
    assert graph.branches.list() == ["main"]
    assert set(map(tuple, refs(graph).values())) == {()}


def test_a_branch_that_another_reads_stays(graph: omnigraph.Graph) -> None:
    graph.branches.create("a")
    insert(graph, "bob", 2, "a")
    graph.branches.create("b", from_="a")
    assert graph.snapshot("b").entry("node:Person").branch == "a"
    with pytest.raises(ConflictError):
        graph.branches.delete("a")
    assert people(graph, "b") == {"ann": 1, "bob": 2}


def test_history_export_and_the_past_work_on_a_branch(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    insert(graph, "bob", 2, "review")
    then = graph.snapshot("review")
    insert(graph, "cid", 3, "review")
    commits = graph.history.list("review")
    assert [commit.manifest_branch for commit in commits] == ["review", "review", None, None]
    assert commits[1].graph_commit_id == then.head
    assert people(graph, "review", at=then.head) == {"ann": 1, "bob": 2}
    assert people(graph, "review", at=then.version) == {"ann": 1, "bob": 2}
    assert people(graph, at=then.id) == {"ann": 1, "bob": 2}
    assert len(list(graph.export(branch="review"))) == 3
    assert len(list(graph.export())) == 1


def test_a_load_goes_to_its_branch(graph: omnigraph.Graph, tmp_path: Path) -> None:
    graph.branches.create("etl/run-1")
    (tmp_path / "rows.jsonl").write_text('{"type": "Person", "data": {"name": "zoe", "age": 5}}\n')
    graph.load(tmp_path / "rows.jsonl", mode="overwrite", branch="etl/run-1")
    assert people(graph, "etl/run-1") == {"zoe": 5}
    assert people(graph) == {"ann": 1}


def test_a_branch_created_anew_starts_from_its_source(graph: omnigraph.Graph) -> None:
    reader = omnigraph.connect(graph.uri, read_only=True)
    for age in (2, 3, 4):
        graph.branches.create("review")
        insert(graph, "bob", age, "review")
        assert people(reader, "review") == {"ann": 1, "bob": age}
        assert people(graph, "review") == {"ann": 1, "bob": age}
        graph.branches.delete("review")
    with pytest.raises(BranchNotFoundError):
        people(reader, "review")


def test_a_commit_of_a_deleted_branch_is_not_taken_for_another(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    insert(graph, "bob", 2, "review")
    graph.context.manifest.history.project("review")
    lost = graph.snapshot("review").head
    graph.branches.delete("review")
    message = f"commit {lost} was made on a branch 'review' that has been deleted, and its state went with it"
    with pytest.raises(CommitNotFoundError, match=message):
        people(graph, at=lost)
    graph.branches.create("review")
    insert(graph, "eve", 3, "review")
    with pytest.raises(CommitNotFoundError, match=message):
        people(graph, at=lost)


def test_a_commit_that_a_merge_brought_from_a_deleted_branch_is_told_to_be_gone(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    insert(graph, "bob", 2, "review")
    brought = graph.snapshot("review").head
    insert(graph, "cy", 3)
    graph.branches.merge("review", delete_branch=True)
    assert brought in [commit.graph_commit_id for commit in graph.history.list()]
    for asked in (lambda: people(graph, at=brought), lambda: graph.revert(brought)):
        with pytest.raises(CommitNotFoundError, match=r"'review' that has been deleted.*name the commit"):
            asked()


def test_rows_of_a_deleted_branch_do_not_come_back(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    insert(graph, "bob", 2, "review")
    # As a deletion leaves it that died right after the branch was gone.
    graph.context.store.residual.delete_branch(layout.MANIFEST, "review")
    graph.branches.create("review")
    assert people(graph, "review") == {"ann": 1}
    insert(graph, "eve", 3, "review")
    assert people(graph, "review") == {"ann": 1, "eve": 3}


def test_a_ref_within_the_folder_of_a_new_branch_makes_way(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    insert(graph, "bob", 2, "review")
    graph.context.store.residual.delete_branch(layout.MANIFEST, "review")
    graph.branches.create("review/x")
    insert(graph, "eve", 3, "review/x")
    assert refs(graph)["node:Person"] == ["review/x"]
    assert people(graph, "review/x") == {"ann": 1, "eve": 3}


@pytest.mark.parametrize("left", ["_versions", "data"])
def test_what_a_cut_creation_left_does_not_block_the_name(graph: omnigraph.Graph, left: str) -> None:
    root = Path(graph.uri)
    graph.branches.create("review")
    (root / layout.MANIFEST / "_refs" / "branches" / "review.json").unlink()
    for folder in (root / layout.MANIFEST / "tree" / "review").iterdir():
        if folder.name != left:
            shutil.rmtree(folder)
    assert graph.branches.list() == ["main"]
    graph.branches.create("review")
    assert people(graph, "review") == {"ann": 1}


def test_names_are_refused_that_cannot_be(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    for name in ("review", "main"):
        with pytest.raises(AlreadyExistsError):
            graph.branches.create(name)
    for name in ("", "a//b", "a..b", "a.lock", "__schema_apply_lock__", "a b"):
        with pytest.raises(InputError):
            graph.branches.create(name)
    for name in ("review/x", "main/x"):
        with pytest.raises(ConflictError, match="part of another"):
            graph.branches.create(name)
    with pytest.raises(BranchNotFoundError):
        graph.branches.create("b", from_="nope")
    with pytest.raises(BranchNotFoundError):
        graph.branches.delete("nope")
    with pytest.raises(InputError, match="main"):
        graph.branches.delete("main")
    assert graph.branches.list() == ["main", "review"]


def test_a_read_only_graph_changes_no_branch(graph: omnigraph.Graph) -> None:
    reader = omnigraph.connect(graph.uri, read_only=True)
    with pytest.raises(InputError, match="read-only"):
        reader.branches.create("review")
    with pytest.raises(InputError, match="read-only"):
        reader.branches.delete("review")
    assert reader.branches.list() == ["main"]


def test_cleanup_keeps_what_a_branch_reads(graph: omnigraph.Graph) -> None:
    graph.branches.create("lazy")
    for age in range(5):
        insert(graph, "bob", age)
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep=1)
    assert people(graph, "lazy") == {"ann": 1}
    insert(graph, "eve", 3, "lazy")
    assert people(graph, "lazy") == {"ann": 1, "eve": 3}
    assert people(graph) == {"ann": 1, "bob": 4}


def test_a_branch_begins_at_a_commit_a_tag_or_a_time(graph: omnigraph.Graph) -> None:
    count = "query q() { match { $p: Person } return { count($p) as n } }"
    add = "query q($n: String) { insert Person { name: $n } }"
    already = graph.query(count).to_pylist()[0]["n"]
    for number in range(4):
        graph.mutate(add, {"n": f"at{number}"})
    commits = graph.history.list(limit=4)
    graph.tags.create("second", at=commits[2].graph_commit_id)
    graph.branches.create("by-id", at=commits[1].graph_commit_id)
    graph.branches.create("by-tag", at="second")
    graph.branches.create("by-time", at=told(commits[3].created_at))
    counted = [graph.query(count, branch=name).to_pylist()[0]["n"] - already for name in ("by-id", "by-tag", "by-time")]
    assert counted == [3, 2, 1]

    # It goes its own way from there, counts its distance, and comes back by a merge.
    graph.mutate(add, {"n": "apart"}, branch="by-tag")
    info = graph.branches.show("by-tag")
    assert (info.ahead, info.behind, info.created_from) == (1, 2, "main")
    assert info.head == graph.history.list("by-tag", limit=1)[0]
    merged = graph.branches.merge("by-tag")
    assert merged.outcome == "merged"
    assert graph.branches.show("by-tag").ahead == 0
    assert graph.query(count).to_pylist()[0]["n"] - already == 5
    assert graph.branches.show("main").ahead == 0

    # A branch in the past keeps its state from cleanup, which it is not there to be kept from otherwise.
    graph.maintenance.optimize()
    assert not graph.maintenance.cleanup(keep=1).failed
    assert graph.query(count, branch="by-time").to_pylist()[0]["n"] - already == 1
    assert graph.maintenance.verify().clean


@pytest.mark.parametrize("dropped", ["nick: String?", "node Pet { name: String @key }"])
def test_a_branch_does_not_begin_before_something_was_dropped_and_added_again(
    graph: omnigraph.Graph, dropped: str
) -> None:
    """The schema is the same one again, but what has the old name is something else."""
    without = graph.schema.source
    having = f"{without}\n{dropped}"
    if not dropped.startswith("node"):
        having = without.replace("node Person {", f"node Person {{ {dropped}")
    graph.schema.apply(having)
    insert(graph, "bob")
    early = graph.history.list(limit=1)[0].graph_commit_id
    graph.schema.apply(without, confirm_drops=True)
    graph.schema.apply(having)
    with pytest.raises(ConflictError, match="schema has been changed"):
        graph.branches.create("late", at=early)
    graph.branches.create("now", at=graph.history.list(limit=1)[0].graph_commit_id)


def test_a_branch_does_not_begin_where_it_could_not_be_written(graph: omnigraph.Graph) -> None:
    add = "query q($n: String) { insert Person { name: $n } }"
    graph.mutate(add, {"n": "early"})
    early = graph.history.list(limit=1)[0].graph_commit_id
    graph.schema.apply(graph.schema.source.replace("node Person {", "node Person { nick: String?"))
    with pytest.raises(ConflictError, match="schema has been changed"):
        graph.branches.create("late", at=early)
    graph.mutate(add, {"n": "later"})
    later = graph.history.list(limit=1)[0].graph_commit_id
    for number in range(3):
        graph.mutate(add, {"n": f"more{number}"})
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep=1)
    with pytest.raises(VersionReclaimedError):
        graph.branches.create("late", at=later)
    with pytest.raises(CommitNotFoundError):
        graph.branches.create("late", at="no-such-tag")
    with pytest.raises(BranchNotFoundError):
        graph.branches.show("late")
    assert graph.branches.list() == ["main"]


def test_deleting_a_branch_looks_at_each_other_one_once_and_opens_none_that_is_known(graph: omnigraph.Graph) -> None:
    def steps_of_a_deletion(name: str) -> Counter[str]:
        graph.branches.create(name)
        insert(graph, name, branch=name)
        with RecordingStore() as store:
            graph.branches.delete(name)
        return Counter(store.names())

    few = steps_of_a_deletion("one")
    for number in range(30):
        graph.branches.create(f"agents/a{number}")
        insert(graph, f"a{number}", branch=f"agents/a{number}")
    more = steps_of_a_deletion("two") - few
    assert more["probe_head"] <= 32
    assert more["open"] <= 1  # of the table of commits
    assert more.total() <= 34


def test_deleting_a_branch_on_which_nothing_was_written_asks_no_other(graph: omnigraph.Graph) -> None:
    for number in range(10):
        graph.branches.create(f"agents/a{number}")
        insert(graph, f"a{number}", branch=f"agents/a{number}")
    graph.branches.create("idle")
    with RecordingStore() as store:
        graph.branches.delete("idle")
    assert Counter(store.names())["probe_head"] < 10


def test_a_deletion_that_stood_still_leaves_alone_what_was_written_and_merged_meanwhile(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("work")
    insert(graph, "bob", branch="work")
    insert(graph, "cid")
    history = graph.context.manifest.history
    project = history.project

    def overtaken(branch: str = "main") -> None:
        project(branch)
        graph.context.store.objects.delete(f"{layout.RECOVERY_DIR}/branch-work.lock")
        other = omnigraph.connect(graph.uri)
        insert(other, "dan", branch="work")
        other.branches.merge("work")

    monkeypatch.setattr(history, "project", overtaken)
    with pytest.raises(ConflictError, match="stood still"):
        graph.branches.delete("work")
    assert people(graph, "work") == {"ann": 1, "bob": 0, "dan": 0}
    assert len(graph.history.list()) == 6


@pytest.mark.parametrize("is_used", [True, False])
def test_a_creation_that_stood_still_leaves_alone_what_was_written_meanwhile(
    graph: omnigraph.Graph, is_used: bool
) -> None:
    def overtaken(name: str) -> None:
        if name == failpoints.BRANCH_CREATE_AFTER_MANIFEST:
            graph.context.store.objects.delete(f"{layout.RECOVERY_DIR}/branch-review.lock")
            if is_used:
                insert(omnigraph.connect(graph.uri), "bob", 2, "review")

    previous = failpoints.install(overtaken)
    try:
        with pytest.raises(ConflictError, match="stood still"):
            graph.branches.create("review")
    finally:
        failpoints.install(previous)
    assert graph.branches.list() == (["main", "review"] if is_used else ["main"])
    if is_used:
        assert people(graph, "review") == {"ann": 1, "bob": 2}


def test_a_misspelt_branch_or_tag_is_answered_with_the_one_that_was_meant(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    graph.tags.create("loaded")
    for call in (lambda: graph.snapshot("reveiw"), lambda: graph.branches.delete("reveiw")):
        with pytest.raises(BranchNotFoundError, match="did you mean 'review'"):
            call()
    with pytest.raises(CommitNotFoundError, match="did you mean 'loaded'"):
        graph.snapshot(at="lodaed")
