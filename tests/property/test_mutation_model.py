"""Mutations of every form against a model of plain dicts: conditions, expressions, edges, keys, matches and returns.

Each program runs on a graph that stays open, with queries before it, and on one that is opened anew for it: what is
kept in memory must not make a difference.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.amounts import always_first

import omnigraph
from omnigraph.engine.operations.mutate import touched as told
from omnigraph.engine.storage.cache import SHARED
from omnigraph.errors import ConstraintError

SCHEMA = """
node P { k: String @key  n: I64?  t: String? }
node Log { body: String?  m: I64? }
edge E: P -> P { w: I64? }
edge K: P -> P { y: I64  w: I64?  @key(src, dst, y) }
"""
KEYS = ("a", "b", "c", 'd"')
TEXTS = ("x", "y", "xy")
Row = dict[str, Any]
Truth = bool | None
Condition = tuple[str, Callable[[Row], Truth]]


class Disagreement(Exception):
    """Two rows of a match set one property to different values."""


# --- conditions and expressions, as text and as Python --------------------------------------------------


def compared(left: Any, operator: str, right: Any) -> Truth:
    if left is None or right is None:
        return None
    return {"=": left == right, "!=": left != right, "<": left < right, ">=": left >= right}[operator]


def conditions(rng: random.Random, number: str, text: str, depth: int = 2) -> Condition:
    """A condition over a number and a text of a row, given by how they are written; the row has them by that name."""
    if depth and rng.random() < 0.5:
        one, other = (conditions(rng, number, text, depth - 1) for _ in range(2))
        match rng.choice(["and", "or", "not"]):
            case "and":
                return f"({one[0]} and {other[0]})", lambda row: _and(one[1](row), other[1](row))
            case "or":
                return f"({one[0]} or {other[0]})", lambda row: _or(one[1](row), other[1](row))
        return f"not ({one[0]})", lambda row: _not(one[1](row))
    value, word = rng.randrange(-2, 4), rng.choice(TEXTS)
    operator = rng.choice(["=", "!=", "<", ">="])
    return rng.choice(
        [
            (f"{number} {operator} {value}", lambda row: compared(row[number], operator, value)),
            (f"{number} + 1 {operator} {value}", lambda row: compared(_plus(row[number], 1), operator, value)),
            (f"{number} is null", lambda row: row[number] is None),
            (f"{number} is not null", lambda row: row[number] is not None),
            (f"{number} in [{value}, 2]", lambda row: None if row[number] is None else row[number] in (value, 2)),
            (f'{text} = "{word}"', lambda row: compared(row[text], "=", word)),
            (f'{text} starts_with "x"', lambda row: None if row[text] is None else row[text].startswith("x")),
            ("true", lambda row: True),
        ]
    )


def _and(one: Truth, other: Truth) -> Truth:
    return False if one is False or other is False else None if one is None or other is None else True


def _or(one: Truth, other: Truth) -> Truth:
    return _not(_and(_not(one), _not(other)))


def _not(one: Truth) -> Truth:
    return None if one is None else not one


def _plus(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def numbers(rng: random.Random, own: str, matched: str | None = None) -> tuple[str, Callable[[Row, Row], Any]]:
    """An expression that is a number, of the row itself and perhaps of the row of the match."""
    value = rng.randrange(-2, 4)
    choices: list[tuple[str, Callable[[Row, Row], Any]]] = [
        (str(value), lambda row, at: value),
        (f"{own} + {abs(value)}", lambda row, at: _plus(row[own], abs(value))),
        (f"coalesce({own}, 1) - 1", lambda row, at: (1 if row[own] is None else row[own]) - 1),
        (f"-{own}", lambda row, at: None if row[own] is None else -row[own]),
    ]
    if matched is not None:
        choices += [
            (matched, lambda row, at: at[matched]),
            (f"{matched} + coalesce({own}, 0)", lambda row, at: _plus(at[matched], row[own] or 0)),
        ]
    return rng.choice(choices)


# --- the model ------------------------------------------------------------------------------------------


class Model:
    """The graph as dicts: nodes by id, edges by id where a key gives one, else as a list."""

    def __init__(self) -> None:
        self.p: dict[str, Row] = {}
        self.log: list[tuple[Any, Any]] = []
        self.e: list[Row] = []
        self.k: dict[str, Row] = {}

    def copy(self) -> Model:
        other = Model()
        other.p = {key: dict(row) for key, row in self.p.items()}
        other.k = {key: dict(row) for key, row in self.k.items()}
        other.e, other.log = [dict(row) for row in self.e], list(self.log)
        return other

    def table(self, name: str) -> list[Row]:
        return list({"P": self.p, "K": self.k}[name].values()) if name in "PK" else self.e

    def remove(self, name: str, rows: list[Row]) -> tuple[int, int]:
        gone = {id(row) for row in rows}
        if name == "E":
            self.e = [row for row in self.e if id(row) not in gone]
        elif name == "K":
            self.k = {key: row for key, row in self.k.items() if id(row) not in gone}
        else:
            keys = {row["k"] for row in rows}
            edges = len(self.e) + len(self.k)
            self.p = {key: row for key, row in self.p.items() if key not in keys}
            self.e = [row for row in self.e if not {row["from"], row["to"]} & keys]
            self.k = {key: row for key, row in self.k.items() if not {row["from"], row["to"]} & keys}
            return len(keys), edges - len(self.e) - len(self.k)
        return 0, len(rows)

    def update(self, pairs: list[tuple[Row, Row]], name: str, value: Callable[[Row, Row], Any]) -> int:
        """Set a property of rows, each for rows of the match, from what they were before."""
        values: dict[int, Any] = {}
        for row, at in pairs:
            new = value(row, at)
            if values.setdefault(id(row), new) != new:
                raise Disagreement
        for row, _ in pairs:
            row[name] = values[id(row)]
        return len(values)

    def state(self) -> Any:
        p = sorted((row["k"], row["n"], row["t"]) for row in self.p.values())
        e = sorted(((row["from"], row["to"], row["w"]) for row in self.e), key=str)
        k = sorted((row["id"], row["from"], row["to"], row["y"], row["w"]) for row in self.k.values())
        return str(p), str(e), str(k), str(sorted(self.log, key=str))


def edge_id(source: str, target: str, y: int) -> str:
    return json.dumps([source, target, str(y)], separators=(",", ":"), ensure_ascii=False)


# --- statements: each gives its text and what it does to the model, with counts, ids and rows -----------

Done = tuple[int, int, list[str] | None, list[Row] | None]
Statement = tuple[str, Callable[[Model, list[Row]], Done]]
ONE: list[Row] = [{}]


def literal(value: Any) -> str:
    return '"' + value.replace('"', '\\"') + '"' if isinstance(value, str) else str(value)


def insert_node(rng: random.Random) -> Statement:
    key, n, t = rng.choice(KEYS), rng.randrange(-2, 4), rng.choice(TEXTS)
    given = {name: value for name, value in (("n", n), ("t", t)) if rng.random() < 0.7}

    def run(model: Model, rows: list[Row]) -> Done:
        model.p[key] = {"k": key, "id": key, "n": given.get("n"), "t": given.get("t")}
        return 1, 0, [key], None

    values = ", ".join(f"{name}: {literal(value)}" for name, value in {"k": key, **given}.items())
    return f"insert P {{ {values} }}", run


def insert_keyed(rng: random.Random) -> Statement:
    source, target, y, w = rng.choice(KEYS), rng.choice(KEYS), rng.randrange(2), rng.randrange(4)

    def run(model: Model, rows: list[Row]) -> Done:
        name = edge_id(source, target, y)
        model.k[name] = {"id": name, "from": source, "to": target, "y": y, "w": w, "t": None}
        return 0, 1, [name], None

    return f"insert K {{ from: {literal(source)}, to: {literal(target)}, y: {y}, w: {w} - 0 }}", run


def insert_edge(rng: random.Random) -> Statement:
    source, target, w = rng.choice(KEYS), rng.choice(KEYS), rng.randrange(4)

    def run(model: Model, rows: list[Row]) -> Done:
        model.e.append({"from": source, "to": target, "w": w})
        return 0, 1, None, None

    return f"insert E {{ from: {literal(source)}, to: {literal(target)}, w: {w} }}", run


def of_type(rng: random.Random, name: str) -> tuple[str, Callable[[Row], Truth]]:
    if name == "P":
        return conditions(rng, "n", "t")
    text = rng.choice(["from", "to"])
    return conditions(rng, "w", text)


def update_type(rng: random.Random) -> Statement:
    name = rng.choice(["P", "P", "E", "K"])
    text, holds = of_type(rng, name)
    prop = "n" if name == "P" else "w"
    written, value = numbers(rng, prop)

    def run(model: Model, rows: list[Row]) -> Done:
        hits = [row for row in model.table(name) if holds(row) is True]
        count = model.update([(row, {}) for row in hits], prop, value)
        ids = None if name == "E" else sorted(row["id"] for row in hits)
        return (count, 0, ids, None) if name == "P" else (0, count, ids, None)

    return f"update {name} set {{ {prop}: {written} }} where {text}", run


def delete_type(rng: random.Random) -> Statement:
    name = rng.choice(["P", "E", "K"])
    text, holds = of_type(rng, name)

    def run(model: Model, rows: list[Row]) -> Done:
        hits = [row for row in model.table(name) if holds(row) is True]
        ids = None if name == "E" else sorted(row["id"] for row in hits)
        return *model.remove(name, hits), ids, None

    return f"delete {name} where {text}", run


# --- matches --------------------------------------------------------------------------------------------


def match_nodes(rng: random.Random) -> tuple[str, Callable[[Model], list[Row]]]:
    text, holds = conditions(rng, "$a.n", "$a.t", 1)

    def rows(model: Model) -> list[Row]:
        found = [{"$a.n": row["n"], "$a.t": row["t"], "a": key} for key, row in sorted(model.p.items())]
        return [row for row in found if holds(row) is True]

    return f"$a: P {text}", rows


def match_pairs(rng: random.Random) -> tuple[str, Callable[[Model], list[Row]]]:
    def rows(model: Model) -> list[Row]:
        pairs = sorted({(row["from"], row["to"]) for row in model.e})
        return [{"$a.n": model.p[a]["n"], "$a.t": model.p[a]["t"], "a": a, "b": b} for a, b in pairs]

    return "$a: P $a e $b", rows


def for_match(rng: random.Random, variables: str) -> Statement:
    """A statement that inserts or updates for the rows of a match."""
    target = rng.choice(variables)
    written, value = numbers(rng, "n", "$a.n")

    def update(model: Model, rows: list[Row]) -> Done:
        count = model.update([(model.p[row[target]], row) for row in rows], "n", value)
        return count, 0, list(dict.fromkeys(row[target] for row in rows)), None

    def log(model: Model, rows: list[Row]) -> Done:
        model.log += [(row["$a.t"], row["$a.n"]) for row in rows]
        return len(rows), 0, None, None

    def keyed(model: Model, rows: list[Row]) -> Done:
        made: dict[str, Row] = {}
        for row in rows:
            name = edge_id(row[target], row["a"], 1)
            new = {"id": name, "from": row[target], "to": row["a"], "y": 1, "w": row["$a.n"], "t": None}
            if made.setdefault(name, new) != new:
                raise Disagreement
        model.k.update(made)
        return 0, len(made), list(made), None

    def joined(model: Model, rows: list[Row]) -> Done:
        pairs = [(own, row) for row in rows for own in model.p.values() if compared(own["t"], "=", row["$a.t"])]
        count = model.update(pairs, "n", value)
        return count, 0, sorted({own["k"] for own, _ in pairs}), None

    def beside(model: Model, rows: list[Row]) -> Done:
        pairs = [(own, row) for row in rows for own in model.k.values() if compared(own["w"], ">=", row["$a.n"])]
        count = model.update(pairs, "w", lambda own, row: own["w"] + 1)
        return 0, count, sorted({own["id"] for own, _ in pairs}), None

    return rng.choice(
        [
            (f"update ${target} set {{ n: {written} }}", update),
            ("insert Log { body: $a.t, m: $a.n }", log),
            (f"insert K {{ from: ${target}, to: $a, y: 1, w: $a.n }}", keyed),
            (f"update P set {{ n: {written} }} where t = $a.t", joined),
            ("update K set { w: w + 1 } where w >= $a.n", beside),
        ]
    )


def delete_for_match(rng: random.Random, variables: str) -> Statement:
    target = rng.choice(variables)

    def delete(model: Model, rows: list[Row]) -> Done:
        ids = list(dict.fromkeys(row[target] for row in rows))
        return *model.remove("P", [model.p[key] for key in ids]), sorted(ids), None

    def edges(model: Model, rows: list[Row]) -> Done:
        hits = [
            own
            for own in model.e
            if any(own["from"] == row["a"] and compared(own["w"], ">=", row["$a.n"]) for row in rows)
        ]
        return *model.remove("E", hits), None, None

    return rng.choice([(f"delete ${target}", delete), ("delete E where from = $a.id and w >= $a.n", edges)])


def returned(rng: random.Random) -> Statement:
    text, holds = of_type(rng, "P")
    written, value = numbers(rng, "n")

    def run(model: Model, rows: list[Row]) -> Done:
        hits = [row for row in model.p.values() if holds(row) is True]
        count = model.update([(row, {}) for row in hits], "n", value)
        shown = [
            {"p": row["k"], "p.n": row["n"], "m": _plus(row["n"], 1)} for row in sorted(hits, key=lambda r: r["k"])
        ]
        return count, 0, sorted(row["k"] for row in hits), shown

    return f"update P set {{ n: {written} }} where {text} as $p return {{ $p, $p.n, $p.n + 1 as m }}", run


def programs(rng: random.Random) -> tuple[str, Callable[[Model], list[Row]], list[Statement]]:
    kind = rng.random()
    if kind < 0.35:
        makers = [insert_node, insert_node, insert_keyed, insert_edge, update_type, update_type]
        return "", lambda model: ONE, [rng.choice(makers)(rng) for _ in range(rng.randrange(1, 4))]
    if kind < 0.45:
        return "", lambda model: ONE, [delete_type(rng) for _ in range(rng.randrange(1, 3))]
    if kind < 0.55:
        return "", lambda model: ONE, [returned(rng)]
    match, rows = rng.choice([match_nodes, match_pairs])(rng)
    variables = "a" if "$b" not in match else "ab"
    if kind < 0.65:
        return match, rows, [delete_for_match(rng, variables)]
    return match, rows, [for_match(rng, variables) for _ in range(rng.randrange(1, 3))]


# --- running both ---------------------------------------------------------------------------------------


def state_of(graph: omnigraph.Graph) -> Any:
    scan = graph.context.manifest.snapshot().open

    def rows(key: str, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in scan(key).scan(list(columns)).to_pylist()]

    return (
        str(sorted(rows("node:P", "k", "n", "t"))),
        str(sorted(rows("edge:E", "src", "dst", "w"), key=str)),
        str(sorted(rows("edge:K", "id", "src", "dst", "y", "w"))),
        str(sorted(rows("node:Log", "body", "m"), key=str)),
    )


def step(rng: random.Random, graph: omnigraph.Graph, model: Model) -> Model:
    """Run one program on both; they agree on what it does, or on that it cannot be."""
    match, rows_of, statements = programs(rng)
    head = f"match {{ {match} }} " if match else ""
    text = f"query q() {{ {head}{' '.join(text for text, _ in statements)} }}"
    expected, rows = model.copy(), rows_of(model)
    nodes, edges, ids, shown, refused = 0, 0, [], None, False
    try:
        for _, run in statements:
            done = run(expected, rows) if rows else (0, 0, [], None)
            nodes, edges, shown = nodes + done[0], edges + done[1], done[3]
            ids.append(done[2])
    except Disagreement:
        refused = True
    refused = refused or any(
        end not in expected.p for row in [*expected.e, *expected.k.values()] for end in (row["from"], row["to"])
    )
    if refused:
        with pytest.raises(ConstraintError):
            graph.mutate(text)
        assert state_of(graph) == model.state(), text
        return model
    result = graph.mutate(text)
    is_delete = statements[0][0].startswith("delete")
    if not is_delete or len(statements) == 1:
        assert (result.affected_nodes, result.affected_edges) == (nodes, edges), text
    for wanted, touched in zip(ids, result.ids, strict=True):
        if wanted is not None and not is_delete:
            assert touched.ids == tuple(wanted[: told.IDS_MAX]), text
            assert touched.more is (len(wanted) > told.IDS_MAX)
    if shown is not None:
        assert result.rows == shown, text
    assert state_of(graph) == expected.state(), text
    return expected


def run(folder: Path, seed: int, steps: int) -> None:
    """Programs on a graph that stays open, and the same ones on a graph that is opened for each of them."""
    warm, cold = random.Random(seed), random.Random(seed)
    graph = omnigraph.create(folder / "warm.omni", SCHEMA)
    omnigraph.create(folder / "cold.omni", SCHEMA).close()
    model, again = Model(), Model()
    for _ in range(steps):
        graph.query("query q() { match { $a e $b } return { count($a) as n } }")
        model = step(warm, graph, model)
        SHARED.clear()
        with omnigraph.connect(folder / "cold.omni") as fresh:
            again = step(cold, fresh, again)
        assert model.state() == again.state()
    graph.close()


@pytest.mark.parametrize("seed", range(6))
def test_mutations_do_what_the_model_does(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", always_first(10, range(100, 125)))
def test_many_mutations_do_what_the_model_does(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 40)
