"""Questions that the plain evaluator answers: words, vectors, orders, edges and what they hold, groups, paths.

Each template is a query with its parameters. The dictionaries are handed to the evaluator as a graph of plain lists;
edges that a mutation inserted have ids nobody knows beforehand, so no template shows one or orders by it.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

from tests.plain.evaluator import PlainGraph, evaluate
from tests.property.differential.world import WORDS, State

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.plan import compile_query
from omnigraph.plan.operators import ReadPlan
from omnigraph.plan.parameters import bind

Template = tuple[str, str, dict[str, Any]]
"""The declared parameters, the body, and the parameters."""

_CATALOGS: dict[str, Catalog] = {}


def searched(rng: random.Random) -> Template:
    """Words, vectors, both together, and orders."""
    words = " ".join(rng.choice(WORDS) for _ in range(rng.choice([1, 2])))
    vector = [rng.choice([0.0, 0.5, 1.0]) for _ in range(4)]
    limit = rng.choice([1, 3, 8])
    order = rng.choice(["$p.name", "$p.i64 desc", "$p.day, $p.name desc", "$p.key desc"])
    ranked = f"return {{ $p.key as k }} order {{ %s }} limit {limit}"
    kind = rng.choice(["red", "green", "blue"])
    both = {"v": vector, "t": words}
    return rng.choice(
        [
            ("$t: String", "match { $p: Person search($p.bio, $t) } return { $p.key as k }", {"t": words}),
            ("$t: String", "match { $p: Person fuzzy($p.bio, $t, 1) } return { $p.key as k }", {"t": words}),
            ("$t: String", "match { $p: Person } " + ranked % "bm25($p.bio, $t)", {"t": words}),
            ("$v: Vector(4)", "match { $p: Person } " + ranked % "nearest($p.taste, $v)", {"v": vector}),
            (
                "$v: Vector(4), $t: String",
                "match { $p: Person } " + ranked % "rrf(nearest($p.taste, $v), bm25($p.bio, $t))",
                both,
            ),
            (
                "$v: Vector(4), $k: String",
                "match { $p: Person { kind: $k } } " + ranked % "nearest($p.taste, $v)",
                {"v": vector, "k": kind},
            ),
            (
                "$v: Vector(4), $t: String",
                "match { $p: Person search($p.bio, $t) } " + ranked % "nearest($p.taste, $v)",
                both,
            ),
            ("", f"match {{ $p: Person }} return {{ $p.key as k }} order {{ {order} }} limit {limit}", {}),
            ("", f"match {{ $p: Person }} return {{ $p.key as k }} order {{ {order} }}", {}),
        ]
    )


def joined(rng: random.Random, state: State, key: str) -> Template:
    """Edges and what they hold, groups, lists of values, blocks and paths."""
    since, least = rng.choice([1, 2]), rng.choice([0, 1, 2])
    names = rng.sample(["ana", "bo", "bob", "", "nobody"], 2)
    keys = [*rng.sample(list(state.people), min(2, len(state.people))), key, "nobody"]
    words = rng.choice(WORDS)
    start = "$a: Person { key: $v }"
    one = ("$v: String", {"v": key})
    templates = [
        (one, f"{start} $a $e:knows $b $e.since = {since}", "$b.key as k, $e.tag as t"),
        (one, f"{start} $b $e:knows $a $e.since is null", "$b.key as k, $e.tag as t"),
        (
            one,
            f"{start} $a $e:knows $b $b $f:knows $c $e.since >= {since} $c.i32 >= {least}",
            "$c.name as g, count($c) as n, count(distinct $b) as d",
        ),
        (("", {}), f"$a $e:knows $b $e.since >= {since}", "$a.name as g, count($e) as n, min($e.tag) as low"),
        (("", {}), f"$a $e:knows $b $e.tag > {rng.randrange(60)}", "$a.key as a, $b.key as b, $e.since as s"),
        (("", {}), f"$a: Person not {{ $a $e:knows $b $e.since = {since} }}", "$a.key as k"),
        (("", {}), f"$a: Person exists {{ $a knows $b $b.i32 > {least} }}", "$a.key as k"),
        (("$k: [String]", {"k": keys}), "$p: Person $p.key in $k", "$p.key as k, $p.day as d, $p.at as t"),
        (("$k: [String]", {"k": names}), "$p: Person $p.name in $k", "$p.key as k, $p.flag as f"),
        (("", {}), '$p: Person $p.name starts_with "bo" or $p.name is null', "$p.key as k"),
        (("", {}), "$p: Person optional { $p lives $x }", "$p.key as k, $x.size as s"),
        (one, f"{start} either {{ $a knows $b }} or {{ $b knows $a }}", "$b.key as k"),
        (one, f"{start} $b: Person path $w = shortest $a knows{{1,4}} $b", "$b.key as k, length($w) as n"),
        (("$t: String", {"t": words}), "$a knows $b search($b.bio, $t)", "$a.key as a, $b.key as b"),
        (("", {}), "$p: Person", "$p.kind as g, avg($p.i32) as m, count(distinct $p.name) as d, max($p.at) as t"),
        (("", {}), "$p: Person", "$p.flag as g, collect(distinct $p.u32) as c, min($p.day) as d, sum($p.u32) as s"),
        (("", {}), "$a knows $b", "$b.kind as g, $a.kind as h, count($a) as n"),
        (("", {}), "$p lives $x", "$x.size as g, count($p) as n, collect($p.name) as c"),
    ]
    (declared, given), body, shown = rng.choice(templates)
    return declared, f"match {{ {body} }} return {{ {shown} }}", given


def answer_of(text: str, given: dict[str, Any]) -> Callable[[State], list[tuple[Any, ...]]]:
    """What the plain evaluator makes of a query."""

    def answer(state: State) -> list[tuple[Any, ...]]:
        schema = state.schema.text
        if schema not in _CATALOGS:
            _CATALOGS[schema] = compile_schema(schema)
        plan = compile_query(_CATALOGS[schema], text, None)
        assert isinstance(plan, ReadPlan)
        rows = evaluate(plan, _plain(state), bind(plan.parameters, given), dt.datetime.now(dt.UTC))
        return [tuple(_shown(value) for value in row) for row in rows]

    return answer


def _plain(state: State) -> PlainGraph:
    nodes = {
        "Person": [{"id": key, **props} for key, props in state.people.items()],
        "Place": [{"id": key, **props} for key, props in state.places.items()],
    }
    edges = {
        name: [{**props, "id": str(tag), "src": props["from"], "dst": props["to"]} for tag, props in held.items()]
        for name, held in (("Knows", state.knows), ("Lives", state.lives))
    }
    return PlainGraph(nodes, edges)


def _shown(value: Any) -> Any:
    """A value as a result tells it."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value.isoformat() if isinstance(value, dt.date) else value
