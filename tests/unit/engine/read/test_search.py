"""Text search while rows come, change and go: the same answers as from scratch, at the cost of what changed."""

import math
import random

import pytest

from omnigraph.engine.read.text import search
from omnigraph.engine.read.text.analysis import analyse
from omnigraph.engine.storage.cache import SHARED
from omnigraph.graph import create

SCHEMA = "node Post { slug: String @key  kind: I32  body: String?  at: Vector(3) }\nnode Other { slug: String @key }"
WORDS = ["queen", "queens", "harbour", "sea", "sails", "zebra", "storm", "island", "café", "north", "light", "wind"]
INSERT = (
    "query m($s: String, $t: String?, $v: Vector(3)) { insert Post { slug: $s, kind: 1, body: $t, at: $v } }",
    "query m($s: String, $t: String?) { update Post set { body: $t } where slug = $s }",
    "query m($s: String) { delete Post where slug = $s }",
)
EVERY, SOME = "$p: Post", "$p: Post $p.kind < 100"
BM25 = "order { bm25($p.body, $t) } limit 7"
RRF = "order { rrf(nearest($p.at, $v), bm25($p.body, $t)) } limit 7"
RRF_TURNED = "order { rrf(bm25($p.body, $t), nearest($p.at, $v), 3) } limit 5"
RRF_WORDS = 'order { rrf(bm25($p.body, $t), bm25($p.body, "sea storm")) } limit 6'
NEAR = "order { nearest($p.at, $v) } limit 7"
ORDERS = [BM25, RRF, RRF_TURNED, RRF_WORDS, NEAR]


def question(pattern: str, order: str) -> str:
    return f"query q($t: String, $v: Vector(3)) {{ match {{ {pattern} }} return {{ $p.slug as slug }} {order} }}"


@pytest.fixture
def rng():
    return random.Random(21)


def text(rng):
    return " ".join(rng.choices(WORDS, k=rng.randrange(6))) if rng.random() < 0.95 else None


def vector(rng):
    # Few different ones, so that distances tie.
    return [float(rng.randrange(3)) for _ in range(3)]


@pytest.fixture
def stored(tmp_path, rng):
    graph = create(tmp_path / "graph", SCHEMA)
    rows = {f"p{n:04d}": {"body": text(rng), "at": vector(rng)} for n in range(400)}
    graph.load([{"type": "Post", "data": {"slug": slug, "kind": 1, **row}} for slug, row in rows.items()])
    return graph, rows


def change(graph, rows, rng, number, old=None):
    insert, update, delete = INSERT
    kind = number % 4
    if kind == 0:
        slug = f"n{number:04d}"
        rows[slug] = {"body": text(rng), "at": vector(rng)}
        graph.mutate(insert, {"s": slug, "t": rows[slug]["body"], "v": rows[slug]["at"]})
    elif kind == 1:
        slug = old or rng.choice(sorted(rows))
        rows[slug]["body"] = text(rng)
        graph.mutate(update, {"s": slug, "t": rows[slug]["body"]})
    elif kind == 2:
        slug = old or rng.choice(sorted(rows))
        del rows[slug]
        graph.mutate(delete, {"s": slug})
    else:
        graph.mutate("query m($s: String) { insert Other { slug: $s } }", {"s": f"o{number}"})


def best_by_words(rows, query, limit):
    """`bm25` as the language defines it, a text at a time."""
    texts = {slug: analyse(row["body"]) for slug, row in rows.items() if row["body"] is not None}
    mean = sum(map(len, texts.values())) / len(texts)
    scores = {}
    for word in dict.fromkeys(analyse(query)):
        holders = sum(word in tokens for tokens in texts.values())
        inverse = math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5))
        for slug, tokens in texts.items():
            if count := tokens.count(word):
                share = 1 - 0.75 + 0.75 * len(tokens) / mean
                scores[slug] = scores.get(slug, 0) + inverse * (count * 2.2) / (count + 1.2 * share)
    return [round(score, 9) for score in sorted(scores.values(), reverse=True)[:limit]]


def ask(graph, pattern, order, params):
    return [row["slug"] for row in graph.query(question(pattern, order), params).to_pylist()]


