"""A branch is deleted while others create, delete and read branches: nothing but that branch goes, and it does go."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crash.writes import Mutation

from omnigraph import failpoints
from omnigraph.engine.coordination.intent import Effect, WriterKind, new_intent
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.operations.verify import verify
from omnigraph.engine.storage import layout, steps
from omnigraph.engine.storage.lance_internals import files
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import BranchNotFoundError, CommitNotFoundError, StorageError, VersionReclaimedError
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import TableKey
from omnigraph.testing.crash import check_recovered, content_of, crash_at_failpoint
from omnigraph.testing.failpoints import configured

SCHEMA = "node Person { name: String @key }"
PERSON = TableKey("node:Person")


def add(graph: Graph, name: str, branch: str = "main") -> None:
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}', branch=branch)


def people(graph: Graph, branch: str) -> list[str]:
    rows = graph.query("query q() { match { $p: Person } return { $p.name as name } order { $p.name } }", branch=branch)
    return [row["name"] for row in rows]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = create(tmp_path / "graph", SCHEMA)
    add(graph, "ann")
    return graph


class At:
    """Does something once, after the first storage operation that fits."""

    def __init__(self, name: str, target: str, do: Callable[[], None]) -> None:
        self._wanted, self._do = (name, target), do
        self.done = False

    def before(self, name: str, target: str) -> None:
        """Nothing happens before an operation."""

    def after(self, name: str, target: str) -> None:
        if (name, target) == self._wanted and not self.done:
            self.done = True
            previous = steps.observe(None)
            self._do()
            steps.observe(previous)


@contextmanager
def doing(at: At) -> Iterator[None]:
    previous = steps.observe(at)
    try:
        yield
    finally:
        steps.observe(previous)
    assert at.done, "the operation was never met"


def cut_deletion(graph: Graph, branch: str, path: str, *, keep: str) -> None:
    """Leave what a process leaves that dies while it removes the files of a branch, `keep` the last of them."""
    place = Path(graph.uri) / path / "tree" / branch
    (Path(graph.uri) / files.branch_ref(path, branch)).unlink()
    for folder in place.iterdir():
        if folder.name != keep:
            shutil.rmtree(folder)


# --- others at work --------------------------------------------------------------------------------------------------


def test_a_branch_goes_although_other_refs_come_and_go(graph: Graph) -> None:
    store = graph.context.store
    version = graph.snapshot().version
    stop = threading.Event()

    def come_and_go() -> None:
        other = TableStore(graph.uri)
        while not stop.is_set():
            other.residual.create_branch(layout.MANIFEST, "other", source=None, version=version)
            other.residual.delete_branch(layout.MANIFEST, "other")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(60):
            store.residual.create_branch(layout.MANIFEST, "review", source=None, version=version)
            store.residual.delete_branch(layout.MANIFEST, "review")
            assert store.branch_mark(layout.MANIFEST, "review") is None, "the deletion said it was done"
    finally:
        stop.set()
        thread.join()


def test_a_deletion_leaves_a_branch_alone_that_is_just_being_created_beside_it(graph: Graph) -> None:
    store = graph.context.store
    path = graph.snapshot().entry(PERSON).path
    version = graph.snapshot().entry(PERSON).version
    for name in ("agents/ann", "agents/bob"):
        store.residual.create_branch(path, name, source=None, version=version)
    # Lance writes the files of a branch before its ref.
    (Path(graph.uri) / files.branch_ref(path, "agents/bob")).unlink()
    store.residual.delete_branch(path, "agents/ann")
    assert store.branch_folders(path) == ["agents/bob"]


def test_a_branch_that_another_was_created_from_stays(graph: Graph) -> None:
    store = graph.context.store
    version = graph.snapshot().version
    store.residual.create_branch(layout.MANIFEST, "review", source=None, version=version)
    store.residual.create_branch(layout.MANIFEST, "child", source="review", version=version)
    with pytest.raises(StorageError, match="child was created from it") as caught:
        store.residual.delete_branch(layout.MANIFEST, "review")
    assert caught.value.kind == "precondition"
    assert graph.branches.list() == ["main", "child", "review"]
    assert people(graph, "review") == people(graph, "child") == ["ann"]


def test_a_branch_that_a_tag_names_stays(graph: Graph) -> None:
    store = graph.context.store
    store.residual.create_branch(layout.MANIFEST, "review", source=None, version=graph.snapshot().version)
    store.open(layout.MANIFEST).dataset.tags.create("release", ("review", None))
    assert store.tags(layout.MANIFEST) == {}
    with pytest.raises(StorageError, match="the tag release names it"):
        graph.branches.delete("review")
    assert people(graph, "review") == ["ann"]


def test_dead_first_writers_are_settled_without_touching_a_fork_published_meanwhile(graph: Graph) -> None:
    """The recoverer has looked at the branch before the living writer published, and at the intents after that."""
    graph.branches.create("review")
    context = connect(graph.uri).context
    entry = graph.snapshot("review").entry(PERSON)
    dead = new_intent(
        WriterKind.MUTATION, "review", (Effect.on(PERSON, entry.path, entry.version, branch="review", fork=True),)
    )
    with configured(f"{failpoints.MUTATION_POST_FINALIZE}=pause") as plan:
        writer = threading.Thread(target=add, args=(graph, "bob", "review"))
        writer.start()
        assert plan.wait_until_reached(failpoints.MUTATION_POST_FINALIZE)
        context.recovery.intents.abandon(context.recovery.intents.arm(dead).operation_id)

        def publish() -> None:
            plan.release(failpoints.MUTATION_POST_FINALIZE)
            writer.join()

        # The branch is read for the decision when the refs of its table are listed.
        with doing(At("list_branches", entry.path, publish)):
            graph.refresh()
    assert people(graph, "review") == ["ann", "bob"]
    assert people(connect(graph.uri), "review") == ["ann", "bob"]
    assert verify(graph.context).clean


# --- deletions that were cut short ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["_versions", "data"])
def test_a_branch_without_a_ref_is_not_there(graph: Graph, keep: str) -> None:
    graph.branches.create("review")
    add(graph, "bob", "review")
    head = graph.snapshot("review")
    cut_deletion(graph, "review", layout.MANIFEST, keep=keep)
    for handle in (graph, connect(graph.uri)):
        assert handle.branches.list() == ["main"]
        with pytest.raises(BranchNotFoundError):
            people(handle, "review")
        with pytest.raises(BranchNotFoundError):
            add(handle, "eve", "review")
        with pytest.raises(CommitNotFoundError):
            handle.snapshot(at=head.id)
        with pytest.raises(StorageError, match="no branch review"):
            handle.context.store.open(layout.MANIFEST, branch="review")
    graph.branches.create("review")
    add(graph, "eve", "review")
    assert people(graph, "review") == ["ann", "eve"]
    check_recovered(graph.uri, (content_of(graph),))


def test_a_first_write_that_dies_beside_what_an_earlier_branch_left_is_settled(graph: Graph) -> None:
    graph.branches.create("review")
    add(graph, "bob", "review")
    with configured(f"{failpoints.BRANCH_DELETE_BEFORE_TABLES}=return"):
        graph.branches.delete("review")
    for name in ("cid", "dan", "eve"):
        add(graph, name)
    graph.branches.create("review")
    before = content_of(graph)
    write = Mutation('insert Person { name: "fay" }', branch="review")
    assert crash_at_failpoint(write, graph.uri, f"{failpoints.MUTATION_PRE_FORK}=1*exit")
    check_recovered(graph.uri, (before,))
    add(graph, "gus", "review")
    assert people(graph, "review") == ["ann", "cid", "dan", "eve", "gus"]


@pytest.mark.parametrize("dies", [False, True])
def test_a_first_write_takes_away_what_branches_of_an_earlier_branch_left(graph: Graph, dies: bool) -> None:
    for name, source in (("review", "main"), ("child", "review"), ("grandchild", "child")):
        graph.branches.create(name, from_=source)
        add(graph, name, name)
    with configured(f"{failpoints.BRANCH_DELETE_BEFORE_TABLES}=return"):
        for name in ("grandchild", "child", "review"):
            graph.branches.delete(name)
    path = graph.snapshot().entry(PERSON).path
    assert graph.context.store.table_branches(path) == ["child", "grandchild", "review"]
    graph.branches.create("review")
    if dies:
        write = Mutation('insert Person { name: "fay" }', branch="review")
        assert crash_at_failpoint(write, graph.uri, f"{failpoints.MUTATION_PRE_FORK}=1*exit")
        check_recovered(graph.uri, (content_of(graph),))
    add(graph, "bob", "review")
    assert graph.context.store.table_branches(path) == ["review"]
    assert people(connect(graph.uri), "review") == ["ann", "bob"]


def test_cleanup_removes_what_cut_deletions_left(graph: Graph) -> None:
    path = graph.snapshot().entry(PERSON).path
    for name in ("agents/ann", "agents/bob"):
        graph.branches.create(name)
        add(graph, "bob", name)
    cut_deletion(graph, "agents/ann", layout.MANIFEST, keep="_versions")
    cut_deletion(graph, "agents/ann", path, keep="_versions")
    store = graph.context.store
    assert store.branch_folders(layout.MANIFEST) == store.branch_folders(path) == ["agents/ann", "agents/bob"]
    graph.maintenance.cleanup(keep=100)
    assert store.branch_folders(layout.MANIFEST) == store.branch_folders(path) == ["agents/bob"]
    assert people(graph, "agents/bob") == ["ann", "bob"]


def test_a_branch_whose_name_is_that_of_a_tables_folder_is_no_leftover(graph: Graph) -> None:
    path = graph.snapshot().entry(PERSON).path
    for name in ("a/_versions", "b/data"):
        graph.branches.create(name)
        add(graph, "bob", name)
    graph.maintenance.cleanup(keep=100)
    assert graph.context.store.table_branches(path) == ["a/_versions", "b/data"]
    for name in ("a/_versions", "b/data"):
        assert people(connect(graph.uri), name) == ["ann", "bob"]


# --- read and written while they are deleted -------------------------------------------------------------------------


def test_a_reader_whose_branch_is_deleted_under_it_is_told_so(graph: Graph) -> None:
    graph.branches.create("review")
    add(graph, "bob", "review")
    # Another process: it shares neither handles nor caches with the graph.
    table = Manifest(TableStore(graph.uri)).snapshot("review").open(PERSON)
    graph.branches.delete("review")
    for _ in range(2):
        with pytest.raises(VersionReclaimedError, match="of 'node:Person' has been removed, by cleanup or with its"):
            table.scan()
        # Likewise when another branch of that name has a version of that number.
        if "review" not in graph.branches.list():
            graph.branches.create("review")
            add(graph, "eve", "review")


def test_lost_files_of_a_published_version_are_no_cleanup(graph: Graph) -> None:
    handle = TableStore(graph.uri).open(graph.snapshot().entry(PERSON).path)
    for file in Path(handle.uri, "data").iterdir():
        file.unlink()
    with pytest.raises(StorageError, match="Not found") as caught:
        handle.scan()
    assert caught.value.kind == "not_found"


def test_a_write_whose_branch_is_made_anew_under_it_begins_again(graph: Graph) -> None:
    graph.branches.create("review")
    add(graph, "bob", "review")

    def make_anew() -> None:
        graph.branches.delete("review")
        graph.branches.create("review")

    writer = connect(graph.uri)
    TableStore.at(graph.uri).forget()
    with doing(At("open", graph.snapshot().entry(PERSON).path, make_anew)):
        add(writer, "cid", "review")
    assert people(graph, "review") == ["ann", "cid"]


def test_a_branch_that_is_deleted_while_it_is_read_is_not_there(graph: Graph) -> None:
    graph.branches.create("review")
    add(graph, "bob", "review")
    reader = connect(graph.uri).context.manifest
    reader.forget()
    deletion = At("open", layout.MANIFEST, lambda: graph.branches.delete("review"))
    with doing(deletion), pytest.raises(BranchNotFoundError):
        reader.snapshot("review")


def test_a_branch_that_is_made_anew_while_it_is_read_is_the_new_one(graph: Graph) -> None:
    graph.branches.create("review")
    add(graph, "bob", "review")
    reader = connect(graph.uri).context.manifest
    reader.forget()

    def make_anew() -> None:
        graph.branches.delete("review")
        graph.branches.create("review")

    with doing(At("open", layout.MANIFEST, make_anew)):
        seen = reader.snapshot("review")
    assert seen.head == graph.snapshot().head


def test_those_who_go_through_all_branches_pass_one_that_is_deleted_meanwhile(graph: Graph) -> None:
    for name in ("keep", "review"):
        graph.branches.create(name)
        add(graph, "bob", name)
    head = graph.snapshot("keep").head
    assert head is not None
    manifest = connect(graph.uri).context.manifest
    with doing(At("list_branches", layout.MANIFEST, lambda: graph.branches.delete("review"))):
        assert [snapshot.branch for snapshot in manifest.snapshots()] == ["main", "keep"]
    graph.branches.create("review")
    with doing(At("list_branches", layout.MANIFEST, lambda: graph.branches.delete("review"))):
        assert manifest.history.find(head).graph_commit_id == head
