"""A part of a graph that is small enough to be drawn, asked for by queries.

It begins with some nodes and grows along edges of either direction, nearest nodes first, until it has as many as fit.
What did not fit is counted and told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from omnigraph.catalog.model import Catalog, EdgeType, EntityType, NodeType
from omnigraph.engine.operations.texts import read_query
from omnigraph.errors import InputError
from omnigraph.plan.node_query import node_query

NODES_MAX = 100
NODES_LIMIT = 500
"""More nodes than this are no picture any more."""
EDGES_MAX = 1_000
PROPERTIES_MAX = 12
SEEDS = 10
LABELS = ("name", "title", "label")
"""The properties that a node without a key is called by."""

Asked = Callable[[str, Mapping[str, Any], str | None], pa.Table]
"""Runs a query on the one state that is drawn: its text, its parameters, its name."""
Nodes = Mapping[str, Sequence[str | int]]
"""Ids by node type."""
Ids = dict[str, dict[str, None]]
"""Ids by type, each once, in the order they came in."""


class Beginning(Struct, frozen=True):
    """Where a drawing begins: at what a query finds, at some nodes, or anywhere."""

    query: str | None = None
    params: Mapping[str, Any] | None = None
    name: str | None = None
    nodes: Nodes | None = None

    @classmethod
    def of(
        cls,
        query: str | os.PathLike[str] | Nodes | None,
        params: Mapping[str, Any] | None,
        name: str | None,
        nodes: Nodes | None,
    ) -> Beginning:
        """What a caller says: a query as text or file, or nodes, in either place."""
        if query is not None and nodes is not None:
            raise InputError("a query and nodes are two ways to say where to begin: pass one of them")
        if isinstance(query, Mapping):
            return cls(nodes=query)
        return cls(None if query is None else read_query(query), params, name, nodes)


class DrawnNode(Struct, frozen=True):
    """One node of a drawing."""

    type_name: str
    id: str
    label: str
    properties: Mapping[str, Any]
    is_start: bool


class DrawnEdge(Struct, frozen=True):
    """All edges of one type from one node to another; `properties` are those of a single one."""

    type_name: str
    source: int
    target: int
    count: int
    properties: Mapping[str, Any]


class Neighbourhood(Struct, frozen=True):
    """What is drawn, and in words what is not."""

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    left_out: tuple[str, ...] = ()


def neighbourhood(
    catalog: Catalog,
    asked: Asked,
    beginning: Beginning,
    *,
    hops: int,
    edges: Sequence[str] = (),
    nodes_max: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> Neighbourhood:
    """The nodes to begin with and what is within so many steps of them, with the edges between all of these.

    Raises:
        InputError: a type, a property to call nodes by or a bound is not one.
    """
    nodes_max = NODES_MAX if nodes_max is None else nodes_max
    if not 1 <= nodes_max <= NODES_LIMIT:
        raise InputError(f"nodes_max must be between 1 and {NODES_LIMIT}: more is no picture any more")
    named = _labels(catalog, labels or {})
    search = _Search(catalog, asked, _edge_types(catalog, edges), nodes_max)
    search.begin(beginning)
    started = {kind: frozenset(ids) for kind, ids in search.chosen.items()}
    search.grow(nodes_max if search.is_sample else hops)
    nodes = tuple(_nodes(search, {} if search.is_sample else started, named))
    drawn = tuple(_edges(search, nodes))
    return Neighbourhood(nodes, drawn, tuple(search.left_out()))


class _Search(Struct):
    """What was chosen so far, and what there was no room for."""

    catalog: Catalog
    asked: Asked
    edge_types: Sequence[EdgeType]
    nodes_max: int
    chosen: Ids = field(default_factory=dict)
    is_sample: bool = False
    notes: list[str] = field(default_factory=list)
    passed: list[tuple[EdgeType, bool, list[str]]] = field(default_factory=list)
    """The steps that met more than there was room for: along which edges, in which direction, from which nodes."""

    @property
    def room(self) -> int:
        """How many more nodes fit."""
        return self.nodes_max - sum(map(len, self.chosen.values()))

    def add(self, found: Iterable[tuple[str, str]]) -> Ids:
        """Choose nodes while there is room; those that were new."""
        fresh: Ids = {}
        for kind, key in found:
            if self.room <= 0:
                break
            if key not in self.chosen.setdefault(kind, {}):
                self.chosen[kind][key] = None
                fresh.setdefault(kind, {})[key] = None
        return fresh

    def ask(self, text: str, **params: Any) -> pa.Table:
        """The rows of a query of ours."""
        return self.asked(text, params, None)

    def begin(self, beginning: Beginning) -> None:
        """Choose the first nodes."""
        if beginning.query is not None:
            wanted = node_query(self.catalog, beginning.query, beginning.name)
            rows = self.asked(wanted.text, beginning.params or {}, wanted.name)
            columns = [(kind, rows[column].drop_null().unique()) for column, kind in wanted.types.items()]
            self._begin_with([(kind, ids.slice(0, self.nodes_max).to_pylist(), len(ids)) for kind, ids in columns])
        elif beginning.nodes is not None:
            self._begin_with([self._named(kind, [str(each) for each in ids]) for kind, ids in beginning.nodes.items()])
        else:
            self._begin_anywhere()

    def _begin_with(self, found: Sequence[tuple[str, Sequence[str], int]]) -> None:
        """Choose what a query found, a node of each column in turn; `found` also tells how many there were."""
        self.add(_in_turn([(kind, key) for key in ids] for kind, ids, _ in found))
        for kind, ids, count in found:
            missed = count - sum(key in self.chosen.get(kind, {}) for key in ids)
            if missed > 0:
                self.notes.append(f"{missed:,} more {kind} to begin with")

    def _named(self, kind: str, ids: list[str]) -> tuple[str, list[str], int]:
        """Those of some ids that there are."""
        _node_type(self.catalog, kind)
        text = f"query q($ids: [String]) {{ match {{ $a: {kind} $a.id in $ids }} return {{ $a.id as id }} }}"
        held = set(self.ask(text, ids=ids)["id"].to_pylist())
        missing = [key for key in ids if key not in held]
        if missing:
            self.notes.append(f"{kind} {', '.join(missing[:5])}{', …' if len(missing) > 5 else ''}: there is none")
        kept = [key for key in dict.fromkeys(ids) if key in held]
        return kind, kept, len(kept)

    def _begin_anywhere(self) -> None:
        """Choose all nodes if they fit, else a few of each type, from which the sample grows."""
        kinds = sorted(self.catalog.nodes)
        count = "query q() {{ match {{ $a: {kind} }} return {{ count($a) as n }} }}"
        counts = {kind: int(self.ask(count.format(kind=kind))["n"][0].as_py()) for kind in kinds}
        whole = sum(counts.values())
        self.is_sample = whole > self.nodes_max
        most = max(1, SEEDS // max(len(kinds), 1)) if self.is_sample else self.nodes_max
        first = (
            "query q($most: I64) {{ match {{ $a: {kind} }} return {{ $a.id as id }} order {{ $a.id }} limit $most }}"
        )
        found = [self.ask(first.format(kind=kind), most=most)["id"].to_pylist() for kind in kinds]
        self.add(_in_turn([(kind, key) for key in ids] for kind, ids in zip(kinds, found, strict=True)))
        if self.is_sample:
            self.notes.append(f"the rest of {whole:,} nodes, of which this is a sample")

    def grow(self, hops: int) -> None:
        """Choose what is near, a step at a time, edges of all types and directions in turn."""
        frontier = {kind: dict(ids) for kind, ids in self.chosen.items()}
        for hop in range(1, hops + 1):
            steps = []
            for edge, outward in ((edge, outward) for edge in self.edge_types for outward in (True, False)):
                near, far = (edge.source, edge.target) if outward else (edge.target, edge.source)
                ids = list(frontier.get(near, ()))
                if ids:
                    known = self.chosen.get(far, {})
                    text = _step(edge, outward, "distinct", "$b.id as id")
                    met = self.ask(text, ids=ids, most=self.room + len(known) + 1)["id"].to_pylist()
                    steps.append(((edge, outward, ids), [(far, key) for key in met if key not in known]))
            frontier = self.add(_in_turn(fresh for _, fresh in steps))
            self.passed = [
                step for step, fresh in steps if any(key not in self.chosen.get(far, {}) for far, key in fresh)
            ]
            if self.passed or not frontier:
                if self.passed and hop < hops and not self.is_sample:
                    self.notes.append(f"everything further than {hop} step{'' if hop == 1 else 's'}")
                break

    def left_out(self) -> Iterator[str]:
        """What is not drawn, in words."""
        yield from self.notes
        if self.is_sample:
            return
        for edge, outward, ids in self.passed:
            far = edge.target if outward else edge.source
            drawn = list(self.chosen.get(far, ()))
            every = self._count(edge, outward, ids)
            left = every - self._count(edge, outward, ids, drawn)
            if left > 0:
                yield f"{left:,} more {far} along {edge.name}{' →' if outward else ' ←'}"

    def _count(self, edge: EdgeType, outward: bool, ids: list[str], among: list[str] | None = None) -> int:
        more = {} if among is None else {"among": among}
        text = _step(edge, outward, "", "count(distinct $b.id) as n", limited=False, among=among is not None)
        return int(self.ask(text, ids=ids, **more)["n"][0].as_py())


def _step(
    edge: EdgeType, outward: bool, distinct: str, columns: str, *, limited: bool = True, among: bool = False
) -> str:
    """The query for what is one step along an edge from some nodes."""
    name = _spelled(edge)
    near, step = (edge.source, f"$a $e:{name} $b") if outward else (edge.target, f"$b $e:{name} $a")
    given = "$ids: [String]" + (", $most: I64" if limited else "") + (", $among: [String]" if among else "")
    kept = " $b.id in $among" if among else ""
    end = " order { $b.id } limit $most" if limited else ""
    match = f"match {{ $a: {near} $a.id in $ids {step}{kept} }}"
    return f"query q({given}) {{ {match} return {distinct} {{ {columns} }}{end} }}"


def _nodes(search: _Search, started: Mapping[str, frozenset[str]], labels: Mapping[str, str]) -> Iterator[DrawnNode]:
    """The chosen nodes with their properties, type by type."""
    for kind, ids in search.chosen.items():
        entity = search.catalog.nodes[kind]
        columns, names = _columns("a", entity, labels.get(kind))
        text = f"query q($ids: [String]) {{ match {{ $a: {kind} $a.id in $ids }} return {{ $a.id as id{columns} }} }}"
        rows = {row["id"]: row for row in search.ask(text, ids=list(ids)).to_pylist()}
        for key in ids:
            values = _values(rows[key], names)
            label = _label(entity, key, values, labels.get(kind))
            yield DrawnNode(kind, key, label, values, key in started.get(kind, ()))


def _edges(search: _Search, nodes: Sequence[DrawnNode]) -> Iterator[DrawnEdge]:
    """The edges between the chosen nodes; those that run beside each other are one."""
    places = {(node.type_name, node.id): place for place, node in enumerate(nodes)}
    room = EDGES_MAX
    for edge in search.edge_types:
        ends = [list(search.chosen.get(kind, ())) for kind in (edge.source, edge.target)]
        if not all(ends):
            continue
        columns, names = _columns("e", edge, None)
        text = (
            f"query q($from: [String], $to: [String], $most: I64) {{ match {{ $a: {edge.source} $a.id in $from"
            f" $b: {edge.target} $b.id in $to $a $e:{_spelled(edge)} $b }}"
            f" return {{ $a.id as a, $b.id as b{columns} }} order {{ $a.id, $b.id }} limit $most }}"
        )
        rows = search.ask(text, **{"from": ends[0], "to": ends[1]}, most=room + 1).to_pylist()
        if len(rows) > room:
            search.notes.append(f"edges beyond the first {EDGES_MAX:,}")
        beside: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
        for row in rows[:room]:
            beside.setdefault((places[edge.source, row["a"]], places[edge.target, row["b"]]), []).append(row)
        room -= min(len(rows), room)
        for (source, target), joined in beside.items():
            values = _values(joined[0], names) if len(joined) == 1 else {}
            yield DrawnEdge(edge.name, source, target, len(joined), values)
        if not room:
            return


def _columns(variable: str, entity: EntityType, label: str | None) -> tuple[str, list[str]]:
    """The properties that a drawing tells, as columns of a query, and their names."""
    plain = [name for name, each in entity.properties.items() if each.type.is_plain]
    wanted = [*((label,) if label else ()), *entity.key, *(name for name in LABELS if name in plain), *plain]
    names = [name for name in dict.fromkeys(wanted) if name in plain][:PROPERTIES_MAX]
    return "".join(f", ${variable}.{name} as p{place}" for place, name in enumerate(names)), names


def _values(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: row[f"p{place}"] for place, name in enumerate(names) if row[f"p{place}"] is not None}


def _label(entity: NodeType, key: str, values: Mapping[str, Any], label: str | None) -> str:
    """What a node is called: by the property that was asked for, its key, its name, or in the end its id."""
    if label is not None:
        return str(values.get(label, key))
    if entity.key:
        return key
    found = next((str(values[name]) for name in LABELS if name in values), None)
    return found or f"…{key[-6:]}"


def _labels(catalog: Catalog, labels: Mapping[str, str]) -> Mapping[str, str]:
    for kind, name in labels.items():
        found = _node_type(catalog, kind).properties.get(name)
        if found is None or not found.type.is_plain:
            raise InputError(f"'{kind}' has no property '{name}' that could be written beside its nodes")
    return labels


def _node_type(catalog: Catalog, name: str) -> NodeType:
    found = catalog.nodes.get(name)
    if found is None:
        raise InputError(f"the schema has no node type '{name}'")
    return found


def _edge_types(catalog: Catalog, names: Sequence[str]) -> list[EdgeType]:
    wanted = names or sorted(catalog.edges)
    unknown = [name for name in wanted if name.lower() not in catalog.edges_by_lower_name]
    if unknown:
        raise InputError(f"the schema has no edge type '{unknown[0]}'")
    return list({name.lower(): catalog.edges_by_lower_name[name.lower()] for name in wanted}.values())


def _spelled(edge: EdgeType) -> str:
    """An edge type as queries name it."""
    return edge.name[0].lower() + edge.name[1:]


def _in_turn(lists: Iterable[Sequence[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """The first of each list, then the second of each, and so on."""
    for row in zip_longest(*lists):
        yield from (each for each in row if each is not None)
