"""The same comparison at sizes where what is kept on disk and fetched row by row begins: 200,000 rows.

The dictionaries of the machine and answers that list every way are too much for a graph so large. Here the plain way
is numpy over the columns, and every question has a small answer: a few starts, counts, groups, the first few. The
program is drawn so that the table passes its threshold in both directions, again and again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tests.property.differential.machine import Counts, Disagreement
from tests.property.differential.questions import Question, Rows, comparable
from tests.property.differential.witnesses import Child, Found, ask, ask_together, forget_some
from tests.property.differential.world import Props, Schema, Step, perform, records_of

from omnigraph.engine.read.cache.persist import EDGES_MIN
from omnigraph.engine.read.columns.tables import COLD_ROWS_MIN
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import edge_key, node_key

Ints = npt.NDArray[np.int64]
NAMES = ["ana", "bo", "bob", "", "a-rather-long-name-1"]
SINCE = [None, 1, 2, 3]
assert COLD_ROWS_MIN == EDGES_MIN, "one program passes both thresholds"
NONE = -9
"""Stands for null among numbers."""
Plain = tuple[Question, Callable[["Columns"], Rows]]


@dataclass(frozen=True)
class Columns:
    """The graph as it should be: people by number, in `names` and `i32`, and edges as columns."""

    keys: dict[str, int]
    names: Ints
    i32: Ints
    ends: Ints
    """Two rows: where each edge begins and where it ends."""
    tags: Ints
    since: Ints

    def key(self, number: int) -> str:
        return _key(number)

    def edges_of(self, key: str, end: int = 0) -> Ints:
        return np.flatnonzero(self.ends[end] == self.keys.get(key, -1))

    @cached_property
    def pairs(self) -> Ints:
        """The ends of edges, parallel ones once."""
        size = len(self.names)
        return np.stack(np.divmod(np.unique(self.ends[0] * size + self.ends[1]), size))

    def beyond(self, nodes: Ints, near: Ints, far: Ints) -> Ints:
        """Where the edges lead that begin at some nodes, for each time a node is named."""
        order = np.argsort(near, kind="stable")
        low, high = (np.searchsorted(near[order], nodes, side=side) for side in ("left", "right"))
        return far[
            order[np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)] or [np.empty(0, int)])]
        ]

    def with_people(self, rows: Sequence[Props]) -> Columns:
        keys, names, i32 = dict(self.keys), self.names.copy(), self.i32.copy()
        for row in rows:
            number = int(row["key"].removeprefix("p"))
            if number >= len(names):
                more = np.full(number + 1 - len(names), NONE)
                names, i32 = np.concatenate((names, more)), np.concatenate((i32, more))
            keys[row["key"]] = number
            names[number] = NAMES.index(row["name"])
            i32[number] = NONE if row.get("i32") is None else row["i32"]
        return replace(self, keys=keys, names=names, i32=i32)

    def with_edges(self, rows: Sequence[Props]) -> Columns:
        ends = np.array([[self.keys[row[end]] for row in rows] for end in ("from", "to")], dtype=np.int64)
        tags = np.array([row["tag"] for row in rows], dtype=np.int64)
        since = np.array([NONE if row["since"] is None else row["since"] for row in rows], dtype=np.int64)
        return replace(
            self,
            ends=np.concatenate((self.ends, ends), axis=1),
            tags=np.concatenate((self.tags, tags)),
            since=np.concatenate((self.since, since)),
        )

    def without_edges(self, gone: npt.NDArray[np.bool_]) -> Columns:
        return replace(self, ends=self.ends[:, ~gone], tags=self.tags[~gone], since=self.since[~gone])

    def without_person(self, key: str) -> Columns:
        number = self.keys[key]
        keys = {name: held for name, held in self.keys.items() if name != key}
        return replace(self.without_edges((self.ends == number).any(axis=0)), keys=keys)


def _key(number: int) -> str:
    return f"p{number}"


def _null(number: int) -> int | None:
    return None if number == NONE else int(number)


def _column(numbers: Ints) -> pa.Array:
    return pa.array(numbers, mask=numbers == NONE)


class LargeMachine:
    """One program on one graph whose edges, or people, are about as many as the threshold."""

    def __init__(
        self, root: Path, seed: int, children: Sequence[Child], counts: Counts, people: int, edges: int
    ) -> None:
        self.rng, self.seed, self.counts, self.root = random.Random(seed), seed, counts, root
        self.writer, self.cold = children
        self.done: list[str] = []
        self.past: list[tuple[str, Columns]] = []
        self.warm: Graph = create(root, Schema().text)
        self.lagging: Graph = connect(root, read_only=True)
        self.crosses_people = people > edges
        self.held = self._loaded(people, edges)
        self.next_person, self.next_tag = people, edges
        self.sides: Counter[bool] = Counter()
        """How often questions were asked below the threshold, and how often at it or above."""

    def _loaded(self, people: int, edges: int) -> Columns:
        rng = np.random.default_rng(self.seed)
        i32 = rng.choice([NONE, -2, 0, 1, 2, 3], people)
        # A few have most of the friends, so that rows of a start are not all alike.
        ends = np.stack([rng.integers(0, people, edges), (people * rng.power(0.5, edges)).astype(np.int64)])
        keys = {_key(number): number for number in range(people)}
        columns = Columns(
            keys, rng.integers(0, len(NAMES), people), i32, ends, np.arange(edges), rng.choice([NONE, 1, 2, 3], edges)
        )
        texts = np.array(list(keys), dtype=object)
        persons = {"key": pa.array(texts, pa.string()), "name": pa.array([NAMES[number] for number in columns.names])}
        persons["i32"] = pa.array(i32, pa.int32(), mask=i32 == NONE)
        knows = {"from": pa.array(texts[ends[0]], pa.string()), "to": pa.array(texts[ends[1]], pa.string())}
        knows |= {"tag": columns.tags, "since": pa.array(columns.since, pa.int32(), mask=columns.since == NONE)}
        self.warm.load({"Person": pa.table(persons), "Knows": pa.table(knows)}, engine="local")
        return columns

    # --- steps --------------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Compare, and again after each of so many steps."""
        for _ in range(3):
            self.compare()
        for _ in range(steps):
            self._step()
            self.compare()
        self._check_scan()

    @property
    def rows(self) -> int:
        """How many there are of what is near the threshold."""
        return len(self.held.keys) if self.crosses_people else len(self.held.tags)

    def _step(self) -> None:
        held = self.held
        growing = self.rows < COLD_ROWS_MIN or self.rng.random() < 0.2
        verb = self.rng.choice(
            ["grow" if growing else "shrink"] * 5 + ["relate", "update", "optimize", "forget", "reopen"]
        )
        self.counts.steps[f"large, {verb}"] += 1
        if verb == "forget":
            forget_some(random.Random(self.rng.random()))
        elif verb == "reopen":
            self.warm.close()
            self.warm = connect(self.root)
        else:
            step, self.held = getattr(self, f"_{verb}")(held)
            elsewhere = self.rng.random() < 0.4
            self.done.append(f"{str(step)[:500]}{' (elsewhere)' if elsewhere else ''}")
            head = str(self.warm.snapshot("main").head)
            if all(commit != head for commit, _ in self.past):
                self.past = [*self.past[-5:], (head, held)]
            if elsewhere:
                self.writer.perform(step)
            else:
                perform(self.warm, step)

    def _grow(self, held: Columns) -> tuple[Step, Columns]:
        """More of what is near the threshold, by a mutation or a load."""
        count = self.rng.choice([1, 2, 3] if self.crosses_people else [1, 2, 30])
        people: list[Props] = []
        for _ in range(count if self.crosses_people else 1):
            people.append({"key": _key(self.next_person), "name": self.rng.choice(NAMES), "i32": self._i32()})
            self.next_person += 1
        keys = [*self._starts(3), *(person["key"] for person in people)]
        edges = []
        for _ in range(count):
            ends = {"from": self.rng.choice(keys), "to": self.rng.choice(keys)}
            edges.append({**ends, "tag": self.next_tag, "since": self.rng.choice(SINCE)})
            self.next_tag += 1
        given = {"Person": people, "Knows": edges}
        after = held.with_people(people).with_edges(edges)
        if count > 2:
            return Step("load", "main", (self.rng.choice(["append", "merge"]), records_of(given))), after
        return Step("insert", "main", given), after

    def _shrink(self, held: Columns) -> tuple[Step, Columns]:
        """A person with all edges, all edges from somebody, or one edge."""
        kind = self.rng.choice(["person", "from", "tag"]) if not self.crosses_people else "person"
        key = self.rng.choice(self._starts(4))
        if kind == "person":
            return Step("delete", "main", ("Person", "key", key)), held.without_person(key)
        if kind == "from":
            return Step("delete", "main", ("Knows", "from", key)), held.without_edges(held.ends[0] == held.keys[key])
        tag = int(self.rng.choice(held.tags))
        return Step("delete", "main", ("Knows", "tag", tag)), held.without_edges(held.tags == tag)

    def _relate(self, held: Columns) -> tuple[Step, Columns]:
        tag, since = int(self.rng.choice(held.tags)), self.rng.choice(SINCE)
        changed = np.where(held.tags == tag, NONE if since is None else since, held.since)
        return Step("relate", "main", (tag, since)), replace(held, since=changed)

    def _update(self, held: Columns) -> tuple[Step, Columns]:
        key, value = self.rng.choice(self._starts(4)), self._i32()
        i32 = held.i32.copy()
        i32[held.keys[key]] = NONE if value is None else value
        return Step("update", "main", (("key", key), ("i32", value))), replace(held, i32=i32)

    def _optimize(self, held: Columns) -> tuple[Step, Columns]:
        return Step("optimize"), held

    def _i32(self) -> int | None:
        return self.rng.choice([None, -2, 0, 1, 2, 3])

    def _starts(self, count: int) -> list[str]:
        """Keys of people who are there: the newest, one with many friends, and others."""
        known = [key for key in map(_key, (self.next_person - 1, self.rng.randrange(40))) if key in self.held.keys]
        names = list(self.held.keys)
        return [*known, *(self.rng.choice(names) for _ in range(count))][:count]

    # --- comparing ----------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Ask everybody the same questions, of now and of a commit of the past."""
        self.sides[self.rows >= COLD_ROWS_MIN] += 1
        drawn = [(plain, self.held, None) for plain in self.rng.sample(self._questions(self.held), 6)]
        if self.past:
            commit, held = self.rng.choice(self.past)
            drawn += [(plain, held, commit) for plain in self.rng.sample(self._questions(held), 2)]
        questions = [replace(question, at=at) for (question, _), _, at in drawn]
        expected = [comparable(answer(held), question.ordered) for (question, answer), held, _ in drawn]
        cold = self.cold.begin_asking(questions, cold=True) if self.rng.random() < 0.4 else None
        for found in ask_together(self.warm, questions, 2) if self.rng.random() < 0.2 else [ask(self.warm, questions)]:
            self._agree("large, warm", questions, expected, found)
        if self.rng.random() < 0.5:
            self._agree("large, lagging", questions, expected, ask(self.lagging, questions))
        if self.rng.random() < 0.4:
            self._agree("large, elsewhere", questions, expected, self.writer.ask(questions))
        if cold is not None:
            self._agree("large, cold", questions, expected, cold())
        if self.rng.random() < 0.3:
            self._check_scan()

    def _agree(self, who: str, questions: Sequence[Question], expected: Sequence[Rows], found: Sequence[Found]) -> None:
        self.counts.comparisons[who] += len(questions)
        for question, right, got in zip(questions, expected, found, strict=True):
            if got != right:
                asked = f"{who} was asked {question}\n  it said {str(got)[:2000]}\n  and it is {str(right)[:2000]}"
                self._fail(asked)

    def _check_scan(self) -> None:
        """Read the tables as they are stored, with nothing derived."""
        snapshot, held = self.warm.snapshot("main"), self.held
        edges = snapshot.open(edge_key("Knows")).scan(["src", "dst", "tag", "since"]).sort_by("tag")
        order = np.argsort(held.tags)
        keys = np.array([_key(number) for number in range(len(held.names))], dtype=object)
        right = {
            "src": pa.array(keys[held.ends[0][order]], pa.string()),
            "dst": pa.array(keys[held.ends[1][order]], pa.string()),
            "tag": pa.array(held.tags[order]),
            "since": _column(held.since[order]),
        }
        people = snapshot.open(node_key("Person")).scan(["key", "name", "i32"]).sort_by("key")
        names = sorted(held.keys)
        numbers = np.array([held.keys[key] for key in names])
        there = {
            "key": pa.array(names),
            "name": pa.array(np.array(NAMES, dtype=object)[held.names[numbers]], pa.string()),
            "i32": _column(held.i32[numbers]),
        }
        for name, table, meant in (("Knows", edges, right), ("Person", people, there)):
            self.counts.comparisons["large, scan"] += 1
            for column, values in meant.items():
                if not table[column].cast(values.type).equals(pa.chunked_array([values])):
                    self._fail(f"{name}.{column} is not stored as it should be")

    def _fail(self, what: str) -> None:
        program = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.done))
        raise Disagreement(f"seed {self.seed}: {what}\nafter these steps:\n{program}")

    # --- questions, each with its plain answer ------------------------------------------------------------------------

    def _questions(self, held: Columns) -> list[Plain]:
        key = self.rng.choice([*self._starts(2), "nobody"])
        value = self.rng.choice([0, 1, 2])
        tag = int(self.rng.choice([*held.tags[-3:], *self.rng.sample(range(self.next_tag), 2)]))
        return [
            *_of_one(key, value),
            *_of_edges(tag, value),
            *_of_all(value),
        ]


