"""The graph the machine drives, as plain dictionaries, and the steps it is changed by.

A step is plain data: `perform` carries it out on a graph, in this process or another, and `World.apply` does the same
to the dictionaries. Whatever a reader is asked, the dictionaries know the answer.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from tests.together import Ask, written_together

from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.mutate import mutate
from omnigraph.errors import GraphError
from omnigraph.graph import Graph
from omnigraph.plan import compile_query
from omnigraph.plan.parameters import bind
from omnigraph.plan.statements import WritePlan

PERSON = """node Person {{
    key: String @key
    name: String? @index
    i32: I32? @index
    i64: I64?
    u32: U32?
    u64: U64?
    day: Date?
    at: DateTime?
    f32: F32?
    f64: F64? @index
    flag: Bool?
    kind: enum(red, green, blue)? @index
    tags: [String]?
    bio: String? @index
    taste: Vector(4)? @index
    {extra}
}}
node Place {{ name: {place} @key  size: I32? }}
edge Knows: Person -> Person {{ tag: I64  since: I32? @index }}
edge Lives: Person -> Place {{ tag: I64 }}
{types}
"""
DAYS = [dt.date(1, 1, 1), *(dt.date(2026, 3, day) for day in (1, 2, 3, 4)), dt.date(9999, 12, 31)]
TIMES = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    *(dt.datetime(2026, 3, 4, 5, 6, second, 891000, tzinfo=dt.UTC) for second in (6, 7, 8)),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC),
]
PLACES: dict[str, list[Any]] = {
    "String": [f"place{number}" for number in range(5)],
    "I32": [-(2**31), -1, 0, 7, 2**31 - 1],
    "I64": [-(2**63), -1, 2**53, 2**53 + 1, 2**63 - 1],
    "U32": [0, 1, 9, 10, 2**32 - 1],
    "U64": [0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1],
    "Date": DAYS[:5],
    "DateTime": TIMES,
    "F64": [-1.5, 0.0, 0.1, -0.0, 1e300],
}
"""What a place may be called, by the type of its key."""
WORDS = ["queen", "aurora", "boreas", "the", "harbour", "tug", "queens", "é", "night"]
VALUES: dict[str, list[Any]] = {
    "name": ["ana", "bo", "bob", "", "a-rather-long-name-1", "a-rather-long-name-2"],
    "i32": [-2, 0, 1, 2, 3, 2**31 - 1],
    "i64": [-(2**63), -3, 0, 1, 2**53 + 1, 2**63 - 1],
    "u32": [0, 1, 2, 2**32 - 1],
    "u64": [0, 1, 2, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1],
    "day": DAYS,
    "at": TIMES,
    "f32": [-1.5, 0.0, -0.0, 0.5, 16777216.0],
    "f64": [-1.5, 0.0, -0.0, 0.1, 2.0**53, 1e300],
    "flag": [True, False],
    "kind": ["red", "green", "blue"],
    "tags": [[], ["a"], ["a", "b"], ["", "é", "a"]],
}
KINDS = {
    "key": "String",
    "name": "String",
    "i32": "I32",
    "i64": "I64",
    "u32": "U32",
    "u64": "U64",
    "day": "Date",
    "at": "DateTime",
    "f32": "F32",
    "f64": "F64",
    "flag": "Bool",
    "kind": "String",
    "tags": "[String]",
    "bio": "String",
    "taste": "Vector(4)",
    "extra": "I32",
}
Props = dict[str, Any]


@dataclass(frozen=True)
class Schema:
    """What may change of the schema: one property of `Person`, by its name now, and further node types."""

    extra: str | None = None
    renamed_from: str | None = None
    types: tuple[str, ...] = ()
    place: str = "String"
    """The type of the key of a place."""
    kind: str = "I32"
    """The type of the property, which becomes wider."""
    default: int | None = None
    """What the property holds where it held nothing, and then it is required."""

    @property
    def text(self) -> str:
        """The schema as the graph is told it."""
        note = f' @rename_from("{self.renamed_from}")' if self.renamed_from else ""
        kind = f"{self.kind}?" if self.default is None else f"{self.kind} @default({self.default})"
        extra = f"{self.extra}: {kind}{note}" if self.extra else ""
        types = "\n".join(f"node {name} {{ key: String @key  n: I32? }}" for name in self.types)
        return PERSON.format(extra=extra, types=types, place=self.place)


@dataclass
class State:
    """One branch at one moment. Edges are kept by their tag, which no two share; those that were loaded have an id."""

    schema: Schema = field(default_factory=Schema)
    people: dict[str, Props] = field(default_factory=dict)
    places: dict[str, Props] = field(default_factory=dict)
    knows: dict[int, Props] = field(default_factory=dict)
    lives: dict[int, Props] = field(default_factory=dict)
    things: dict[str, dict[str, Props]] = field(default_factory=dict)

    def copy(self) -> State:
        """The same, to be changed apart; values are never changed in place."""
        things = {name: _copied(rows) for name, rows in self.things.items()}
        tables = (_copied(rows) for rows in (self.people, self.places, self.knows, self.lives))
        return State(self.schema, *tables, things)

    def property_names(self) -> list[str]:
        """The properties of a person in this schema."""
        names = [name for name in KINDS if name not in ("key", "extra")]
        return names + ([self.schema.extra] if self.schema.extra else [])


def _copied(rows: dict[Any, Props]) -> dict[Any, Props]:
    return {key: dict(props) for key, props in rows.items()}


@dataclass(frozen=True)
class Step:
    """One thing done to the graph."""

    verb: str
    branch: str = "main"
    given: Any = None
    place: str = "String"

    def __str__(self) -> str:
        return f"{self.verb} on {self.branch}: {self.given!r}"


def place_id(name: Any) -> str:
    """The id of a place, which edges to it name."""
    if isinstance(name, dt.datetime):
        return str((name - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1))
    if isinstance(name, dt.date):
        return str((name - dt.date(1970, 1, 1)).days)
    if isinstance(name, float):
        return {0.0: "0", 1e300: "1e+300"}.get(name, str(name))
    return str(name)


def kind_of(name: str) -> str:
    """The declared type of a property of a person."""
    return KINDS.get(name, "I32")


# --- doing it to a graph ----------------------------------------------------------------------------------------------


def perform(graph: Graph, step: Step) -> None:
    """Carry a step out."""
    verb, branch, given = step.verb, step.branch, step.given
    if verb in MUTATIONS:
        graph.mutate(*_mutation(step), branch=branch)
    elif verb == "together":
        _insert_together(graph, step)
    elif verb == "grouped":
        _publish_together(graph, step)
    elif verb == "merge":
        graph.branches.merge(given, branch, strategy="theirs")
    elif verb == "revert":
        graph.revert(given, branch, strategy="theirs")
    elif verb == "load":
        mode, records = given
        graph.load(records, mode=mode, branch=branch, engine="local", durability="fast")
    elif verb == "branch":
        name, at = given
        graph.branches.create(name, from_=branch, at=at)
    elif verb == "unbranch":
        graph.branches.delete(given)
    elif verb == "tag":
        name, at = given
        graph.tags.create(name, at=at, branch=branch)
    elif verb == "untag":
        graph.tags.delete(given)
    elif verb == "schema":
        graph.schema.apply(given.text, confirm_drops=True)
    elif verb == "optimize":
        graph.maintenance.optimize()
    elif verb == "cleanup":
        graph.maintenance.cleanup(keep=given, older_than=dt.timedelta(0))
    else:
        raise ValueError(verb)


MUTATIONS = ("insert", "update", "updates", "delete", "relate")


def _mutation(step: Step) -> tuple[str, Props]:
    """The text and the parameters of a step that is one mutation."""
    given = step.given
    if step.verb == "insert":
        return _insertion(given, step.place)
    if step.verb == "updates":
        return _updates(given)
    if step.verb == "relate":
        tag, since = given
        text = "query m($v: I64, $n: I32?) { update Knows set { since: $n } where tag = $v }"
        return text, {"v": tag, "n": since}
    if step.verb == "update":
        (column, value), (changed, new) = given
        text = f"update Person set {{ {changed}: $n }} where {column} = $v"
        kinds = f"$v: {kind_of(column)}, $n: {kind_of(changed)}?"
        return f"query m({kinds}) {{ {text} }}", {"v": value, "n": new}
    kind, column, value = given
    declared = {"tag": "I64", "from": "String", "to": "String"}.get(column) or kind_of(column)
    declared = step.place if kind == "Place" else declared
    return f"query m($v: {declared}) {{ delete {kind} where {column} = $v }}", {"v": value}


def _publish_together(graph: Graph, step: Step) -> None:
    """Several writes, each of which sees those before it, become one commit."""

    def asking(each: Step) -> Ask:
        if each.verb == "load":
            mode, records = each.given
            lines = "\n".join(map(json.dumps, records)).encode()
            return lambda context: load(context, lines, mode=mode, branch=step.branch)
        text, params = _mutation(replace(each, place=step.place))
        plan = compile_query(graph.context.catalog, text, None)
        assert isinstance(plan, WritePlan)
        return lambda context: mutate(context, plan, bind(plan.parameters, params), branch=step.branch)

    for outcome in written_together(graph.context, [asking(each) for each in step.given]):
        ended = outcome if isinstance(outcome, GraphError) else outcome[1]
        if isinstance(ended, GraphError):
            raise ended


def _insert_together(graph: Graph, step: Step) -> None:
    """Several threads insert at once, and one counts meanwhile: it sees more and more of them."""
    before, counts = _count(graph, step.branch), []

    def read() -> None:
        counts.extend(_count(graph, step.branch) for _ in range(4))

    with ThreadPoolExecutor(len(step.given) + 1) as pool:
        reading = pool.submit(read)
        inserting = [pool.submit(perform, graph, replace(step, verb="insert", given=given)) for given in step.given]
        for each in (*inserting, reading):
            each.result()
    counts = [before, *counts, _count(graph, step.branch)]
    if counts != sorted(counts):
        raise AssertionError(f"people came and went while others were inserted: {counts}")


def _count(graph: Graph, branch: str) -> int:
    rows = graph.query("query q() { match { $p: Person } return { count($p) as n } }", branch=branch).to_pylist()
    return int(rows[0]["n"])


def _updates(given: list[tuple[str, Any]]) -> tuple[str, Props]:
    """The text and the parameters of a query of many statements, each of which sees what those before it did."""
    kinds: list[str] = []
    statements: list[str] = []
    params: Props = {}
    for number, (by, values) in enumerate(given):
        if by == "insert":
            declared, texts, more = _insertions({"Person": [values]}, f"_{number}_")
            kinds.extend(declared)
            statements.extend(texts)
            params |= more
            continue
        (column, value), (changed, new) = by, values
        kinds.append(f"$v{number}: {kind_of(column)}, $n{number}: {kind_of(changed)}?")
        params |= {f"v{number}": value, f"n{number}": new}
        statements.append(f"update Person set {{ {changed}: $n{number} }} where {column} = $v{number}")
    return f"query m({', '.join(kinds)}) {{ {' '.join(statements)} }}", params


def _insertion(given: dict[str, list[Props]], place: str) -> tuple[str, Props]:
    """The text and the parameters of a query that inserts what is given, all in one commit."""
    kinds, statements, params = _insertions(given, place=place)
    return f"query m({', '.join(kinds)}) {{ {' '.join(statements)} }}", params


def _insertions(
    given: dict[str, list[Props]], mark: str = "", place: str = "String"
) -> tuple[list[str], list[str], Props]:
    """The declarations, the statements and the parameters."""
    kinds: list[str] = []
    statements: list[str] = []
    params: Props = {}
    for number, (table, row) in enumerate((table, row) for table, rows in given.items() for row in rows):
        parts = []
        for name, value in row.items():
            if value is None:
                continue
            declared = _declared(table, name, place)
            kinds.append(f"${name}{mark}{number}: {declared}")
            params[f"{name}{mark}{number}"] = value
            parts.append(f"{name}: ${name}{mark}{number}")
        statements.append(f"insert {table} {{ {', '.join(parts)} }}")
    return kinds, statements, params


def _declared(table: str, name: str, place: str) -> str:
    if table in ("Knows", "Lives"):
        return {"tag": "I64", "since": "I32"}.get(name, "String")
    if table == "Place":
        return place if name == "name" else "I32"
    return "String" if name == "key" else kind_of(name)


def records_of(given: dict[str, list[Props]]) -> list[Props]:
    """The same rows as records for a load."""
    found: list[Props] = []
    for table, rows in given.items():
        for row in rows:
            data = {name: _json(value) for name, value in row.items() if value is not None}
            if table in ("Knows", "Lives"):
                ends = {"from": data.pop("from"), "to": data.pop("to")}
                found.append({"edge": table, **ends, "data": data})
            else:
                found.append({"type": table, "data": data})
    return found


def _json(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else value


# --- doing it to the dictionaries -------------------------------------------------------------------------------------


def apply(state: State, step: Step) -> None:
    """What a step does to one branch."""
    if step.verb == "insert":
        _put(state, step.given)
    elif step.verb == "together":
        for given in step.given:
            _put(state, given)
    elif step.verb == "grouped":
        for each in step.given:
            apply(state, each)
    elif step.verb == "update":
        _set(state, *step.given)
    elif step.verb == "relate":
        tag, since = step.given
        state.knows[tag] = {**state.knows[tag], "since": since}
    elif step.verb == "updates":
        for by, values in step.given:
            if by == "insert":
                _put(state, {"Person": [values]})
            else:
                _set(state, by, values)
    elif step.verb == "delete":
        _remove(state, *step.given)
    elif step.verb == "load":
        mode, records = step.given
        rows = rows_of(records)
        if mode == "overwrite":
            for table in rows:
                table_of(state, table).clear()
        _put(state, rows)
    elif step.verb == "schema":
        _evolve(state, step.given)


def rows_of(records: list[Props]) -> dict[str, list[Props]]:
    """What a load of records puts where."""
    rows: dict[str, list[Props]] = {}
    for record in records:
        data = {name: _parsed(record.get("type"), name, value) for name, value in record["data"].items()}
        if "edge" in record:
            rows.setdefault(record["edge"], []).append({"from": record["from"], "to": record["to"], **data})
        else:
            rows.setdefault(record["type"], []).append(data)
    return rows


def _parsed(table: str | None, name: str, value: Any) -> Any:
    if name == "day":
        return dt.date.fromisoformat(value)
    if name == "at":
        return dt.datetime.fromisoformat(value)
    if table == "Place" and isinstance(value, str) and value[:4].isdigit():
        return dt.date.fromisoformat(value) if len(value) == 10 else dt.datetime.fromisoformat(value)
    return value


def table_of(state: State, table: str) -> dict[Any, Props]:
    """The rows of a type."""
    known: dict[str, dict[Any, Props]] = {
        "Person": state.people,
        "Place": state.places,
        "Knows": state.knows,
        "Lives": state.lives,
    }
    return known[table] if table in known else state.things.setdefault(table, {})


def _put(state: State, rows: dict[str, list[Props]]) -> None:
    for table, given in rows.items():
        held = table_of(state, table)
        if table in ("Knows", "Lives"):
            _put_edges(held, given)
            continue
        for row in given:
            held[place_id(row["name"]) if table == "Place" else row["key"]] = dict(row)


def _put_edges(held: dict[Any, Props], given: list[Props]) -> None:
    """Edges are held by their tag, and one that comes with the id of another takes its place."""
    named = any("id" in row for row in given)
    tags = {old["id"]: tag for tag, old in held.items() if "id" in old} if named else {}
    for row in given:
        if "id" in row:
            before = tags.get(row["id"])
            if before in held and held[before].get("id") == row["id"]:
                del held[before]
            tags[row["id"]] = row["tag"]
        held[row["tag"]] = dict(row)


def _set(state: State, by: tuple[str, Any], values: tuple[str, Any]) -> None:
    (column, value), (changed, new) = by, values
    for props in state.people.values():
        if props.get(column) == value and value is not None:
            props[changed] = new


def _remove(state: State, kind: str, column: str, value: Any) -> None:
    held = table_of(state, kind)
    gone = [key for key, props in held.items() if value is not None and props.get(column) == value]
    for key in gone:
        del held[key]
    ends = {"Person": [("Knows", "from"), ("Knows", "to"), ("Lives", "from")], "Place": [("Lives", "to")]}
    for table, end in ends.get(kind, []):
        edges = table_of(state, table)
        for tag in [tag for tag, edge in edges.items() if edge[end] in gone]:
            del edges[tag]


def _evolve(state: State, schema: Schema) -> None:
    before, now = state.schema.extra, schema.extra
    for props in state.people.values():
        held = props.pop(before, None) if before else None
        if (now is not None and schema.renamed_from == before is not None) or (now is not None and now == before):
            props[now] = held
        if now is not None and schema.default is not None and props.get(now) is None:
            props[now] = schema.default
    for name in list(state.things):
        if name not in schema.types:
            del state.things[name]
    state.schema = schema


# --- merging two branches ---------------------------------------------------------------------------------------------


def merged(base: State, theirs: State, ours: State) -> State:
    """What a merge leaves: what one side has changed, and theirs where both did."""
    found = ours.copy()
    for table in ("Person", "Place", "Knows", "Lives", *ours.schema.types):
        before, other, held = (_by_identity(table_of(state, table)) for state in (base, theirs, found))
        for key in dict.fromkeys((*before, *other)):
            if _said(other.get(key)) == _said(before.get(key)):
                continue
            if key in held:
                del table_of(found, table)[held[key][0]]
            if key in other:
                place, row = other[key]
                table_of(found, table)[place] = dict(row)
    _settle_ends(found, theirs, ours)
    return found


def _settle_ends(found: State, theirs: State, ours: State) -> None:
    """What they decided stands: their edges bring the nodes they end at back, ours go with the nodes they deleted."""
    ends = (
        ("Knows", "from", "Person"),
        ("Knows", "to", "Person"),
        ("Lives", "from", "Person"),
        ("Lives", "to", "Place"),
    )
    for table, end, node in ends:
        edges, nodes, held = table_of(found, table), table_of(found, node), _by_identity(table_of(ours, table))
        for tag, edge in [(tag, edge) for tag, edge in edges.items() if edge[end] not in nodes]:
            if _said((tag, edge)) == _said(held.get(edge.get("id", tag))):
                del edges[tag]
            else:
                nodes[edge[end]] = dict(table_of(theirs, node)[edge[end]])


def _by_identity(rows: dict[Any, Props]) -> dict[Any, tuple[Any, Props]]:
    """Rows by what makes them the same row; an edge that was loaded has an id, which another tag may get."""
    return {props.get("id", key): (key, props) for key, props in rows.items()}


def _said(held: tuple[Any, Props] | None) -> Props | None:
    return None if held is None else {name: value for name, value in held[1].items() if value is not None}


# --- random values ----------------------------------------------------------------------------------------------------


class Chance:
    """Random rows of the schema, from small sets of values, so that questions meet something."""

    def __init__(self, rng: random.Random, keys: int = 24, place: str = "String") -> None:
        self.rng = rng
        self.keys = keys
        self.places = PLACES[place]
        self._tags = 0

    def key(self) -> str:
        """The key of a person, who may exist."""
        number = self.rng.randrange(self.keys)
        return f"person-number-{number}" if number % 3 else f"é{number}"

    def tag(self) -> int:
        """A number no edge had before."""
        self._tags += 1
        return self._tags

    def value(self, name: str) -> Any:
        """A value of a property, or null."""
        rng = self.rng
        if name == "key":
            return self.key()
        if name == "bio":
            return None if rng.random() < 0.2 else " ".join(rng.choice(WORDS) for _ in range(rng.randrange(5)))
        if name == "taste":
            return None if rng.random() < 0.2 else [rng.choice([0.0, 0.5, 1.0, -1.0, 0.25]) for _ in range(4)]
        known = VALUES.get(name, VALUES["i32"])
        return None if rng.random() < 0.15 else rng.choice(known)

    def person(self, key: str, names: list[str]) -> Props:
        """A person; some properties are left out."""
        return {"key": key, **{name: self.value(name) for name in names if self.rng.random() < 0.9}}

    def place(self) -> Props:
        """A place, which may exist."""
        return {"name": self.rng.choice(self.places), "size": self.rng.randrange(4)}
