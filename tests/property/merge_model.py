"""A graph with branches as plain dictionaries, merged by brute force: what the product must give, the plain way.

Commits are numbers in the order in which they were made. Beside their states the model knows which of them anybody can
still read for certain, which branches were created from which, and so what may be deleted.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA = """
node P { k: String @key  n: I32?  s: String? @unique  t: String? }
edge E: P -> P @card(0..3) { w: F64? }
"""
UNKNOWN = "?"
"""What merged ancestors have of an entity they disagree about."""
COLUMNS = ("n", "s", "t")
CARD = 3
Nodes = dict[str, dict[str, Any]]
Edges = dict[str, tuple[str, str, float | None]]
Conflict = tuple[str, str, str | None, str | None]
How = Mapping[str, str | None]
"""What counts, by table: a strategy, `resolve` for the function below, `lines` for what it says of rows, or nothing."""


@dataclass(frozen=True)
class State:
    """A graph as dictionaries: nodes by key, edges by id."""

    nodes: Nodes = field(default_factory=dict)
    edges: Edges = field(default_factory=dict)

    def copy(self) -> State:
        return State({key: dict(row) for key, row in self.nodes.items()}, dict(self.edges))


class Model:
    """Commits with their states and parents, and where each branch is."""

    def __init__(self) -> None:
        self.states: list[State] = [State()]
        self.parents: list[tuple[int, ...]] = [()]
        self.ancestors: list[frozenset[int]] = [frozenset([0])]
        """Of each commit, itself included."""
        self.made_on: list[str] = ["main"]
        self.heads = {"main": 0}
        self.origins: dict[str, str] = {}
        """The branch that a branch was created from, which has its files."""
        self.certain: set[int] = {0}
        """The commits that anybody can read; of the others some."""
        self.tags: dict[str, int] = {}

    def at(self, branch: str) -> State:
        return self.states[self.heads[branch]]

    def commit(self, branch: str, state: State, merged: int | None = None) -> None:
        number, parents = len(self.states), (self.heads[branch], *(() if merged is None else (merged,)))
        self.parents.append(parents)
        self.ancestors.append(frozenset([number]).union(*(self.ancestors[parent] for parent in parents)))
        self.states.append(state)
        self.made_on.append(branch)
        self.heads[branch] = number
        self.certain.add(number)

    def create(self, branch: str, origin: str, commit: int | None = None) -> None:
        """Begin a branch at the head of another one, or at any commit."""
        self.heads[branch] = self.heads[origin] if commit is None else commit
        self.origins[branch] = origin if commit is None else self.made_on[commit]

    def line(self, older: int, newer: int) -> list[int]:
        """The commits that lead from one to another along first parents, both included."""
        found = [newer]
        while found[0] != older:
            found.insert(0, self.parents[found[0]][0])
        return found

    # -- what may go

    def is_built_on(self, branch: str) -> bool:
        """Whether another branch was created from this one, or a tag names a commit of it."""
        children = (origin for name, origin in self.origins.items() if name in self.heads)
        return branch in (*children, *(self.made_on[commit] for commit in self.tags.values()))

    def is_base(self, branch: str) -> bool:
        """Whether two others have parted at a commit of this branch."""
        others = [head for name, head in self.heads.items() if name != branch]
        return any(self.made_on[commit] == branch for commit in self.needed_between(others))

    def delete(self, branch: str) -> None:
        self.certain -= {commit for commit, made in enumerate(self.made_on) if made == branch}
        self.made_on = [f"{made} that was" if made == branch else made for made in self.made_on]
        del self.heads[branch], self.origins[branch]

    def clean_up(self) -> None:
        """What nobody needs may be gone."""
        named = {*self.heads.values(), *self.tags.values()}
        self.certain &= named | self.needed_between(list(self.heads.values()))

    def needed_between(self, heads: list[int]) -> set[int]:
        return set().union(
            *(self.needed(self.bases(one, other)) for one in heads for other in heads if one < other), set()
        )

    def needed(self, bases: list[int]) -> set[int]:
        """What a merge is compared with: its bases and, of several, what those are compared with."""
        older = (self.older(bases, number) for number in range(1, len(bases)))
        return set(bases).union(*(self.needed(found) for found in older))

    # -- merging

    def bases(self, one: int, other: int) -> list[int]:
        return self.newest(self.ancestors[one] & self.ancestors[other])

    def newest(self, common: frozenset[int]) -> list[int]:
        return [c for c in sorted(common) if not any(c in self.ancestors[o] for o in common if o != c)]

    def merge(self, source: str, target: str, how: How) -> tuple[str, Merge | None]:
        """The outcome and, where there is something to merge, the state of the target and what is in conflict."""
        theirs, ours = self.heads[source], self.heads[target]
        bases = self.bases(theirs, ours)
        if bases == [theirs]:
            return "already_up_to_date", None
        outcome = "fast_forward" if bases == [ours] else "crossed" if len(bases) > 1 else "merged"
        return outcome, Merge(self.virtual(bases), self.states[theirs], self.states[ours], how)

    def virtual(self, bases: list[int]) -> State:
        """The newest common ancestors merged among themselves; where they disagree, nothing is known."""
        found = self.states[bases[0]]
        for number in range(1, len(bases)):
            found = fold(self.virtual(self.older(bases, number)), found, self.states[bases[number]])
        return found

    def older(self, bases: list[int], number: int) -> list[int]:
        """What one of several ancestors and those before it come from."""
        before = frozenset[int]().union(*(self.ancestors[base] for base in bases[:number]))
        return self.newest(before & self.ancestors[bases[number]])


def fold(base: State, one: State, other: State) -> State:
    found = State()
    tables: list[tuple[Any, Any, Any, Any]] = [
        (base.nodes, one.nodes, other.nodes, found.nodes),
        (base.edges, one.edges, other.edges, found.edges),
    ]
    for b, x, y, into in tables:
        for row in b.keys() | x.keys() | y.keys():
            before, left, right = b.get(row), x.get(row), y.get(row)
            result = left if left == right else right if before == left else left if before == right else UNKNOWN
            if left != right and UNKNOWN in (before, left, right):
                result = UNKNOWN  # What is not known is not the same as something else that is not known.
            if result is not None:
                into[row] = result
    return found


def choose(kind: str, table: str, row: str | None, related: str | None, *, has_base: bool) -> Any:
    """What the function of resolutions answers: any of the answers that mean something, or none."""
    takes: list[Any] = {
        "divergent_insert": ["ours", "theirs", "base", "set"],
        "divergent_update": ["ours", "theirs", "set", *(["base"] if has_base else [])],
        "delete_vs_update": ["ours", "theirs", "set", *(["base"] if has_base else [])],
        "orphan_edge": ["ours", "theirs", "drop_edge", "keep_node"],
        "unique_violation": ["set"],
        "cardinality_violation": ["ours", "theirs"],
    }[kind]
    take = [*takes, None][zlib.crc32(f"{kind}{table}{row}{related}".encode()) % (len(takes) + 1)]
    if take != "set":
        return take
    if kind == "unique_violation":
        return {"set": {"s": f"s-{row}"}}
    return {"set": {"t": "z"} if table == "node:P" else {"w": 9.5}}


def answer(conflict: Any) -> Any:
    """The function of resolutions as the graph asks it."""
    has_base = conflict.base is not None
    return choose(str(conflict.kind), conflict.table_key, conflict.row_id, conflict.related, has_base=has_base)


class Merge:
    """One merge of states, by brute force."""

    def __init__(self, base: State, theirs: State, ours: State, how: How) -> None:
        self.base, self.theirs, self.ours, self.how = base, theirs, ours, how
        self.merged = ours.copy()
        self.got: dict[tuple[str, str], str] = {}
        """What the target gets, as opposed to what it keeps, and where from."""
        self.kept: set[str] = set()
        """Nodes that come back for an edge of ours, as ours has them."""
        self.columns: dict[tuple[str, str], set[str]] = {}
        """Where both sides have an entity and disagree: in what."""
        conflicts = [conflict for key in ("edge:E", "node:P") for conflict in self.rows(key)]
        found = self.broken()
        decided = {conflict: self.decide(conflict) for conflict in found}
        if any(decided.values()):
            for conflict, take in decided.items():
                self.settle(conflict, take)
            found = self.broken()
        self.conflicts: list[Conflict] = sorted([*conflicts, *found], key=str)

    def sides(self, key: str) -> tuple[Any, ...]:
        name = "nodes" if key == "node:P" else "edges"
        return tuple(getattr(state, name) for state in (self.base, self.theirs, self.ours, self.merged))

    def put(self, key: str, row: str, value: Any, origin: str = "theirs") -> None:
        into = self.sides(key)[3]
        self.got.pop((key, row), None)
        into.pop(row, None)
        if value is not None:
            into[row] = value
            self.got[key, row] = origin

    def rows(self, key: str) -> Iterator[Conflict]:
        b, t, o, _ = self.sides(key)
        how = self.how[key]
        for row in sorted(b.keys() | t.keys() | o.keys()):
            before, their, our = b.get(row), t.get(row), o.get(row)
            if their in (before, our):
                continue
            if our == before:
                self.put(key, row, their)
                continue
            kind = "delete_vs_update"
            if their is not None and our is not None:
                kind = "divergent_insert" if before is None else "divergent_update"
            take: Any = how if how in ("ours", "theirs") else None
            if how == "fields" and kind == "divergent_update" and before is not UNKNOWN:
                mixed = mix(before, their, our)
                if mixed is not None:
                    self.put(key, row, mixed, "mixed")
                    continue
            if how in ("resolve", "lines"):
                take = choose(kind, key, row, None, has_base=before not in (None, UNKNOWN))
            if take is None:
                self.columns[key, row] = differing(their, our)
                yield (key, kind, row, None)
            elif take == "theirs":
                self.put(key, row, their)
            elif take == "base":
                self.put(key, row, before, "base")
            elif isinstance(take, dict):
                self.put(key, row, changed(our if our is not None else their, take["set"]), "set")

    def decide(self, conflict: Conflict) -> Any:
        key, kind, row, related = conflict
        if self.how[key] == "resolve":
            return choose(kind, key, row, related, has_base=False)
        return self.how[key] if self.how[key] in ("ours", "theirs") and key == "edge:E" else None

    def settle(self, conflict: Conflict, take: Any) -> None:
        key, kind, row, related = conflict
        if take is None:
            return
        if isinstance(take, dict):
            value = self.sides(key)[3].get(row)
            if value is not None:
                self.put(key, str(row), changed(value, take["set"]), "set")
        elif kind == "orphan_edge":
            node = str(related)
            sides = [node in side.nodes for side in (self.theirs, self.ours)]
            is_theirs = (key, row) in self.got if sides[0] == sides[1] else sides[0]
            if take == "keep_node" or take == ("theirs" if is_theirs else "ours"):
                if not is_theirs:
                    self.kept.add(node)
                value = self.ours.nodes.get(node) if node in self.kept else self.theirs.nodes.get(node)
                self.restore("node:P", node, value, got=node not in self.kept)
            else:
                self.put(key, str(row), None)
        else:
            for edge in sorted(self.ours.edges.keys() | self.theirs.edges.keys()):
                there = [side.edges[edge][0] for side in (self.ours, self.theirs) if edge in side.edges]
                if related in there:
                    side = self.theirs if take == "theirs" else self.ours
                    self.restore("edge:E", edge, side.edges.get(edge), got=take == "theirs")

    def restore(self, key: str, row: str, value: Any, *, got: bool) -> None:
        self.put(key, row, value)
        if not got:
            self.got.pop((key, row), None)

    def broken(self) -> list[Conflict]:
        return list(broken(self.merged, {row: origin for (key, row), origin in self.got.items() if key == "node:P"}))


def named(row: Any) -> dict[str, Any]:
    """The columns of an entity, by name."""
    return row if isinstance(row, dict) else dict(zip(("from", "to", "w"), row, strict=True))


def differing(their: Any, our: Any) -> set[str]:
    if their is None or our is None:
        return set()
    return {name for name, value in named(their).items() if named(our)[name] != value}


def mix(before: Any, their: Any, our: Any) -> Any:
    b, t, o = named(before), named(their), named(our)
    if not all(t[name] == b[name] or o[name] == b[name] or t[name] == o[name] for name in b):
        return None
    mixed = {name: t[name] if t[name] != b[name] else o[name] for name in b}
    return mixed if isinstance(before, dict) else tuple(mixed.values())


def changed(row: Any, properties: dict[str, Any]) -> Any:
    return {**row, **properties} if isinstance(row, dict) else (row[0], row[1], properties["w"])


ORIGINS = ("set", "mixed", "base", "theirs")
"""Of two rows that share what must be unique, the one is named whose origin is later here; then, whose id is."""


def broken(state: State, touched: Mapping[str, str]) -> Iterator[Conflict]:
    """What breaks a rule of the schema, given the nodes that are new and where they come from."""
    for edge, (source, target, _) in state.edges.items():
        yield from (("edge:E", "orphan_edge", edge, end) for end in (source, target) if end not in state.nodes)
    holders: dict[str, list[str]] = {}
    for key, row in state.nodes.items():
        if row["s"] is not None:
            holders.setdefault(row["s"], []).append(key)
    for keys in holders.values():
        kept = [key for key in keys if key not in touched]
        new = sorted((k for k in keys if k in touched), key=lambda k: (ORIGINS.index(touched[k]), k))
        for place, key in enumerate(new):
            if kept:
                yield ("node:P", "unique_violation", key, kept[0])
            if place:
                yield ("node:P", "unique_violation", key, None)
    sources = [source for source, _, _ in state.edges.values()]
    yield from (
        ("edge:E", "cardinality_violation", None, source)
        for source in sorted(set(sources))
        if sources.count(source) > CARD and source in state.nodes
    )
