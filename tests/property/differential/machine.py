"""The differential machine: random programs, after each step of which all readers of a graph must agree.

One graph is changed, by this process and by another, and read by those who have been there all the time and by those
who have just come. A program is its seed: the same seed draws the same steps and the same questions, so a failure
is run again by its number. What is random beyond that is the timing of threads and processes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.property.differential.questions import Answer, Asker, Question, comparable
from tests.property.differential.witnesses import Child, Found, ask, ask_together, forget_some
from tests.property.differential.world import (
    KINDS,
    PLACES,
    Chance,
    Props,
    Schema,
    State,
    Step,
    apply,
    merged,
    perform,
    place_id,
    records_of,
    table_of,
)

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import TableKey, edge_key, node_key

BRANCHES = ("left", "right")
REMOVING = ("unbranch", "cleanup", "optimize", "schema")
"""Steps that remove files, or may give another table the place and the versions of one that is gone."""

Scanned = tuple[int, dict[Any, tuple[Any, ...]]]
"""How many rows a table has, and the values of each by what tells it from others."""


@dataclass
class Counts:
    """What was done and compared."""

    steps: Counter[str] = field(default_factory=Counter)
    comparisons: Counter[str] = field(default_factory=Counter)

    def told(self) -> dict[str, int]:
        """The numbers by what they count."""
        steps = {f"steps: {verb}": count for verb, count in self.steps.items()}
        return {**steps, **{f"compared: {who}": count for who, count in self.comparisons.items()}}


@dataclass(frozen=True)
class Past:
    """A commit that can be asked about, and what it held."""

    branch: str
    commit: str
    state: State
    era: int = 0
    """How often the schema had been changed by then."""


class Disagreement(AssertionError):
    """Two readers gave two answers."""


class Machine:
    """One program on one graph."""

    def __init__(
        self, root: Path, seed: int, children: Sequence[Child], *, counts: Counts, size: int = 0, edges: int = 0
    ) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.counts = counts
        self.size = size
        self.edges = edges
        self.lowered = not size
        self.place = list(PLACES)[seed % len(PLACES)]
        self.chance = Chance(self.rng, keys=24 if not size else size + 12, place=self.place)
        self.asker = Asker(self.rng, self.chance, is_large=size > 0)
        self.root = root
        self.states = {"main": State(Schema(place=self.place))}
        self.parents: dict[str, str] = {}
        self.bases: dict[str, State] = {}
        """What each branch and the one it was made of have had in common last."""
        self.past: list[Past] = []
        self.tags: dict[str, Past] = {}
        self.scanned: dict[tuple[object, ...], Scanned] = {}
        """The rows of versions that were read since files were last removed."""
        self.era = 0
        self.done: list[str] = []
        self.warm: Graph = create(root, self.states["main"].schema.text)
        self.lagging: Graph = connect(root, read_only=True)
        self.writer, self.cold = children

    # --- steps --------------------------------------------------------------------------------------------------------

    def run(self, steps: int, *, questions: int = 4) -> None:
        """Do so many steps, and compare after each."""
        self._begin()
        for _ in range(steps):
            step = self.draw()
            if step is None:
                self.counts.steps["questions only"] += 1
            else:
                self.do(step)
            if self.rng.random() < 0.8:
                self.compare(questions)

    def _begin(self) -> None:
        if not self.size:
            self.do(Step("insert", "main", {"Person": [self._person() for _ in range(8)]}))
            return
        keys = [f"person-number-{number}" for number in range(self.size)]
        people = [self._person(key=key) for key in keys]
        edges = [self._knows(keys) for _ in range(self.edges)]
        self.do(Step("load", "main", ("append", records_of({"Person": people, "Knows": edges}))))
        for _ in range(3):
            self.compare(12)

    def do(self, step: Step) -> None:
        """Carry one step out, here or in the other process."""
        elsewhere = step.verb not in ("forget", "pause", "reopen") and self.rng.random() < 0.3
        self.done.append(f"{str(step)[:2000]}{' (elsewhere)' if elsewhere else ''}")
        self.counts.steps[step.verb] += 1
        if step.verb == "forget":
            forget_some(random.Random(self.rng.random()))
            return
        if step.verb == "pause":
            self.warm.context.manifest.forget()
            return
        if step.verb == "reopen":
            self.warm.close()
            self.warm = connect(self.root)
            return
        step = replace(step, place=self.place)
        try:
            if elsewhere and step.verb == "together":
                # Some of it there and some here, at the same time.
                wait = self.writer.begin(replace(step, given=step.given[:1]))
                perform(self.warm, replace(step, given=step.given[1:]))
                wait()
            elif elsewhere:
                self.writer.perform(step)
            else:
                perform(self.warm, step)
        except Exception as exc:
            raise Disagreement(self._told(f"the step failed: {exc!r}")) from exc
        self._apply(step)

    def _apply(self, step: Step) -> None:
        if step.verb == "branch":
            name, at = step.given
            began = self.states[step.branch] if at is None else self._moment(at).state
            self.states[name], self.bases[name] = began.copy(), began.copy()
            self.parents[name] = step.branch
        elif step.verb == "merge":
            source = step.given
            # Of the two that are merged, one was made of the other, and they have been one where they met last.
            made = source if self.parents.get(source) == step.branch else step.branch
            self.states[step.branch] = merged(self.bases[made], self.states[source], self.states[step.branch])
            self.bases[made] = self.states[source].copy()
        elif step.verb == "revert":
            undone, before = self._moment(step.given), self._moment(self._parent(step.given))
            self.states[step.branch] = merged(undone.state, before.state, self.states[step.branch])
        elif step.verb == "tag":
            name, at = step.given
            self.tags[name] = self._moment(at)
        elif step.verb == "untag":
            del self.tags[step.given]
        elif step.verb == "unbranch":
            del self.states[step.given], self.parents[step.given], self.bases[step.given]
            self.past = [past for past in self.past if past.branch != step.given]
        elif step.verb == "cleanup":
            # What else is kept depends on versions of tables, which the dictionaries do not know.
            self.past = list(self.tags.values())
        else:
            self.era += step.verb == "schema"
            apply(self.states[step.branch], step)
        for branch, state in self.states.items():
            self._remember(branch, state)
        if step.verb in REMOVING:
            self.scanned.clear()
        self._check_scan(step.branch if step.branch in self.states else "main")

    def _remember(self, branch: str, state: State) -> None:
        head = self.warm.snapshot(branch).head
        if head is not None and all(past.commit != head for past in self.past):
            self.past.append(Past(branch, str(head), state.copy(), self.era))
            self.past = self.past[-24:]

    def _moment(self, commit: str) -> Past:
        return next(past for past in (*self.past, *self.tags.values()) if past.commit == commit)

    def _parent(self, commit: str) -> str:
        return str(self.warm.history.show(commit).parent_commit_id)

    def draw(self) -> Step | None:
        """The next step, one that is possible now; None is a pause in which only questions are asked."""
        branch = self.rng.choice(list(self.states)) if self.rng.random() < 0.5 else "main"
        verbs = {
            "insert": 30,
            "update": 9,
            "updates": 4,
            "delete": 7,
            "edges": 10,
            "load": 8,
            "relate": 4,
            "together": 3,
            "grouped": 4,
            "branch": 4,
            "merge": 5,
            "pull": 3,
            "revert": 5,
            "tag": 3,
            "unbranch": 2,
            "schema": 4,
            "optimize": 2,
            "cleanup": 1,
            "forget": 3,
            "pause": 2,
            "reopen": 1,
            "nothing": 12,
        }
        verb = self.rng.choices(list(verbs), list(verbs.values()))[0]
        maker = getattr(self, f"_{verb}", None)
        return maker(branch) if maker is not None else Step(verb, branch)

    def _nothing(self, branch: str) -> Step | None:
        return None

    def _person(self, branch: str = "main", key: str | None = None) -> Props:
        names = self.states[branch].property_names()
        return self.chance.person(self.chance.key() if key is None else key, names)

    def _together(self, branch: str) -> Step:
        """What several threads insert at once; whoever comes last, the graph is the same."""
        keys = self._keys(3)
        given: list[dict[str, list[Props]]] = [{"Person": [self._person(branch, key)]} for key in keys]
        known = list(self.states[branch].people)
        for each in given:
            if known and self.rng.random() < 0.5:
                each["Knows"] = [self._knows([*known, each["Person"][0]["key"]])]
        return Step("together", branch, given)

    def _merge(self, branch: str) -> Step | None:
        if not self.parents:
            return None
        source = self.rng.choice(list(self.parents))
        return Step("merge", self.parents[source], source)

    def _pull(self, branch: str) -> Step | None:
        """A merge the other way: what a branch was made of goes into it."""
        if not self.parents:
            return None
        into = self.rng.choice(list(self.parents))
        return Step("merge", into, self.parents[into])

    def _revert(self, branch: str) -> Step | None:
        """Undo a commit whose parent is known, under the schema of now."""
        known = {past.commit for past in self.past if past.era == self.era}
        made = [past.commit for past in self.past if past.branch == branch and past.commit in known]
        found = [commit for commit in made[-6:] if self._parent(commit) in known]
        return Step("revert", branch, self.rng.choice(found)) if found else None

    def _tag(self, branch: str) -> Step | None:
        if self.tags and self.rng.random() < 0.4:
            return Step("untag", "main", self.rng.choice(list(self.tags)))
        name = f"tag{self.rng.randrange(1000)}"
        if name in self.tags or len(self.tags) > 3 or not self.past:
            return None
        past = self.rng.choice(self.past)
        return Step("tag", past.branch, (name, past.commit))

    def _relate(self, branch: str) -> Step | None:
        held = list(self.states[branch].knows)
        return Step("relate", branch, (self.rng.choice(held), self.rng.choice([None, 1, 2, 3]))) if held else None

    def _grouped(self, branch: str) -> Step:
        """Several writes that are published together, each possible after those before it."""
        held = self.states[branch]
        self.states[branch] = held.copy()
        makers = [self._insert, self._insert, self._update, self._updates, self._delete, self._relate, self._load]
        given: list[Step] = []
        try:
            for _ in range(self.rng.choice([2, 3, 5])):
                step = self.rng.choice(makers)(branch)
                if step is None or (step.verb == "load" and step.given[0] == "overwrite"):
                    continue
                given.append(step)
                apply(self.states[branch], step)
        finally:
            self.states[branch] = held
        return Step("grouped", branch, given)

    def _keys(self, count: int) -> list[str]:
        """Up to so many different keys, in an order that the seed decides."""
        return list(dict.fromkeys(self.chance.key() for _ in range(count)))

    def _insert(self, branch: str) -> Step:
        state, rng = self.states[branch], self.rng
        people = [self._person(branch) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        given: dict[str, list[Props]] = {"Person": people}
        keys = [*state.people, *(person["key"] for person in people)]
        if rng.random() < 0.6:
            given["Knows"] = [self._knows(keys) for _ in range(rng.choice([1, 1, 2, 4]))]
        if rng.random() < 0.3:
            place = self.chance.place()
            given["Place"] = [place]
            given["Lives"] = [{"from": rng.choice(keys), "to": place_id(place["name"]), "tag": self.chance.tag()}]
        if state.schema.types and rng.random() < 0.5:
            kind = rng.choice(state.schema.types)
            given[kind] = [{"key": f"t{rng.randrange(6)}", "n": rng.randrange(3)}]
        return Step("insert", branch, given)

    def _knows(self, keys: list[str]) -> Props:
        ends = {"from": self.rng.choice(keys), "to": self.rng.choice(keys)}
        return {**ends, "tag": self.chance.tag(), "since": self.rng.choice([None, 1, 2])}

    def _update(self, branch: str) -> Step:
        return Step("update", branch, self._update_of(self.states[branch]))

    def _update_of(self, state: State) -> tuple[tuple[str, Any], tuple[str, Any]]:
        by = self.rng.choice(["key", "key", "name", "i32", "day", "u64", "f32", "flag", "kind", "at"])
        changed = self.rng.choice(state.property_names())
        return (by, self.asker.value(state, by)), (changed, self.chance.value(changed))

    def _updates(self, branch: str) -> Step:
        """Several statements in one commit: some insert, some update what others have just changed."""
        state = self.states[branch].copy()
        given: list[tuple[Any, Any]] = []
        for _ in range(self.rng.choice([2, 4, 9])):
            one = ("insert", self._person(branch)) if self.rng.random() < 0.3 else self._update_of(state)
            given.append(one)
            apply(state, Step("updates", branch, [one]))
        return Step("updates", branch, given)

    def _delete(self, branch: str) -> Step:
        state, rng = self.states[branch], self.rng
        if state.places and rng.random() < 0.15:
            return Step("delete", branch, ("Place", "name", rng.choice(list(state.places.values()))["name"]))
        by = rng.choice(["key", "key", "key", "name", "i64", "u64", "f64", "kind", "at"])
        return Step("delete", branch, ("Person", by, self.asker.value(state, by)))

    def _edges(self, branch: str) -> Step | None:
        state, rng = self.states[branch], self.rng
        if not state.people:
            return None
        if rng.random() < 0.5 or not state.knows:
            keys = list(state.people)
            return Step("insert", branch, {"Knows": [self._knows(keys) for _ in range(rng.choice([1, 2, 5]))]})
        tag = rng.choice(list(state.knows))
        column = rng.choice(["tag", "tag", "from", "to"])
        return Step("delete", branch, ("Knows", column, state.knows[tag][column]))

    def _load(self, branch: str) -> Step:
        state, rng = self.states[branch], self.rng
        mode = rng.choice(["append", "merge", "merge", "overwrite"])
        if mode == "overwrite":
            return Step("load", branch, (mode, records_of(self._overwriting(state, branch))))
        free = [key for key in self._keys(12) if key not in state.people]
        keys = free if mode == "append" else self._keys(rng.choice([2, 6, 14]))
        given = {"Person": [self._person(branch, key) for key in keys]}
        known = [*state.people, *keys]
        if known:
            edges = [self._knows(known) for _ in range(rng.choice([0, 3, 8]))]
            given["Knows"] = [{**edge, "id": f"e{edge['tag']}"} for edge in edges]
            loaded = [edge for edge in state.knows.values() if "id" in edge]
            if loaded and mode == "merge":
                old = rng.choice(loaded)
                given["Knows"].append({**self._knows(known), "id": old["id"]})
        return Step("load", branch, (mode, records_of({name: rows for name, rows in given.items() if rows})))

    def _overwriting(self, state: State, branch: str) -> dict[str, list[Props]]:
        """All edges of a type, or everything, anew."""
        rng = self.rng
        if state.people and rng.random() < 0.5:
            return {"Knows": [self._knows(list(state.people)) for _ in range(rng.choice([1, 6]))]}
        keys = self._keys(rng.choice([3, 12]))
        places = [{"name": self.chance.places[number], "size": number} for number in range(3)]
        home = place_id(places[1]["name"])
        lives = [{"from": rng.choice(keys), "to": home, "tag": self.chance.tag()} for _ in range(2)]
        return {
            "Person": [self._person(branch, key) for key in keys],
            "Place": places,
            "Knows": [self._knows(keys) for _ in range(rng.choice([2, 9]))],
            "Lives": lives,
        }

    def _branch(self, branch: str) -> Step | None:
        free = [name for name in BRANCHES if name not in self.states]
        if not free:
            return None
        now = [past for past in self.past if past.era == self.era]
        if now and self.rng.random() < 0.3:
            past = self.rng.choice(now)
            return Step("branch", past.branch, (self.rng.choice(free), past.commit))
        return Step("branch", branch, (self.rng.choice(free), None))

    def _unbranch(self, branch: str) -> Step | None:
        held = [name for name in self.states if name != "main" and name not in self.parents.values()]
        if not held:
            return None
        gone = self.rng.choice(held)
        for tag in [name for name, past in self.tags.items() if past.branch == gone]:
            self.do(Step("untag", "main", tag))
        return Step("unbranch", "main", gone)

    def _schema(self, branch: str) -> Step | None:
        while (gone := self._unbranch(branch)) is not None:
            self.do(gone)
        schema, rng = self.states["main"].schema, self.rng
        fresh = f"x{rng.randrange(1000)}"
        types = schema.types
        if rng.random() < 0.3:
            types = types[1:] if len(types) > 1 else (*types, f"Thing{rng.randrange(1000)}")
        if schema.extra is None:
            if rng.random() < 0.4:
                self.do(Step("schema", "main", Schema(fresh, None, types, self.place, default=2)))
            return Step("schema", "main", Schema(fresh, None, types, self.place))
        kind = rng.choice([schema.kind, "I64"])
        if rng.random() < 0.4:
            # Values are filled in where there are none, and then the property may be null again.
            default = rng.choice([None, -2, 1])
            self.do(Step("schema", "main", Schema(schema.extra, None, types, self.place, kind, default)))
            return Step("schema", "main", Schema(schema.extra, None, types, self.place, kind))
        if rng.random() < 0.4 and fresh != schema.extra:
            return Step("schema", "main", Schema(fresh, schema.extra, types, self.place, kind))
        if rng.random() < 0.6:
            # Another property at once, so that its column is the next one in files that held the one before.
            self.do(Step("schema", "main", Schema(None, None, types, self.place)))
            return Step("schema", "main", Schema(fresh, None, types, self.place))
        return Step("schema", "main", Schema(None, None, types, self.place))

    def _cleanup(self, branch: str) -> Step:
        return Step("cleanup", "main", self.rng.choice([2, 5]))

    # --- comparing ----------------------------------------------------------------------------------------------------

    def compare(self, count: int) -> None:
        """Ask everybody the same questions."""
        drawn = [self._question() for _ in range(count)]
        questions = [question for question, _, _ in drawn]
        rng = self.rng
        cold = self.cold.begin_asking(questions, cold=True) if rng.random() < 0.35 else None
        expected = [
            ask(self.warm, [question])[0] if answer is None else comparable(answer(state), question.ordered)
            for question, answer, state in drawn
        ]
        if rng.random() < 0.15:
            for found in ask_together(self.warm, questions, 3):
                self._agree("threads", questions, expected, found)
        else:
            self._agree("warm", questions, expected, ask(self.warm, questions))
        if rng.random() < 0.25:
            self._agree("lagging", questions, expected, ask(self.lagging, questions))
        if rng.random() < 0.2:
            self._agree("elsewhere", questions, expected, self.writer.ask(questions))
        if cold is not None:
            self._agree("cold", questions, expected, cold())
        if rng.random() < 0.02:
            fresh = Child(str(self.root), lowered=self.lowered)
            self._agree("new process", questions, expected, fresh.ask(questions))
            fresh.close()

    def _question(self) -> tuple[Question, Answer, State]:
        """A question about a branch as it is, or about a commit of the past."""
        if self.past and self.rng.random() < 0.2:
            past = self.rng.choice(self.past)
            question, answer = self.asker.draw(past.state)
            asked = Question(question.text, question.params, question.ordered, past.branch, past.commit)
            return asked, answer, past.state
        if self.tags and self.rng.random() < 0.1:
            tag = self.rng.choice(list(self.tags))
            state = self.tags[tag].state
            question, answer = self.asker.draw(state)
            return Question(question.text, question.params, question.ordered, "main", tag), answer, state
        branch = self.rng.choice(list(self.states)) if self.rng.random() < 0.5 else "main"
        state = self.states[branch]
        question, answer = self.asker.draw(state)
        return Question(question.text, question.params, question.ordered, branch), answer, state

    def _agree(self, who: str, questions: Sequence[Question], expected: Sequence[Any], found: Sequence[Found]) -> None:
        self.counts.comparisons[who] += len(questions)
        for question, right, got in zip(questions, expected, found, strict=True):
            if got != right:
                others = {
                    "warm": ask(self.warm, [question]),
                    "lagging": ask(self.lagging, [question]),
                    "elsewhere": self.writer.ask([question]),
                    "cold": Child(str(self.root), lowered=self.lowered).ask([question], cold=True),
                }
                asked = f"{who} was asked {question}\n  it said {got}\n  and it is {right}"
                raise Disagreement(self._told(f"{asked}\n  asked again: {others}"))

    def _check_scan(self, branch: str) -> None:
        """Read the tables as they are stored, with nothing derived, and compare them with the dictionaries."""
        state, snapshot = self.states[branch], self.warm.snapshot(branch)
        for name in ("Person", "Place", "Knows", "Lives", *state.schema.types):
            is_edge = name in ("Knows", "Lives")
            by, columns = _stored_columns(name)
            count, held = self._scanned(snapshot, edge_key(name) if is_edge else node_key(name), by, columns)
            given = [None if column == "id" else _given(column) for column in columns]
            right = {
                key: tuple([key if named is None else props.get(named) for named in given])
                for key, props in table_of(state, name).items()
            }
            self.counts.comparisons["scan"] += 1
            if held != right or count != len(held):
                wrong = [held.get(key) for key in {*held, *right} if held.get(key) != right.get(key)]
                meant = [right.get(key) for key in {*held, *right} if held.get(key) != right.get(key)]
                what = f"of {count} rows of {name} on {branch}, these are {wrong}\n  and should be {meant}"
                raise Disagreement(self._told(what))

    def _scanned(self, snapshot: Snapshot, table: TableKey, by: str, columns: list[str]) -> Scanned:
        """The rows of a table, which are read once per version, because a version never changes."""
        entry = snapshot.entry(table)
        version = (entry.path, entry.branch, entry.version, entry.e_tag)
        if version not in self.scanned:
            found = snapshot.open(table).scan(columns)
            values = {column: found[column].to_pylist() for column in columns}
            rows = zip(*values.values(), strict=True)
            self.scanned[version] = (found.num_rows, dict(zip(values[by], rows, strict=True)))
        return self.scanned[version]

    def _told(self, what: str) -> str:
        program = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.done))
        return f"seed {self.seed}: {what}\nafter these steps:\n{program}"


def _stored_columns(name: str) -> tuple[str, list[str]]:
    if name == "Person":
        return "key", ["key", *(name for name in KINDS if name not in ("key", "day", "at", "extra"))]
    if name == "Place":
        return "id", ["id", "size"]
    if name in ("Knows", "Lives"):
        return "tag", ["tag", "src", "dst"]
    return "key", ["key", "n"]


def _given(column: str) -> str:
    return {"src": "from", "dst": "to"}.get(column, column)
