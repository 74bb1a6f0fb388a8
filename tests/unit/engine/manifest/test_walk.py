"""Going back through the history reads what is asked for, and finds it in the order people expect."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

import pytest

from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.engine.manifest.walk import PAGE, Walk
from omnigraph.errors import FormatError
from omnigraph.ids import CommitId


def commit(number: int, *parents: int, at: int | None = None, branch: str | None = None) -> CommitRecord:
    named = [name(parent) for parent in parents]
    first, merged = [*named, None, None][:2]
    return CommitRecord(name(number), branch, number, first, merged, None, number if at is None else at)


def name(number: int) -> CommitId:
    return CommitId(f"c{number:07d}")


@dataclass
class Shelf:
    """An archive that counts what it is asked."""

    commits: Mapping[CommitId, CommitRecord]
    reads: list[int] = field(default_factory=list)

    def _give(self, found: Iterable[CommitRecord]) -> Mapping[CommitId, CommitRecord]:
        given = {each.graph_commit_id: each for each in found}
        self.reads.append(len(given))
        return given

    def page(self, version: int, count: int) -> Mapping[CommitId, CommitRecord]:
        return self._give(each for each in self.commits.values() if version - count < each.manifest_version <= version)

    def named(self, commit_id: CommitId) -> Mapping[CommitId, CommitRecord]:
        return self._give([self.commits[commit_id]] if commit_id in self.commits else [])

    def everything(self) -> Mapping[CommitId, CommitRecord]:
        return self._give(self.commits.values())

    def recovered(
        self, missing: CommitId, child: CommitRecord, known: Mapping[CommitId, CommitRecord]
    ) -> Mapping[CommitId, CommitRecord]:
        return {}


def shelf(commits: Iterable[CommitRecord]) -> Shelf:
    return Shelf({each.graph_commit_id: each for each in commits})


def test_the_newest_of_a_long_history_with_merges_cost_a_few_small_reads() -> None:
    # Every third commit merges one that was made beside the one before it.
    history = [commit(0)]
    for number in range(1, 90_000):
        history.append(commit(number, number - 3, number - 1) if number % 3 == 0 else commit(number, number // 3 * 3))
    archive = shelf(history)
    newest = list(islice(Walk(archive, {}).by_age(name(89_999)), 20))
    assert [each.created_at for each in newest][:3] == [89_999, 89_997, 89_996]
    assert len(archive.reads) <= 3
    assert sum(archive.reads) <= 3 * PAGE


def test_the_whole_of_it_costs_few_reads_too() -> None:
    archive = shelf([commit(0), *(commit(number, number - 1) for number in range(1, 5_000))])
    assert sum(1 for _ in Walk(archive, {}).line(name(4_999))) == 5_000
    assert len(archive.reads) <= 12
    archive.reads.clear()
    assert sum(1 for _ in Walk(archive, {}, all_of_it=True).by_age(name(4_999))) == 5_000
    assert archive.reads == [5_000]


def test_every_ancestor_comes_once_and_after_whoever_descends_from_it() -> None:
    chance = random.Random(7)
    for _ in range(50):
        history = [commit(0)]
        for number in range(1, 60):
            parents = sorted(chance.sample(range(number), min(number, chance.choice((1, 1, 2)))), reverse=True)
            history.append(commit(number, *parents))
        head = chance.randrange(60)
        reachable, todo = set(), [head]
        while todo:
            at = todo.pop()
            if at not in reachable:
                reachable.add(at)
                todo.extend(int(parent[1:]) for parent in history[at].parents)
        walked = [each.created_at for each in Walk(shelf(history), {}).by_age(name(head))]
        assert walked == sorted(reachable, reverse=True)


def test_the_line_of_first_parents_leaves_out_what_was_merged() -> None:
    archive = shelf([commit(0), commit(1, 0), commit(2, 0, branch="b"), commit(3, 1, 2)])
    assert [each.manifest_version for each in Walk(archive, {}).line(name(3))] == [3, 1, 0]
    assert list(Walk(archive, {}).line(None)) == []


def test_clocks_that_disagree_lose_no_commit() -> None:
    archive = shelf([commit(0, at=50), commit(1, 0, at=90), commit(2, 1, at=10), commit(3, 0, at=70), commit(4, 2, 3)])
    assert {each.manifest_version for each in Walk(archive, {}).by_age(name(4))} == {0, 1, 2, 3, 4}


def test_a_commit_that_nobody_has_is_named() -> None:
    with pytest.raises(FormatError, match=name(1)):
        list(Walk(shelf([commit(2, 1)]), {}).by_age(name(2)))
