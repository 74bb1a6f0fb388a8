"""Publishers for tests: in this process, and as processes of their own."""

import itertools
import os
from pathlib import Path

from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.manifest.history import History
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage import layout, steps
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ConflictError, ExpectedVersionMismatchError, PublishContentionError
from omnigraph.ids import CommitId, TableKey, new_ulid, now_micros

SCHEMA = """
node Person { name: String @key }
node Company { name: String @key }
edge Knows: Person -> Person
"""
PERSON, COMPANY, KNOWS = TableKey("node:Person"), TableKey("node:Company"), TableKey("edge:Knows")
KILLED = 86


def lineage(actor: str | None = "act-alice", commit_id: str | None = None) -> Lineage:
    return Lineage(CommitId(commit_id or new_ulid()), actor, now_micros())


def manifest_at(root: str | Path) -> Manifest:
    """A manifest that shares nothing with others of this process, like one of another process."""
    return Manifest(TableStore(str(root)))


def advance(manifest: Manifest, key: TableKey = PERSON, *, actor: str | None = "act-alice") -> Snapshot:
    """Publish the next version of a table, expecting the current one."""
    seen = manifest.snapshot()
    version = seen.entry(key).version
    change = UpdateTable(key, version + 1, None, version)
    return manifest.publish("main", [change], lineage=lineage(actor), expected={key: version})


def advance_many(root: str, times: int, actor: str) -> tuple[list[str], int]:
    """Publish until `times` publishes succeeded: the commits acknowledged, and the refusals, all of them typed."""
    manifest = manifest_at(root)
    acknowledged: list[str] = []
    refused = 0
    while len(acknowledged) < times:
        try:
            head = advance(manifest, actor=actor).head
            assert head is not None
            acknowledged.append(head)
        except (ExpectedVersionMismatchError, PublishContentionError):
            refused += 1
    return acknowledged, refused


class _KillAfter:
    """Ends the process right after the n-th commit to one table."""

    def __init__(self, target: str, commits: int) -> None:
        self.target, self.left = target, commits

    def before(self, name: str, target: str) -> None:
        """Nothing happens before a step."""

    def after(self, name: str, target: str) -> None:
        if (name, target) == ("commit", self.target):
            self.left -= 1
            if self.left == 0:
                os._exit(KILLED)


def advance_until_archived_and_die(root: str, archives: int) -> None:
    """Publish until commits have moved to the commit table so often, and die before the manifest lets go of them."""
    steps.observe(_KillAfter(layout.GRAPH_COMMITS, archives))
    manifest = manifest_at(root)
    while True:
        try:
            advance(manifest, actor="act-doomed")
        except ConflictError:
            continue


def commit_table_ids(manifest: Manifest) -> list[str]:
    ids: list[str] = manifest.store.open(layout.GRAPH_COMMITS).scan(["graph_commit_id"])["graph_commit_id"].to_pylist()
    return ids


def assert_linear(history: History, expected_commits: int) -> None:
    """Main's history is one chain from the newest commit to genesis, without a gap or a fork."""
    commits = history.list()
    assert len(commits) == expected_commits
    assert len({commit.graph_commit_id for commit in commits}) == expected_commits
    for child, parent in itertools.pairwise(commits):
        assert child.parent_commit_id == parent.graph_commit_id
        assert child.manifest_version > parent.manifest_version
    assert commits[-1].parent_commit_id is None
