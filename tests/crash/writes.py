"""The writers that exist, each as data: what is crashed at every storage operation."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.engine.operations.load import load
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import MAIN

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
class Optimize:
    """Compaction and index builds: effects that change no row."""

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.maintenance.optimize()


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
class ApplySchema:
    """Another schema."""

    desired: str
    allow_data_loss: bool = False

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.schema.apply(self.desired, allow_data_loss=self.allow_data_loss, actor="act-eva")


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
ON_A_BRANCH = {
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
SCHEMAS = {
    "apply a schema with steps of every kind": ApplySchema(EVOLVED),
    "apply a schema that changes no table": ApplySchema(
        SCHEMA.replace("node Note {", 'node Note @description("a note") {')
    ),
    "apply a schema that erases": ApplySchema(
        SCHEMA.replace("age: I32?", "").replace("node Note { text: String }", ""), allow_data_loss=True
    ),
}
LOADS = {
    "load append": Load(PEOPLE, "append"),
    "load merge": Load(CHANGED, "merge"),
    "load overwrite": Load(WHOLE, "overwrite"),
}
