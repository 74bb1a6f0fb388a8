"""Questions, each with the answer that plain loops over the dictionaries give.

Every kind of derived state answers some of them: sorted values, indexes of tables, codes, adjacency, marks, counts of
ways, orders, text indexes and sketches.
"""

from __future__ import annotations

import datetime as dt
import itertools
import operator
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.property.differential import composed
from tests.property.differential.world import KINDS, Chance, State, kind_of, place_id

Rows = list[tuple[Any, ...]]
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Question:
    """A query with its parameters; `branch` and `at` say of which state it is asked."""

    text: str
    params: dict[str, Any]
    ordered: bool = False
    branch: str = "main"
    at: str | None = None

    def __str__(self) -> str:
        return f"{self.text} {self.params} on {self.branch} at {self.at}"


Answer = Callable[[State], Rows] | None
"""None where nobody works it out plainly."""


def comparable(rows: Iterable[tuple[Any, ...]], ordered: bool) -> Rows:
    """Rows in a form that two answers can be compared in; the two zeros are one value, and either may be told."""
    found = [tuple(value + 0.0 if isinstance(value, float) else value for value in row) for row in rows]
    return found if ordered else sorted(found, key=repr)


def shown_as(value: Any) -> Any:
    """A value as a result tells it."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value.isoformat() if isinstance(value, dt.date) else value


# --- the dictionaries, seen as a graph --------------------------------------------------------------------------------


def out(state: State) -> dict[str, set[str]]:
    """Whom everybody knows."""
    found: dict[str, set[str]] = {key: set() for key in state.people}
    for edge in state.knows.values():
        found[edge["from"]].add(edge["to"])
    return found


def into(state: State) -> dict[str, set[str]]:
    """Who knows everybody."""
    found: dict[str, set[str]] = {key: set() for key in state.people}
    for edge in state.knows.values():
        found[edge["to"]].add(edge["from"])
    return found


def homes(state: State) -> dict[str, set[str]]:
    """Where everybody lives."""
    found: dict[str, set[str]] = {key: set() for key in state.people}
    for edge in state.lives.values():
        found[edge["from"]].add(edge["to"])
    return found


def reached(links: dict[str, set[str]], start: str, most: int) -> set[str]:
    """Everybody within some hops, by shortest distance; the start itself only over an edge to itself."""
    distance, ring, found = {start: 0}, [start], set()
    for hop in range(1, most + 1):
        following = []
        for node in ring:
            for other in links[node]:
                if other == node:
                    found.add(node)
                if other not in distance:
                    distance[other] = hop
                    following.append(other)
        ring = following
    return (found | set(distance)) - ({start} - found)


# --- asking -----------------------------------------------------------------------------------------------------------


class Asker:
    """Draws questions about a state."""

    def __init__(self, rng: random.Random, chance: Chance, *, is_large: bool = False) -> None:
        self.rng = rng
        self.is_large = is_large
        """Whether scores of texts take too long to be worked out plainly; then they are compared among readers."""
        self.chance = chance

    def draw(self, state: State) -> tuple[Question, Answer]:
        """One question and how to answer it."""
        kinds = [
            self.lookup,
            self.lookup,
            self.lookup,
            self.lookup_rows,
            self.hops,
            self.hops,
            self.ways,
            self.closing,
            self.negation,
            self.grouped,
            self.placed,
            self.ranged,
            self.tagged,
            self.counted,
            self.narrowed,
            self.edges,
            # Many kinds of questions in one.
            self.searched,
            self.searched,
            self.searched,
            self.searched,
            self.joined,
            self.joined,
            self.joined,
            self.joined,
        ]
        return self.rng.choice(kinds)(state)

    def value(self, state: State, name: str) -> Any:
        """A value that somebody has, or that nobody has."""
        held = [props[name] for props in state.people.values() if props.get(name) is not None]
        if name == "key":
            held = list(state.people)
        if held and self.rng.random() < 0.8:
            return self.rng.choice(held)
        while (value := self.chance.value(name)) is None:
            continue
        return value

    def _key(self, state: State) -> str:
        if state.people and self.rng.random() < 0.9:
            return self.rng.choice(list(state.people))
        return self.chance.key()

    def lookup(self, state: State) -> tuple[Question, Answer]:
        """Who has a value."""
        names = ["key", "name", "i32", "i64", "u32", "u64", "day", "at", "f32", "f64", "flag", "kind"]
        # A property that schema changes come and go with is asked for more often: its columns change places.
        name = self.rng.choice(names + [state.schema.extra] * 6 if state.schema.extra else names)
        value = self.value(state, name)
        text = f"query q($v: {kind_of(name)}) {{ match {{ $p: Person {{ {name}: $v }} }} return {{ $p.key as k }} }}"

        def answer(state: State) -> Rows:
            if name == "key":
                return [(value,)] if value in state.people else []
            return [(key,) for key, props in state.people.items() if props.get(name) == value]

        return Question(text, {"v": value}), answer

    def lookup_rows(self, state: State) -> tuple[Question, Answer]:
        """Everything of who has a key, or a name."""
        by = self.rng.choice(["key", "name", "i32"])
        value = self.value(state, by)
        columns = ["name", "i32", "i64", "u32", "u64", "f32", "f64", "flag", "kind", "tags", "bio"]
        columns = columns + ([state.schema.extra] if state.schema.extra else [])
        shown = ", ".join(f"$p.{name} as c{place}" for place, name in enumerate(["key", *columns]))
        text = f"query q($v: {KINDS[by]}) {{ match {{ $p: Person {{ {by}: $v }} }} return {{ {shown} }} }}"

        def answer(state: State) -> Rows:
            return [
                (key, *(props.get(name) for name in columns))
                for key, props in state.people.items()
                if (key if by == "key" else props.get(by)) == value
            ]

        return Question(text, {"v": value}), answer

    def hops(self, state: State) -> tuple[Question, Answer]:
        """Whom somebody reaches, either way or both, in one hop or up to three."""
        key, most, way = self._key(state), self.rng.choice([1, 1, 2, 3]), self.rng.choice(["out", "in", "both"])
        bounds = "" if most == 1 else f"{{1,{most}}}"
        if way == "both" and most == 1:
            clause = "$a <knows> $b"
        else:
            way = "out" if way == "both" else way
            clause = f"$a knows{bounds} $b" if way == "out" else f"$b knows{bounds} $a"
        shown = self.rng.choice(["$b.key as k", "$b.key as k, $b.name as n"])
        text = f"query q($v: String) {{ match {{ $a: Person {{ key: $v }} {clause} }} return {{ {shown} }} }}"
        named = "$b.name" in shown

        def answer(state: State) -> Rows:
            if key not in state.people:
                return []
            forth, back = out(state), into(state)
            if way == "both":
                links = {each: forth[each] | back[each] for each in forth}
            else:
                links = forth if way == "out" else back
            found = reached(links, key, most)
            return [(each, state.people[each].get("name")) if named else (each,) for each in found]

        return Question(text, {"v": key}), answer

    def ways(self, state: State) -> tuple[Question, Answer]:
        """Two hops or three, one after the other, listed or counted."""
        key, hops, counted = self._key(state), self.rng.choice([2, 2, 3]), self.rng.random() < 0.6
        names = "abcd"[: hops + 1]
        clauses = " ".join(f"${one} knows ${two}" for one, two in itertools.pairwise(names))
        begins = self.rng.random() < 0.6
        first = "$a: Person { key: $v }" if begins else "$a: Person"
        last = names[-1]
        shown = f"count(${last}) as n" if counted else f"$a.key as a, ${last}.key as z"
        declared, params = ("$v: String", {"v": key}) if begins else ("", {})
        text = f"query q({declared}) {{ match {{ {first} {clauses} }} return {{ {shown} }} }}"

        def answer(state: State) -> Rows:
            links = out(state)
            starts = [key] if begins and key in state.people else [] if begins else list(state.people)
            paths = [(start, start) for start in starts]
            for _ in range(hops):
                paths = [(start, other) for start, end in paths for other in links[end]]
            return [(len(paths),)] if counted else paths

        return Question(text, params), answer

    def closing(self, state: State) -> tuple[Question, Answer]:
        """Patterns that close: triangles, pairs who know each other, and who live together."""
        kind = self.rng.choice(["triangle", "mutual", "together"])
        body = {
            "triangle": "$a knows $b $b knows $c $a knows $c",
            "mutual": "$a knows $b $b knows $a",
            "together": "$a knows $b $a lives $x $b lives $x",
        }[kind]
        counted = self.rng.random() < 0.4
        shown = "count($a) as n" if counted else "$a.key as a, $b.key as b"
        text = f"query q() {{ match {{ {body} }} return {{ {shown} }} }}"

        def answer(state: State) -> Rows:
            links, home = out(state), homes(state)
            pairs = [(a, b) for a in links for b in links[a]]
            if kind == "triangle":
                found = [(a, b) for a, b in pairs for c in links[b] if c in links[a]]
            elif kind == "mutual":
                found = [(a, b) for a, b in pairs if a in links[b]]
            else:
                found = [(a, b) for a, b in pairs for _ in home[a] & home[b]]
            return [(len(found),)] if counted else found

        return Question(text, {}), answer

    def negation(self, state: State) -> tuple[Question, Answer]:
        """Who knows nobody, is known by nobody, lives nowhere, or is not known back."""
        kind = self.rng.choice(["knows", "known", "lives", "back"])
        body = {
            "knows": "$a: Person not { $a knows $_ }",
            "known": "$a: Person not { $b knows $a }",
            "lives": "$a: Person not { $a lives $_ }",
            "back": "$a knows $b not { $b knows $a }",
        }[kind]
        shown = "$a.key as a, $b.key as b" if kind == "back" else "$a.key as a"
        text = f"query q() {{ match {{ {body} }} return {{ {shown} }} }}"

        def answer(state: State) -> Rows:
            links, back, home = out(state), into(state), homes(state)
            if kind == "back":
                return [(a, b) for a in links for b in links[a] if a not in links[b]]
            chosen = {"knows": links, "known": back, "lives": home}[kind]
            return [(a,) for a in state.people if not chosen[a]]

        return Question(text, {}), answer

    def grouped(self, state: State) -> tuple[Question, Answer]:
        """By name or by place, how many and how much."""
        kind = self.rng.choice(["name", "kind", "flag", "u64", "f64", "place", "known"])
        shown = "count($p) as n, min($p.i32) as low, max($p.i32) as high, sum($p.i32) as total"
        own = ("$p: Person", f"$p.{kind} as g")
        body, by = {
            "place": ("$p lives $x", "$x.name as g"),
            "known": ("$q knows $p", "$q.name as g"),
        }.get(kind, own)
        text = f"query q() {{ match {{ {body} }} return {{ {by}, {shown} }} }}"

        def answer(state: State) -> Rows:
            if kind == "place":
                called = {place: shown_as(props["name"]) for place, props in state.places.items()}
                met = [(called[place], key) for key, places in homes(state).items() for place in places]
            elif kind != "known":
                met = [(props.get(kind), key) for key, props in state.people.items()]
            else:
                met = [(state.people[a].get("name"), b) for a, others in out(state).items() for b in others]
            groups: dict[Any, list[str]] = {}
            for group, key in met:
                groups.setdefault(group, []).append(key)
            rows = []
            for group, keys in groups.items():
                numbers = [state.people[key].get("i32") for key in keys]
                numbers = [number for number in numbers if number is not None]
                total = float(sum(numbers)) if numbers else None
                rows.append((group, len(keys), min(numbers, default=None), max(numbers, default=None), total))
            return rows

        return Question(text, {}), answer

    def placed(self, state: State) -> tuple[Question, Answer]:
        """The place of a name, whatever type its key has, and who lives there."""
        name = self.rng.choice(self.chance.places)
        body, shown = self.rng.choice(
            [("$x: Place { name: $v }", "$x.size as k"), ("$x: Place { name: $v } $p lives $x", "$p.key as k")]
        )
        text = f"query q($v: {state.schema.place}) {{ match {{ {body} }} return {{ {shown} }} }}"

        def answer(state: State) -> Rows:
            place = place_id(name)
            if "lives" in body:
                return [(key,) for key, places in homes(state).items() if place in places]
            return [(state.places[place].get("size"),)] if place in state.places else []

        return Question(text, {"v": name}), answer

    def ranged(self, state: State) -> tuple[Question, Answer]:
        """Who is below a value, above it, or has another."""
        name = self.rng.choice(["name", "i32", "i64", "u32", "u64", "day", "at", "f32", "f64"])
        sign = self.rng.choice(list(SIGNS))
        value = self.value(state, name)
        text = f"query q($v: {kind_of(name)}) {{ match {{ $p: Person $p.{name} {sign} $v }} return {{ $p.key as k }} }}"

        def answer(state: State) -> Rows:
            held = ((key, props.get(name)) for key, props in state.people.items())
            return [(key,) for key, other in held if other is not None and SIGNS[sign](other, value)]

        return Question(text, {"v": value}), answer

    def tagged(self, state: State) -> tuple[Question, Answer]:
        """Whose list has a text."""
        value = self.rng.choice(["a", "b", "", "nobody"])
        text = "query q($v: String) { match { $p: Person $p.tags contains $v } return { $p.key as k, $p.tags as t } }"

        def answer(state: State) -> Rows:
            held = ((key, props.get("tags")) for key, props in state.people.items())
            return [(key, tags) for key, tags in held if tags is not None and value in tags]

        return Question(text, {"v": value}), answer

    def counted(self, state: State) -> tuple[Question, Answer]:
        """How many there are of each type, and how many hops lead from everybody."""
        kind = self.rng.choice(["people", "pairs", "edges", "degrees", "things"])
        if kind == "things" and not state.schema.types:
            kind = "people"
        if kind == "things":
            name = self.rng.choice(state.schema.types)
            text = f"query q() {{ match {{ $t: {name} }} return {{ $t.key as k, $t.n as n }} }}"
            return Question(text, {}), lambda state: [
                (key, props.get("n")) for key, props in state.things.get(name, {}).items()
            ]
        body, shown = {
            "people": ("$p: Person", "count($p) as n"),
            "pairs": ("$a knows $b", "count($b) as n"),
            "edges": ("$a $e:knows $b", "count($e) as n"),
            "degrees": ("$a knows $b", "$a.key as k, count($b) as n"),
        }[kind]
        text = f"query q() {{ match {{ {body} }} return {{ {shown} }} }}"

        def answer(state: State) -> Rows:
            links = out(state)
            if kind == "people":
                return [(len(state.people),)]
            if kind == "pairs":
                return [(sum(map(len, links.values())),)]
            if kind == "edges":
                return [(len(state.knows),)]
            return [(key, len(others)) for key, others in links.items() if others]

        return Question(text, {}), answer

    def narrowed(self, state: State) -> tuple[Question, Answer]:
        """Whom everybody of some name knows, of those above a number, which is remembered per condition."""
        value = self.rng.choice([0, 1, 2])
        text = (
            f"query q() {{ match {{ $a knows $b $b.i32 > {value} $a.i32 >= 0 }}"
            " return { $a.key as a, $b.key as b } }"
        )

        def answer(state: State) -> Rows:
            number = {key: props.get("i32") for key, props in state.people.items()}
            return [
                (a, b)
                for a, others in out(state).items()
                for b in others
                if number[a] is not None and number[a] >= 0 and number[b] is not None and number[b] > value
            ]

        return Question(text, {}), answer

    def edges(self, state: State) -> tuple[Question, Answer]:
        """Every edge of somebody, parallel ones too, with what it holds."""
        key, forward = self._key(state), self.rng.random() < 0.5
        clause = "$a $e:knows $b" if forward else "$b $e:knows $a"
        text = (
            f"query q($v: String) {{ match {{ $a: Person {{ key: $v }} {clause} }}"
            " return { $b.key as k, $e.tag as t, $e.since as s } }"
        )
        near, far = ("from", "to") if forward else ("to", "from")

        def answer(state: State) -> Rows:
            return [(e[far], e["tag"], e.get("since")) for e in state.knows.values() if e[near] == key]

        return Question(text, {"v": key}), answer

    def searched(self, state: State) -> tuple[Question, Answer]:
        """Words, vectors, both together, and orders; answered by the plain evaluator."""
        declared, body, given = composed.searched(self.rng)
        text = f"query q({declared}) {{ {body} }}"
        ordered = "order" in body
        if self.is_large:
            return Question(text, given, ordered=ordered), None
        return Question(text, given, ordered=ordered), composed.answer_of(text, given)

    def joined(self, state: State) -> tuple[Question, Answer]:
        """Edges and what they hold, groups, blocks and paths; answered by the plain evaluator."""
        if self.is_large:
            return self.searched(state)  # The ways through a large graph are more than a test can hold.
        declared, body, given = composed.joined(self.rng, state, self._key(state))
        text = f"query q({declared}) {{ {body} }}"
        return Question(text, given), composed.answer_of(text, given)
