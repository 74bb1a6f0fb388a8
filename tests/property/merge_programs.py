"""Random programs of writes, branches, merges and housekeeping, run on a graph and on the model of `merge_model`.

After each step every branch has what the model has; what two branches do not have alike, and what somebody who follows
one has heard, is what the model says too. What cleanup and deletions may take is taken, and nothing else.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.merge_workers import InProcess
from tests.property.merge_images import changes, images, people, replay, told
from tests.property.merge_model import COLUMNS, SCHEMA, How, Merge, Model, State, answer, broken

from omnigraph.choices import Engine
from omnigraph.engine.operations.merge import MergePlan
from omnigraph.errors import (
    BranchNotFoundError,
    ChangeCursorError,
    ChangeFeedGapError,
    ConflictError,
    ConstraintError,
    InputError,
    MergeBaseError,
    MergeConflictError,
    NotFoundError,
)
from omnigraph.graph import Graph, connect, create

BRANCHES = ("main", "one", "two")
WRITES = {"people": 5, "append": 1, "update": 1, "edges": 4, "delete": 2, "unlink": 1, "reload": 1}
MERGES = {"revert": 1, "merge": 6, "cross": 3}
KEEPING = {"branch": 2, "drop": 2, "tag": 1, "optimize": 1, "cleanup": 1, "reopen": 0.5}
STEPS = {**WRITES, **MERGES, **KEEPING}
"""What a program may do next, and how often it does."""
PEOPLE = 5
"""So few that the branches of a short program meet."""
WAYS = ("plain", "plain", "ours", "theirs", "fields", "resolve", "resolve", "lines", "by type")
OFTEN = (
    *("already_up_to_date", "fast_forward", "merged", "conflicts", "mirrored", "adopted", "rewritten"),
    *("dropped", "begun in the past", "cleaned", "told changes"),
)
SELDOM = ("reverted", "crossed", "lines", "dropped with the merge", "not dropped")
"""What happens in long programs, and in few of the short ones."""
ALLOWED = ("bases gone", "past gone", "gaps")
"""What may happen where cleanup or a deletion by force has taken what nobody was promised."""


@dataclass
class Follower:
    """Somebody who hears the feed of a branch: what they have, and up to which commit."""

    cursor: str
    commit: int
    state: State


class Program:
    """The same random steps on a graph and on the model."""

    def __init__(self, root: Path, seed: int, workers: InProcess | None = None) -> None:
        self.random = random.Random(seed)
        self.workers = workers
        self.engine: Engine = "auto" if workers is None else "spark"
        self.graph: Graph = create(root, SCHEMA, bulk=workers)
        self.model = Model()
        self.ids = [str(self.graph.snapshot().head)]
        """The commits of the model as the graph names them."""
        self.edges = 0
        self.counts = dict.fromkeys((*OFTEN, *SELDOM, *ALLOWED), 0)
        self.followers: dict[str, Follower] = {"main": self.follower("main")}
        self.outlived: dict[str, str] = {}
        """A cursor of a branch that was deleted since, by its name."""
        if seed % 4:
            self.begin()

    def begin(self) -> None:
        """Three people who know each other, on main and two branches: programs need not be long to have conflicts."""
        state = State({f"p{number}": {"n": number, "s": None, "t": "x"} for number in range(3)})
        state.edges["e"] = ("p0", "p1", 0.5)
        edge = {"edge": "E", "from": "p0", "to": "p1", "data": {"id": "e", "w": 0.5}}
        self.write("main", state, [*people(state.nodes), edge])
        for name in BRANCHES[1:]:
            self.do_branch(name)

    def step(self) -> None:
        branch = self.random.choice(list(self.model.heads))
        choice = self.random.choices(list(STEPS), list(STEPS.values()))[0]
        getattr(self, f"do_{choice}")(branch)
        # What a write did to another branch than its own is found after the next step of another kind.
        self.check([branch] if choice in WRITES else list(self.model.heads))
        self.compare(branch)

    def end(self) -> None:
        """Look at everything once more."""
        self.check(list(self.model.heads))
        for name in self.followers:
            self.hear(name)
        assert self.graph.maintenance.verify().clean

    # -- what is there

    def content(self, **what: Any) -> State:
        found = State()
        for line in self.graph.export(**what):
            record = json.loads(line)
            if "type" in record:
                found.nodes[record["data"]["id"]] = {name: record["data"][name] for name in COLUMNS}
            else:
                found.edges[record["data"]["id"]] = (record["from"], record["to"], record["data"]["w"])
        return found

    def check(self, branches: list[str]) -> None:
        """Each of these has what the model has, and so has who follows it."""
        for name in branches:
            assert self.content(branch=name) == self.model.at(name), name
            if self.random.random() < 0.5:
                self.hear(name)

    def compare(self, branch: str) -> None:
        """What two branches do not have alike, what one has done since they parted, or a state of the past."""
        one = branch if branch in self.model.heads else "main"
        other = self.random.choice(list(self.model.heads))
        if self.random.random() < 0.3:
            past = self.random.choice(sorted(self.model.certain))
            assert self.content(at=self.ids[past]) == self.model.states[past], past
        if one == other:
            return
        told = self.graph.diff(one, other, values="full")
        assert images(told) == changes(self.model.at(one), self.model.at(other))
        bases = self.model.bases(self.model.heads[one], self.model.heads[other])
        if self.model.certain.issuperset(bases) and len(bases) == 1:
            brought = self.graph.branches.diff(one, other, values="full")
            assert images(brought) == changes(self.model.states[bases[0]], self.model.at(one))

    def follower(self, branch: str) -> Follower:
        """Somebody who has the newest state of a branch."""
        cursor = self.graph.changes.poll(start="now", branch=branch).cursor
        assert cursor is not None
        return Follower(cursor, self.model.heads[branch], self.model.at(branch))

    def hear(self, branch: str) -> None:
        """Replay what a follower has missed: a block per commit, all of them unless cleanup took what is before one."""
        follower, head = self.followers[branch], self.model.heads[branch]
        missed = self.model.line(follower.commit, head)
        state, heard = follower.state.copy(), []
        page = None
        try:
            while page is None or not page.caught_up:
                place = {"cursor": follower.cursor if page is None else page.cursor}
                if page is not None and page.next_page_token is not None:
                    place = {"page_token": page.next_page_token}
                page = self.graph.changes.poll(
                    **place, branch=branch, values="full", limit=self.random.choice([1, 99, 99])
                )
                for block in page.blocks:
                    heard += [block.cause.graph_commit_id][: heard[-1:] != [block.cause.graph_commit_id]]
                    self.counts["told changes"] += len(block.changes)
                    replay(state, block.changes)
        except ChangeFeedGapError:
            assert not self.model.certain.issuperset(missed), branch
            self.counts["gaps"] += 1
            self.followers[branch] = self.follower(branch)
        else:
            assert heard == [self.ids[commit] for commit in missed[1:]]
            assert state == self.model.at(branch), branch
            self.followers[branch] = Follower(str(page.cursor), head, state)

    # -- writes

    def made(self, branch: str, state: State, merged: int | None = None) -> None:
        """The graph has made a commit."""
        self.model.commit(branch, state, merged)
        self.ids.append(str(self.graph.snapshot(branch).head))

    def write(self, branch: str, state: State, records: list[dict[str, Any]], mode: Any = "merge") -> None:
        """Load records if the rules of the schema allow the state they lead to."""
        if any(broken(state, dict.fromkeys(state.nodes, "theirs"))):
            with pytest.raises(ConstraintError):
                self.graph.load(records, mode, branch=branch)
        else:
            self.graph.load(records, mode, branch=branch)
            self.made(branch, state)

    def do_people(self, branch: str) -> None:
        state = self.model.at(branch).copy()
        for _ in range(self.random.randrange(1, 4)):
            key = f"p{self.random.randrange(PEOPLE)}"
            row = dict(state.nodes.get(key, dict.fromkeys(COLUMNS)))
            row[self.random.choice(COLUMNS)] = None
            row["n"] = self.random.choice([row["n"], 0, 1, 2])
            row["s"] = self.random.choice([row["s"], row["s"], f"s{self.random.randrange(PEOPLE)}"])
            row["t"] = self.random.choice([row["t"], "x", "y"])
            state.nodes[key] = row
        self.write(branch, state, people(state.nodes))

    def do_append(self, branch: str) -> None:
        """New people by a load that refuses those who are there."""
        state = self.model.at(branch).copy()
        keys = {f"p{self.random.randrange(PEOPLE)}" for _ in range(2)}
        row = {"n": self.random.randrange(3), "s": None, "t": None}
        fresh = dict.fromkeys(sorted(keys), row)
        if keys & state.nodes.keys():
            with pytest.raises(ConflictError):
                self.graph.load(people(fresh), "append", branch=branch)
        else:
            state.nodes.update(fresh)
            self.write(branch, state, people(fresh), "append")

    def do_update(self, branch: str) -> None:
        """One property of many people, by a mutation."""
        state = self.model.at(branch).copy()
        old, new = self.random.sample(["x", "y"], 2)
        found = [row for row in state.nodes.values() if row["t"] == old]
        for row in found:
            row["t"] = new
        if found:
            query = "query u($o: String, $n: String) { update P set { t: $n } where t = $o }"
            self.graph.mutate(query, {"o": old, "n": new}, branch=branch)
            self.made(branch, state)

    def do_edges(self, branch: str) -> None:
        state = self.model.at(branch).copy()
        if not state.nodes:
            return
        self.edges += 1
        name = self.random.choice([*state.edges, f"e{self.edges}"])
        ends = [self.random.choice(sorted(state.nodes)) for _ in range(2)]
        state.edges[name] = (ends[0], ends[1], self.random.choice([None, 0.5, 1.5]))
        record = {"edge": "E", "from": ends[0], "to": ends[1], "data": {"id": name, "w": state.edges[name][2]}}
        self.write(branch, state, [record])

    def do_delete(self, branch: str) -> None:
        state = self.model.at(branch).copy()
        key = f"p{self.random.randrange(PEOPLE)}"
        if state.nodes.pop(key, None) is not None:
            for name in [name for name, edge in state.edges.items() if key in edge[:2]]:
                del state.edges[name]
            self.graph.mutate("query d($k: String) { delete P where k = $k }", {"k": key}, branch=branch)
            self.made(branch, state)

    def do_unlink(self, branch: str) -> None:
        state = self.model.at(branch).copy()
        key = f"p{self.random.randrange(PEOPLE)}"
        gone = [name for name, edge in state.edges.items() if edge[0] == key]
        if gone:
            for name in gone:
                del state.edges[name]
            self.graph.mutate("query d($k: String) { delete E where from = $k }", {"k": key}, branch=branch)
            self.made(branch, state)

    def do_reload(self, branch: str) -> None:
        """The same content written anew, but for one property."""
        state = self.model.at(branch).copy()
        if state.nodes:
            key = self.random.choice(sorted(state.nodes))
            state.nodes[key] = {**state.nodes[key], "n": self.random.choice([3, 4])}
            self.graph.load(people(state.nodes), "overwrite", branch=branch)
            self.made(branch, state)

    # -- branches and housekeeping

    def do_optimize(self, branch: str) -> None:
        head = self.graph.snapshot().head
        self.graph.maintenance.optimize()
        if self.graph.snapshot().head != head:
            self.made("main", self.model.at("main"))

    def do_cleanup(self, branch: str) -> None:
        """What every branch and every merge between them needs stays, whatever is asked for."""
        kept = self.random.choice([{"keep": 1}, {"keep": 3}, {"older_than": timedelta(0)}])
        report = self.graph.maintenance.cleanup(**kept)
        assert not report.failed, report
        self.model.clean_up()
        self.counts["cleaned"] += sum(table.old_versions_removed for table in (*report.tables, report.manifest))
        assert self.graph.maintenance.verify().clean

    def do_tag(self, branch: str) -> None:
        """A name for a commit, which keeps it; or one name less."""
        if self.model.tags and self.random.random() < 0.4:
            name = self.random.choice(list(self.model.tags))
            self.graph.tags.delete(name)
            del self.model.tags[name]
        else:
            name, commit = f"v{len(self.ids)}-{len(self.model.tags)}", self.random.choice(sorted(self.model.certain))
            if name not in self.model.tags:
                self.graph.tags.create(name, at=self.ids[commit])
                self.model.tags[name] = commit

    def do_reopen(self, branch: str) -> None:
        self.graph.close()
        self.graph = connect(self.graph.uri, bulk=self.workers)

    def do_branch(self, branch: str) -> None:
        """A branch at the head of another one, or at any commit there has been, of deleted branches too."""
        name = next((name for name in BRANCHES if name not in self.model.heads), None)
        if name is None:
            return
        origin, commit = self.random.choice(list(self.model.heads)), None
        if self.random.random() < 0.3:
            commit = self.random.randrange(len(self.ids))
        try:
            self.graph.branches.create(name, origin, at=None if commit is None else self.ids[commit])
        except NotFoundError:
            assert commit not in (None, *self.model.certain), name
            self.counts["past gone"] += 1
            return
        self.counts["begun in the past"] += commit is not None
        self.model.create(name, origin, commit)
        self.followers[name] = self.follower(name)
        if name in self.outlived:
            with pytest.raises(ChangeCursorError):
                self.graph.changes.poll(self.outlived.pop(name), branch=name)

    def do_drop(self, branch: str) -> None:
        """Delete a branch, unless others were created from it or parted at it; those with force."""
        if branch == "main":
            with pytest.raises(InputError):
                self.graph.branches.delete(branch)
            return
        if self.model.is_built_on(branch) or self.model.is_base(branch):
            self.counts["not dropped"] += 1
            with pytest.raises(ConflictError):
                self.graph.branches.delete(branch)
            if self.model.is_built_on(branch):
                with pytest.raises(ConflictError):
                    self.graph.branches.delete(branch, force=True)
            if self.model.is_built_on(branch) or self.random.random() < 0.5:
                return
            self.graph.branches.delete(branch, force=True)
        else:
            self.graph.branches.delete(branch)
        self.counts["dropped"] += 1
        self.dropped(branch)

    def dropped(self, branch: str) -> None:
        """The graph has deleted a branch."""
        self.model.delete(branch)
        self.outlived[branch] = self.followers.pop(branch).cursor
        with pytest.raises(BranchNotFoundError):
            self.graph.changes.poll(self.outlived[branch], branch=branch)

    def do_cross(self, branch: str) -> None:
        """Merge two branches into each other as they were, so that they part at two commits."""
        others = [name for name in self.model.heads if name != branch]
        if others:
            other = self.random.choice(others)
            self.part(other, branch)
            self.graph.branches.create("before", branch)
            self.model.create("before", branch)
            self.merge(other, branch)
            self.merge("before", other)
            self.graph.branches.delete("before")
            self.model.delete("before")
            self.part(other, branch)

    # -- merges

    def do_merge(self, branch: str) -> None:
        others = [name for name in self.model.heads if name != branch]
        if others:
            source = self.random.choice(others)
            self.part(source, branch)
            self.merge(source, branch, drop=self.random.random() < 0.15)

    def part(self, *branches: str) -> None:
        """Mostly, let branches do something of their own before they meet."""
        if self.random.random() < 0.7:
            for branch in branches:
                self.random.choice([self.do_people, self.do_edges, self.do_delete, self.do_update])(branch)

    def merge(self, source: str, branch: str, *, drop: bool = False) -> None:
        heads = [self.model.heads[name] for name in (source, branch)]
        bases = self.model.bases(*heads)
        try:
            how, wanted = self.way(source, branch)
            planned = self.graph.branches.plan_merge(source, branch, engine=self.engine, **wanted)
        except MergeBaseError:
            assert not self.model.certain.issuperset(self.model.needed(bases)), (source, branch)
            self.counts["bases gone"] += 1
            return
        if self.workers is not None:
            here = self.graph.branches.plan_merge(source, branch, engine="local", **wanted)
            assert told(planned) == told(here)
        outcome, merge = self.model.merge(source, branch, how)
        assert self.graph.snapshot(branch).head == self.ids[heads[1]]
        assert [*planned.base_commits] == [self.ids[commit] for commit in bases]
        assert str(planned.outcome) == outcome.replace("crossed", "merged")
        self.counts["crossed"] += outcome == "crossed"
        if merge is not None:
            self.same_conflicts(planned, merge)
        if merge is not None and merge.conflicts:
            self.counts["conflicts"] += 1
            with pytest.raises(MergeConflictError) as refused:
                self.graph.branches.merge(source, branch, engine=self.engine, **wanted)
            assert len(refused.value.conflicts) == refused.value.total == len(merge.conflicts)
            assert self.graph.snapshot(branch).head == self.ids[heads[1]]
            return
        result = self.graph.branches.merge(source, branch, engine=self.engine, delete_branch=drop, **wanted)
        self.counts[str(result.outcome)] += 1
        assert result.outcome == planned.outcome
        for found in result.plan.types:
            self.counts[str(found.how).replace("pointer", "mirrored")] += 1
        if merge is not None:
            self.made(branch, merge.merged, heads[0])
            commit = self.graph.history.show(str(result.commit_id))
            assert (commit.graph_commit_id, *commit.parents) == (self.ids[-1], self.ids[heads[1]], self.ids[heads[0]])
        if not result.branch_deleted:
            assert self.graph.branches.merge(source, branch).commit_id is None
        if drop:
            self.dropped_with_merge(source, deleted=result.branch_deleted)

    def dropped_with_merge(self, source: str, *, deleted: bool) -> None:
        """A merge was told to delete its source."""
        kept = self.model.is_built_on(source) or self.model.is_base(source)
        assert deleted == (source != "main" and not kept)
        if deleted:
            self.counts["dropped with the merge"] += 1
            self.dropped(source)

    def do_revert(self, branch: str) -> None:
        """Undo a commit that the branch has, of any branch."""
        ours = self.model.heads[branch]
        commit = self.random.choice(sorted(self.model.ancestors[ours]))
        if commit == 0:
            with pytest.raises(InputError):
                self.graph.revert(self.ids[commit], branch)
            return
        before = self.model.parents[commit][0]
        how, wanted = self.way(branch, branch, self.random.choice([way for way in WAYS if way != "lines"]))
        undone = Merge(self.model.states[commit], self.model.states[before], self.model.states[ours], how)
        conflicts, made = 0, None
        try:
            made = self.graph.revert(self.ids[commit], branch, **wanted).commit_id
        except MergeConflictError as refused:
            conflicts = refused.total
        except (NotFoundError, MergeBaseError):
            assert not self.model.certain.issuperset([commit, before]), (branch, commit)
            self.counts["past gone"] += 1
            return
        assert conflicts == len(undone.conflicts)
        # A resolution may have set what was there already, and is recorded all the same.
        same = undone.merged == self.model.states[ours]
        assert made is None or not (conflicts or (same and not undone.got))
        assert made is not None or conflicts or same
        if made is not None:
            self.counts["reverted"] += 1
            self.made(branch, undone.merged)

    def way(self, source: str, branch: str, way: str | None = None) -> tuple[How, Mapping[str, Any]]:
        """How conflicts are settled, as the model and as the graph is told."""
        way = way or self.random.choice(WAYS)
        if way == "by type":
            by_type = {key: self.random.choice(["ours", "theirs", "fields"]) for key in ("node:P", "edge:E")}
            return by_type, {"strategies": by_type}
        if way == "resolve":
            return dict.fromkeys(("node:P", "edge:E"), way), {"resolve": answer}
        if way == "lines":
            listed = list(self.graph.branches.conflicts(source, branch))
            taken = [(each, answer(each)) for each in listed if each.kind.is_of_rows]
            lines = [{**json.loads(json.dumps(each.to_json())), "take": take} for each, take in taken if take]
            self.counts["lines"] += len(lines)
            return dict.fromkeys(("node:P", "edge:E"), way), {"resolve": lines}
        strategy = None if way == "plain" else way
        return dict.fromkeys(("node:P", "edge:E"), strategy), {"strategy": strategy}

    @staticmethod
    def same_conflicts(planned: MergePlan, merge: Merge) -> None:
        listed = [(c.table_key, str(c.kind), c.row_id, c.related) for c in planned.conflicts]
        assert sorted(listed, key=str) == merge.conflicts, merge.how
        columns = {(c.table_key, c.row_id): {*c.columns} for c in planned.conflicts if c.kind.is_of_rows}
        assert columns == merge.columns


def run(root: Path, seeds: Iterable[int], steps: int, workers: InProcess | None = None) -> dict[str, int]:
    """Programs of these seeds; how often what was to happen has happened."""
    total: dict[str, int] = {}
    for seed in seeds:
        program = Program(root / str(seed), seed, workers)
        try:
            for _ in range(steps):
                program.step()
            program.end()
        except Exception as failure:
            failure.add_note(f"program {seed}")
            raise
        for outcome, number in program.counts.items():
            total[outcome] = total.get(outcome, 0) + number
    return total
