"""A branch of the manifest continues the history it was created from and shares nothing else."""

import itertools
import shutil
from pathlib import Path

import pytest
from tests.unit.engine.manifest.publishers import PERSON, commit_table_ids, lineage, manifest_at

from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.manifest.publish import COMMIT_WINDOW, Manifest
from omnigraph.engine.storage import layout
from omnigraph.errors import BranchNotFoundError
from omnigraph.graph import connect
from omnigraph.ids import CommitId, new_ulid, now_micros


def _publish(manifest: Manifest, branch: str, times: int) -> None:
    for _ in range(times):
        manifest.publish(branch, [], lineage=lineage())


def _branch(manifest: Manifest, name: str) -> None:
    manifest.store.residual.create_branch(layout.MANIFEST, name, source=None, version=manifest.snapshot().version)


def _drop(manifest: Manifest, name: str) -> None:
    manifest.store.residual.delete_branch(layout.MANIFEST, name)


def _chain(manifest: Manifest, branch: str) -> list[str]:
    commits = manifest.history.list(branch)
    for child, parent in itertools.pairwise(commits):
        assert child.parent_commit_id == parent.graph_commit_id
    return [commit.graph_commit_id for commit in commits]


def test_a_branch_starts_at_the_commit_it_was_created_at_and_goes_its_own_way(root: Path, manifest: Manifest) -> None:
    _publish(manifest, "main", 3)
    before = manifest.snapshot()
    _branch(manifest, "review")
    assert manifest.branches() == ["main", "review"]
    assert manifest.snapshot("review").head == before.head
    change = UpdateTable(PERSON, 2, "review", 1)
    on_branch = manifest.publish("review", [change], lineage=lineage(), expected={PERSON: 1})
    _publish(manifest, "main", 2)
    assert manifest.snapshot().entry(PERSON).version == 1
    assert manifest_at(root).snapshot("review").state == on_branch.state
    assert (on_branch.entry(PERSON).version, on_branch.entry(PERSON).branch) == (2, "review")
    assert on_branch.head is not None
    assert manifest.history.find(on_branch.head).manifest_branch == "review"
    assert manifest.history.find(on_branch.head).parent_commit_id == before.head
    assert len(_chain(manifest, "review")) == 5
    assert len(_chain(manifest, "main")) == 6
    assert manifest.history.snapshot_at(on_branch.head).state == on_branch.state


def test_windows_of_two_branches_move_without_loss_or_doubles(root: Path, manifest: Manifest) -> None:
    _publish(manifest, "main", 40)
    _branch(manifest, "review")
    for _ in range(2):
        _publish(manifest, "main", COMMIT_WINDOW // 2)
        _publish(manifest, "review", COMMIT_WINDOW // 2)
    archived = commit_table_ids(manifest)
    assert len(archived) == len(set(archived))
    chains = {branch: _chain(manifest, branch) for branch in ("main", "review")}
    assert [len(chain) for chain in chains.values()] == [41 + COMMIT_WINDOW, 41 + COMMIT_WINDOW]
    assert set(chains["main"]) & set(chains["review"]) == set(chains["main"][-41:])
    for path in (layout.GRAPH_COMMITS, layout.COMMIT_ACTORS):
        shutil.rmtree(root / path)
    fresh = manifest_at(root)
    assert {branch: _chain(fresh, branch) for branch in chains} == chains


def test_a_merge_commit_reaches_both_sides_even_after_the_merged_branch_is_deleted(
    root: Path, manifest: Manifest
) -> None:
    _branch(manifest, "review")
    _publish(manifest, "main", 2)
    _publish(manifest, "review", 3)
    merged = manifest.snapshot("review").head
    merge = Lineage(CommitId(new_ulid()), "act-bob", now_micros(), merged_parent=merged)
    manifest.publish("main", [], lineage=merge)
    assert manifest.history.find(merge.commit_id).parents[1] == merged
    reachable = {commit.graph_commit_id for commit in manifest.history.list()}
    assert len(reachable) == 1 + 2 + 3 + 1
    with connect(root) as graph:
        graph.branches.delete("review")
    manifest.forget()
    assert {commit.graph_commit_id for commit in manifest.history.list()} == reachable


def test_a_branch_made_again_under_a_name_shows_nothing_of_its_predecessor(root: Path, manifest: Manifest) -> None:
    reader = manifest_at(root)
    seen = []
    for _ in range(2):
        _branch(manifest, "side")
        _publish(manifest, "side", 2)
        expected = [commit.graph_commit_id for commit in manifest_at(root).history.list("side")]
        for handle in (manifest, reader):
            assert [commit.graph_commit_id for commit in handle.history.list("side")] == expected
        seen.append(expected)
        _drop(manifest, "side")
        with pytest.raises(BranchNotFoundError):
            reader.snapshot("side")
    assert seen[0][:2] != seen[1][:2]


def test_a_warm_look_at_a_branch_opens_nothing_and_still_sees_what_others_do(
    root: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = manifest_at(root)
    _branch(manifest, "team/review")
    _publish(manifest, "team/review", 2)
    seen = manifest.snapshot("team/review")
    with monkeypatch.context() as patched:
        patched.setattr(manifest.store, "open", lambda *_, **__: pytest.fail("a warm look must not open a table"))
        assert manifest.snapshot("team/review").version == seen.version
    _publish(other, "team/review", 1)
    assert manifest.snapshot("team/review").version == seen.version + 1
    _drop(other, "team/review")
    with pytest.raises(BranchNotFoundError):
        manifest.snapshot("team/review")
    _branch(other, "team/review")
    assert manifest.snapshot("team/review").head == manifest.snapshot().head


def test_a_second_look_at_the_past_reads_nothing_and_takes_no_branch_for_another(
    root: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    _branch(manifest, "review")
    _publish(manifest, "review", 2)
    version = manifest.snapshot("review").version - 1
    seen = manifest.snapshot("review", version=version)
    with monkeypatch.context() as patched:
        patched.setattr(manifest.store, "open", lambda *_, **__: pytest.fail("a second look must not open a table"))
        assert manifest.snapshot("review", version=version).state is seen.state
    _drop(manifest, "review")
    _publish(manifest, "main", 1)
    _branch(manifest, "review")
    _publish(manifest, "review", 1)
    assert manifest.snapshot("review", version=version).head != seen.head
