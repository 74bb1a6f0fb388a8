"""A graph as plain dictionaries: what a store must hold after any sequence of writes.

The model knows people, companies and who knows and employs whom, which is enough to exercise upserts, cascades and
overwrites. It is immutable, so that a test can keep the state before a write beside the state after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from omnigraph.graph import Graph

SCHEMA = """
node Company { name: String @key }
node Person { name: String @key
              age: I32? }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class GraphModel:
    """People with their ages, companies, and the two kinds of edges as sorted pairs (an edge may occur twice)."""

    people: dict[str, int | None] = field(default_factory=dict)
    companies: frozenset[str] = frozenset()
    knows: Pairs = ()
    works_at: Pairs = ()

    def with_people(self, people: dict[str, int | None]) -> GraphModel:
        """Insert or replace people."""
        return replace(self, people={**self.people, **people})

    def with_companies(self, names: Iterable[str]) -> GraphModel:
        """Insert companies."""
        return replace(self, companies=self.companies.union(names))

    def with_knows(self, source: str, target: str) -> GraphModel:
        """Let one person know another, once more."""
        return replace(self, knows=tuple(sorted([*self.knows, (source, target)])))

    def with_job(self, person: str, company: str) -> GraphModel:
        """Let a person work at a company, once more."""
        return replace(self, works_at=tuple(sorted([*self.works_at, (person, company)])))

    def aged(self, above: int, age: int) -> GraphModel:
        """Set the age of everybody older than `above`."""
        changed = {name: age if old is not None and old > above else old for name, old in self.people.items()}
        return replace(self, people=changed)

    def without(self, person: str) -> GraphModel:
        """Remove a person and every edge at either end."""
        return replace(
            self,
            people={name: age for name, age in self.people.items() if name != person},
            knows=tuple(pair for pair in self.knows if person not in pair),
            works_at=tuple(pair for pair in self.works_at if pair[0] != person),
        )

    def with_only_companies(self, names: Iterable[str]) -> GraphModel:
        """Replace the whole content of the company table."""
        return replace(self, companies=frozenset(names))


def read_model(graph: Graph, branch: str = "main") -> GraphModel:
    """What a graph of this schema really holds."""
    snapshot = graph.snapshot(branch)
    tables = {key: snapshot.open(key).scan() for key in snapshot.entries}
    people, companies = tables["node:Person"], tables["node:Company"]  # type: ignore[index]
    knows, works_at = tables["edge:Knows"], tables["edge:WorksAt"]  # type: ignore[index]
    return GraphModel(
        people=dict(zip(people["name"].to_pylist(), people["age"].to_pylist(), strict=True)),
        companies=frozenset(companies["name"].to_pylist()),
        knows=tuple(sorted(zip(knows["src"].to_pylist(), knows["dst"].to_pylist(), strict=True))),
        works_at=tuple(sorted(zip(works_at["src"].to_pylist(), works_at["dst"].to_pylist(), strict=True))),
    )