def _start(body: str, shown: str, key: str, *, ordered: bool = False) -> Question:
    text = f"query q($v: String) {{ match {{ $a: Person {{ key: $v }} {body} }} return {{ {shown} }}"
    return Question(text + " }", {"v": key}, ordered=ordered)


def _of_one(key: str, value: int) -> list[Plain]:
    """What is near one person."""

    def looked_up(held: Columns) -> Rows:
        number = held.keys.get(key)
        return [] if number is None else [(NAMES[held.names[number]], _null(held.i32[number]))]

    def listed(end: int) -> Callable[[Columns], Rows]:
        def answer(held: Columns) -> Rows:
            rows = held.edges_of(key, end)
            others, tags, since = held.ends[1 - end][rows], held.tags[rows], held.since[rows]
            return [(_key(o), int(t), _null(s)) for o, t, s in zip(others, tags, since, strict=True)]

        return answer

    def later(held: Columns) -> Rows:
        return [(int((held.since[held.edges_of(key)] > value).sum()),)]

    def ways(hops: int) -> Callable[[Columns], Rows]:
        def answer(held: Columns) -> Rows:
            near, far = held.pairs
            nodes = np.array([held.keys.get(key, -1)])
            for _ in range(hops):
                nodes = held.beyond(nodes, near, far)
            return [(len(nodes),)]

        return answer

    def grouped(held: Columns) -> Rows:
        rows = held.edges_of(key)
        firsts = held.ends[1][rows[held.since[rows] > value]]
        seconds = held.beyond(firsts, *held.ends)
        found = Counter(NAMES[held.names[node]] for node in seconds if held.i32[node] > 0)
        return sorted(found.items(), key=lambda row: (-row[1], row[0]))

    def unanswered(held: Columns) -> Rows:
        mine, theirs = (set(held.ends[1 - end][held.edges_of(key, end)].tolist()) for end in (0, 1))
        return [(len(mine - theirs),)]

    by_name = "$c.name as name, count($c) as n } order { n desc, name"
    listing = "$b.key as k, $e.tag as t, $e.since as s"
    return [
        (_start("", "$a.name as name, $a.i32 as i", key), looked_up),
        (_start("$a $e:knows $b", listing, key), listed(0)),
        (_start("$b $e:knows $a", listing, key), listed(1)),
        (_start(f"$a $e:knows $b $e.since > {value}", "count($e) as n", key), later),
        (_start("$a knows $b $b knows $c", "count($c) as n", key), ways(2)),
        (_start("$a knows $b $b knows $c $c knows $d", "count($d) as n", key), ways(3)),
        (
            _start(f"$a $e:knows $b $b $f:knows $c $e.since > {value} $c.i32 > 0", by_name, key, ordered=True),
            grouped,
        ),
        (_start("$a knows $b not { $b knows $a }", "count($b) as n", key), unanswered),
    ]


