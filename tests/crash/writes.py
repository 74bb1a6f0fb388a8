"""The writers that exist, each as data: what is crashed at every storage operation."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.merge_workers import InProcess
from tests.together import Ask, written_together

from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.mutate import mutate
from omnigraph.engine.recovery import heal
from omnigraph.engine.storage import adopting
from omnigraph.engine.write.settings import strip_main
from omnigraph.engine.write.writer import Written
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import MAIN
from omnigraph.plan import compile_query
from omnigraph.plan.statements import WritePlan

SCHEMA = """
node Company { name: String @key }
node Person { name: String @key
              age: I32? }
node Note { text: String }
edge WorksAt: Person -> Company { since: I32? }
edge Knows: Person -> Person
"""

SEED = b"""
{"type": "Company", "data": {"name": "acme"}}
{"type": "Person", "data": {"name": "ann", "age": 30}}
{"type": "Person", "data": {"name": "bob", "age": 40}}
{"type": "Note", "data": {"text": "seed"}}
{"edge": "WorksAt", "from": "ann", "to": "acme", "data": {"since": 2020}}
{"edge": "Knows", "from": "ann", "to": "bob", "data": {}}
{"edge": "Knows", "from": "bob", "to": "ann", "data": {}}
"""

PEOPLE = b"""
{"type": "Company", "data": {"name": "initech"}}
{"type": "Person", "data": {"name": "cid", "age": 50}}
{"edge": "WorksAt", "from": "cid", "to": "initech", "data": {"id": "e1"}}
"""

WHOLE = b"""
{"type": "Company", "data": {"name": "acme"}}
{"type": "Company", "data": {"name": "globex"}}
{"edge": "WorksAt", "from": "bob", "to": "globex", "data": {"id": "e2"}}
"""

CHANGED = b"""
{"type": "Person", "data": {"name": "ann", "age": 31}}
{"type": "Person", "data": {"name": "dan", "age": 20}}
{"edge": "Knows", "from": "dan", "to": "ann", "data": {"id": "k9"}}
"""

GIVEN = b"""
{"type": "Person", "data": {"name": "ann", "age": 31}}
{"type": "Person", "data": {"id": "bob", "age": null}}
{"type": "Company", "data": {"name": "acme"}}
"""


@dataclass(frozen=True)
class Mutation:
    """A write query."""

    text: str
    actor: str | None = "act-alice"
    branch: str = MAIN

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.mutate(f"query q() {{ {self.text} }}", actor=self.actor, branch=self.branch)


@dataclass(frozen=True)
class Load:
    """A local load."""

    data: bytes
    mode: str

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        load(graph.context, self.data, mode=self.mode, actor="act-bob")


@dataclass(frozen=True)
class Together:
    """Several write queries, published together."""

    texts: tuple[str, ...]
    branch: str = MAIN

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        catalog = graph.context.catalog

        def asking(number: int, text: str) -> Ask:
            plan = compile_query(catalog, f"query q() {{ {text} }}")
            assert isinstance(plan, WritePlan)
            return lambda context: mutate(context, plan, {}, actor=f"act-{number}", branch=self.branch)

        asks = [asking(number, text) for number, text in enumerate(self.texts)]
        for outcome in written_together(graph.context, asks):
            assert isinstance(outcome, tuple), outcome
            if not isinstance(outcome[1], Written):
                raise outcome[1]


@dataclass(frozen=True)
class Optimize:
    """Compaction and index builds: effects that change no row."""

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.maintenance.optimize()


@dataclass(frozen=True)
class TakeOffSettings:
    """The settings of another program, taken off every table that has them."""

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        heal(graph.context.recovery)  # as everybody does who calls it
        strip_main(graph.context, "act-ann")


@dataclass(frozen=True)
class Repair:
    """A writer that only publishes."""

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.maintenance.repair(confirm=True, force=True)


@dataclass(frozen=True)
class CreateBranch:
    """A new branch of main."""

    name: str = "topic"

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.branches.create(self.name)


@dataclass(frozen=True)
class DeleteBranch:
    """The end of a branch, and of the tables that only it has."""

    name: str = "review"

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.branches.delete(self.name)


@dataclass(frozen=True)
class Merge:
    """The work of one branch brought into another."""

    source: str = "review"
    into: str = MAIN
    strategy: str | None = None
    appends: bool = False
    """Whether what is new is appended by a second commit, as it is where there is much of it."""
    resolved: tuple[str, ...] = ()
    """What settles single conflicts: lines of JSON, as a file of resolutions has them."""
    delete_branch: bool = False
    by_workers: bool = False
    """Whether workers decide and write, as those of a bulk engine do."""

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        if self.by_workers:
            lease_seconds = graph.context.recovery.intents.lease_seconds
            graph = connect(graph.uri, bulk=InProcess())
            graph.context.recovery.intents.lease_seconds = lease_seconds
        usual = adopting.APPENDED_ROWS_MIN
        adopting.APPENDED_ROWS_MIN = 0 if self.appends else usual
        try:
            graph.branches.merge(
                self.source,
                self.into,
                strategy=self.strategy,
                resolve=[json.loads(line) for line in self.resolved] or None,
                delete_branch=self.delete_branch,
                actor="act-mia",
                engine="spark" if self.by_workers else "local",
            )
        finally:
            adopting.APPENDED_ROWS_MIN = usual


@dataclass(frozen=True)
class Revert:
    """What the newest merge into main has brought, taken back."""

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        merged = [each for each in graph.history.list() if each.merged_parent_commit_id is not None]
        graph.revert(merged[0].graph_commit_id, actor="act-mia")


@dataclass(frozen=True)
class ApplySchema:
    """Another schema."""

    desired: str
    allow_data_loss: bool = False

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.schema.apply(self.desired, allow_data_loss=self.allow_data_loss, confirm_drops=True, actor="act-eva")


@dataclass(frozen=True)
class Open:
    """Recovery itself: a read-write open of a graph with an unfinished write."""

    def run(self, root: str) -> None:
        connect(root)

    def again(self, graph: Graph) -> None:
        connect(graph.uri)


@dataclass(frozen=True)
class Create:
    """The creation of a graph."""

    def run(self, root: str) -> None:
        create(root, SCHEMA)

    def again(self, graph: Graph) -> None:
        create(graph.uri, SCHEMA)


MUTATIONS = {
    "insert a node": Mutation('insert Person { name: "zoe", age: 9 }'),
    "insert a keyless node": Mutation('insert Note { text: "hello" }'),
    "insert an edge": Mutation('insert Knows { from: "ann", to: "ann" }'),
    "replace a node": Mutation('insert Person { name: "ann" }'),
    "update nodes": Mutation("update Person set { age: 7 } where age > 1"),
    "delete edges": Mutation('delete Knows where from = "ann"'),
    "delete a node and its edges": Mutation('delete Person where name = "ann"'),
    "insert nodes and an edge": Mutation(
        'insert Company { name: "initech" } insert Person { name: "eve" }'
        ' insert WorksAt { from: "eve", to: "initech", since: 2026 }'
    ),
}
_TOGETHER = (
    'insert Person { name: "eve" }',
    'insert Company { name: "initech" } insert WorksAt { from: "eve", to: "initech" }',
    'delete Person where name = "bob"',
    "update Person set { age: 7 } where age > 1",
)
TOGETHER = {"several writes together": Together(_TOGETHER)}
ON_A_BRANCH = {
    "several first writes on a branch together": Together(_TOGETHER, branch="review"),
    "first write on a branch": Mutation(
        'insert Company { name: "initech" } insert Person { name: "eve" }'
        ' insert WorksAt { from: "eve", to: "initech", since: 2026 }',
        branch="review",
    ),
    "first delete on a branch": Mutation('delete Person where name = "ann"', branch="review"),
}
EVOLVED = (
    SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")\n bio: String?')
    .replace("since: I32?", "")
    .replace("node Note { text: String }", "node Memo { text: String }")
    .replace("node Company", 'node Firm @rename_from("Company")')
    .replace("-> Company", "-> Firm")
)
"""Everything at once: columns added, renamed and dropped, a type renamed, one added and one dropped."""
FILLED = (
    SCHEMA.replace("age: I32?", 'years: I64 @rename_from("age") @default(0)\n joined: DateTime @default(now())')
    .replace("since: I32?", "since: I64? @index")
    .replace("text: String", "text: String @unique")
    .replace("edge Knows: Person -> Person", "edge Knows: Person -> Person @card(0..9)")
)
"""A number made wider, a required property added, nulls given a default, and rules that the rows there are keep."""
SCHEMAS = {
    "apply a schema with steps of every kind": ApplySchema(EVOLVED),
    "apply a schema that changes no table": ApplySchema(
        SCHEMA.replace("node Note {", 'node Note @description("a note") {')
    ),
    "apply a schema that fills columns": ApplySchema(FILLED),
    "apply a schema that erases": ApplySchema(
        SCHEMA.replace("age: I32?", "").replace("node Note { text: String }", ""), allow_data_loss=True
    ),
}
LOADS = {
    "load append": Load(PEOPLE, "append"),
    "load merge": Load(CHANGED, "merge"),
    "load update": Load(GIVEN, "update"),
    "load overwrite": Load(WHOLE, "overwrite"),
}
MERGES = {
    "fast-forward main to a branch": Merge(),
    "fast-forward by two commits to a table": Merge(appends=True),
    "merge a branch that has parted from main": Merge(strategy="theirs"),
    "merge main into a branch that inherits tables": Merge(MAIN, "review", "ours"),
    "merge a branch into its sibling": Merge("review", "other"),
    "merge by two commits to a table": Merge(strategy="theirs", appends=True),
    "merge a branch that has come back to where it was": Merge(),
    "merge blobs": Merge(),
    "merge with resolutions": Merge(
        resolved=(
            '{"table_key": "node:Person", "row_id": "ann", "kind": "divergent_update", "take": {"set": {"age": 33}}}',
        )
    ),
    "merge after a merge that was undone": Merge(strategy="theirs"),
    "merge by workers": Merge(strategy="theirs", by_workers=True),
    "merge by workers into a branch that inherits tables": Merge(MAIN, "review", "ours", by_workers=True),
}
REVERTS = {"revert a merge": Revert()}
FILES = """
node File { name: String @key
            body: Blob? }
"""