@pytest.mark.long
def test_every_search_follows_the_rows_that_come_change_and_go(stored, rng):
    graph, rows = stored
    scored = f"query q($t: String) {{ match {{ $p: Post }} return {{ bm25($p.body, $t) as s }} {BM25} }}"
    for number in range(32):
        change(graph, rows, rng, number)
        params = {"t": " ".join(rng.sample(WORDS, 2)), "v": vector(rng)}
        found = {order: ask(graph, EVERY, order, params) for order in ORDERS}
        assert found == {order: ask(graph, SOME, order, params) for order in ORDERS}
        scores = [round(row["s"], 9) for row in graph.query(scored, {"t": params["t"]}).to_pylist()]
        assert scores == best_by_words(rows, params["t"], 7)
        wanted = set(analyse(params["t"]))
        holders = sorted(slug for slug, row in rows.items() if wanted & set(analyse(row["body"])))
        for function in ("search($p.body, $t)", "match_text($p.body, $t)", "fuzzy($p.body, $t, 0)"):
            assert ask(graph, f"{EVERY} {function}", "order { slug }", params) == holders
        if number % 8 == 7:
            SHARED.clear()
            assert found == {order: ask(graph, EVERY, order, params) for order in ORDERS}


def test_after_a_commit_only_what_it_wrote_is_analysed(stored, rng, monkeypatch):
    graph, rows = stored
    params = {"t": "queen storm", "v": [0.0, 0.0, 0.0]}
    ask(graph, EVERY, BM25, params)
    analysed = []
    build = search.build_text_index
    monkeypatch.setattr(search, "build_text_index", lambda texts: analysed.append(len(texts)) or build(texts))
    expected = {0: [1], 1: [1], 2: [], 3: []}
    for number in range(16):
        change(graph, rows, rng, number, f"p{number:04d}")
        ask(graph, EVERY, BM25, params)
        ask(graph, EVERY, RRF, params)
        # The thread that gets ready for a new state and the question may both come to the same row.
        assert set(analysed) == set(expected[number % 4])
        analysed.clear()
    # A row alone in its fragment takes the fragment along; those after it are put together anew, the rest stays.
    change(graph, rows, rng, 18, "n0008")
    ask(graph, EVERY, BM25, params)
    assert set(analysed) == {1}


def explained(graph, pattern, order, query="queen storm"):
    return graph.explain(question(pattern, order), {"t": query, "v": [0.0, 1.0, 2.0]}, analyze=True).to_text()


def test_explain_says_how_a_text_question_was_answered(stored):
    graph, rows = stored
    held = sum(bool({"queen", "storm"} & set(analyse(row["body"]))) for row in rows.values())
    by_index = "why=2 words looked up in the text index"
    words = explained(graph, EVERY, BM25)
    assert f"score bm25($p.body, $t)  [{by_index}, {held:,} texts scored, rows={held}," in words
    assert f"search search($p.body, $t)  [{by_index}, rows={held}," in words
    fused = explained(graph, EVERY, RRF)
    assert f"score bm25($p.body, $t)  [{by_index}, {held:,} texts scored, rows={held}," in fused
    assert "measure nearest($p.at, $v)  [why=exact: " in fused
    for function in ("search", "match_text"):
        assert f"[{by_index}, rows={held}," in explained(graph, f"{EVERY} {function}($p.body, $t)", "")
    distinct = len({word for row in rows.values() for word in analyse(row["body"])})
    near = explained(graph, f"{EVERY} fuzzy($p.body, $t)", "")
    assert f"[{by_index}, {distinct} distinct words compared, rows=" in near
    assert "why=the query text has no words to look for, rows=0" in explained(graph, EVERY, BM25, "of the")


def test_explain_counts_the_indexes_that_small_commits_brought(stored, rng):
    graph, rows = stored
    explained(graph, EVERY, BM25)
    change(graph, rows, rng, 0)
    assert "2 words looked up in 2 text indexes" in explained(graph, EVERY, BM25)


@pytest.mark.parametrize(("kind", "k"), [("I64", 2**63 - 1), ("U64", 2**63), ("U64", 2**64 - 1)])
def test_the_largest_k_of_rrf_leaves_scores_above_nothing(stored, kind, k):
    graph, _ = stored
    ranked = "rrf(nearest($p.at, [0, 0, 0]), bm25($p.body, $t), $k)"
    body = f"match {{ $p: Post }} return {{ $p.slug as slug, {ranked} as score }} order {{ score }} limit 5"
    found = list(graph.query(f"query q($t: String, $k: {kind}) {{ {body} }}", {"t": "queen", "k": k}))
    assert len(found) == 5
    assert {row["score"] for row in found} <= {1 / k, 2 / k}