def _of_edges(tag: int, value: int) -> list[Plain]:
    """Edges by what they hold."""

    def by_tag(held: Columns) -> Rows:
        rows = np.flatnonzero(held.tags == tag)
        return [(_key(held.ends[0][row]), _key(held.ends[1][row]), _null(held.since[row])) for row in rows]

    def by_since(held: Columns) -> Rows:
        values, counts = np.unique(held.since, return_counts=True)
        return [(_null(each), int(count)) for each, count in zip(values, counts, strict=True)]

    def extremes(held: Columns) -> Rows:
        tags = held.tags[held.since > value]
        return [(int(tags.min()), int(tags.max()), len(tags))]

    shown = "$a.key as a, $b.key as b, $e.since as s"
    one = f"query q($t: I64) {{ match {{ $a $e:knows $b $e.tag = $t }} return {{ {shown} }} }}"
    grouped = "query q() { match { $a $e:knows $b } return { $e.since as s, count($e) as n } }"
    ends = "min($e.tag) as low, max($e.tag) as high, count($e) as n"
    return [
        (Question(one, {"t": tag}), by_tag),
        (Question(grouped, {}), by_since),
        (Question(f"query q() {{ match {{ $a $e:knows $b $e.since > {value} }} return {{ {ends} }} }}", {}), extremes),
    ]


def _of_all(value: int) -> list[Plain]:
    """The whole graph, counted or the first few of it."""

    def two_hops(held: Columns) -> Rows:
        near, far = held.pairs
        size = len(held.names)
        return [(int(np.bincount(far, minlength=size) @ np.bincount(near, minlength=size)),)]

    def most(held: Columns) -> Rows:
        numbers, counts = np.unique(held.pairs[0], return_counts=True)
        found = sorted((-int(count), _key(number)) for number, count in zip(numbers, counts, strict=True))
        return [(key, -count) for count, key in found[:5]]

    def filtered(held: Columns) -> Rows:
        near, far = held.pairs
        return [(int(((held.i32[near] > value) & (held.i32[far] == value)).sum()),)]

    def people(held: Columns) -> Rows:
        found = Counter(NAMES[held.names[number]] for number in held.keys.values() if held.i32[number] > value)
        return list(found.items())

    first = "$a.key as k, count($b) as n } order { n desc, k } limit 5"
    clauses = f"$a.i32 > {value} $b.i32 = {value}"
    return [
        (Question("query q() { match { $a knows $b $b knows $c } return { count($c) as n } }", {}), two_hops),
        (Question(f"query q() {{ match {{ $a knows $b }} return {{ {first} }}", {}, ordered=True), most),
        (Question(f"query q() {{ match {{ $a knows $b {clauses} }} return {{ count($b) as n }} }}", {}), filtered),
        (
            Question(
                f"query q() {{ match {{ $p: Person $p.i32 > {value} }} return {{ $p.name as s, count($p) as n }} }}", {}
            ),
            people,
        ),
    ]
