"""`nearest` on large groups: the same rows with a sketch, without one, and without the vectors in memory."""

import numpy as np
import pytest

from omnigraph.engine.read.cache import derived
from omnigraph.engine.read.columns import tables as tables_module
from omnigraph.engine.read.vector import nearest
from omnigraph.engine.storage.cache import SHARED
from omnigraph.graph import create

SCHEMA = """
node Post { slug: String @key  group: I32 @index  at: Vector(24)? @index }
"""
ROWS = 3000
NEAR = "query q($q: Vector(24)) { match { $p: Post } return { $p.slug } order { nearest($p.at, $q) } limit 7 }"
NEAR_SOME = (
    "query q($q: Vector(24)) { match { $p: Post } $p.group < 5 return { $p.slug, nearest($p.at, $q) as d }"
    " order { nearest($p.at, $q) } limit 7 }"
).replace("} $p.group < 5", " $p.group < 5 }")


def vectors(rng, count):
    weights = np.arange(1, 25) ** -0.5
    centres = rng.standard_normal((9, 24)) * weights
    return centres[rng.integers(0, 9, count)] + 0.4 * rng.standard_normal((count, 24)) * weights


def records(rng, count, prefix="p"):
    found = []
    for number, vector in enumerate(vectors(rng, count).astype(np.float32)):
        at = None if number % 50 == 17 else vector.tolist()
        found.append({"slug": f"{prefix}{number:05d}", "group": int(rng.integers(0, 10)), "at": at})
    return found


@pytest.fixture
def rng():
    return np.random.default_rng(8)


@pytest.fixture
def stored(tmp_path, rng, monkeypatch):
    """A graph and its rows; groups of a thousand rows count as large, and nothing is remembered."""
    monkeypatch.setattr(nearest, "SKETCHED_ROWS_MIN", 1000)
    monkeypatch.setattr(nearest, "NARROWED_ROWS_MIN", 100)
    graph = create(tmp_path / "graph", SCHEMA)
    rows = records(rng, ROWS)
    graph.load([{"type": "Post", "data": row} for row in rows], mode="overwrite")
    forget()
    return graph, {row["slug"]: row for row in rows}


def forget():
    SHARED.clear()


def expected(rows, query, limit=7, groups=10):
    query = np.asarray(query, dtype=np.float32).astype(np.float64)
    found = []
    for slug, row in rows.items():
        if row["at"] is not None and row["group"] < groups:
            difference = np.asarray(row["at"], dtype=np.float32).astype(np.float64) - query
            found.append((float((difference * difference).sum()), slug))
    return [slug for _, slug in sorted(found)[:limit]]


def slugs(result):
    return [row["p.slug"] for row in result.to_pylist()]


def questions(rng):
    return [vector.tolist() for vector in vectors(rng, 6).astype(np.float32)]


def test_a_sketch_finds_exactly_the_nearest_with_and_without_conditions(stored, rng):
    graph, rows = stored
    for query in questions(rng):
        assert slugs(graph.query(NEAR, {"q": query})) == expected(rows, query)
        assert slugs(graph.query(NEAR_SOME, {"q": query})) == expected(rows, query, groups=5)
    assert "by a sketch" in graph.explain(NEAR, {"q": query}, analyze=True).to_text()


def test_rows_that_come_change_or_go_are_followed(stored, rng):
    graph, rows = stored
    query = questions(rng)[0]
    best = expected(rows, query)
    assert slugs(graph.query(NEAR, {"q": query})) == best
    graph.mutate("query m($s: String) { delete Post where slug = $s }", {"s": best[0]})
    del rows[best[0]]
    graph.mutate(
        "query m($s: String, $v: Vector(24)) { update Post set { at: $v } where slug = $s }",
        {"s": best[1], "v": [9.0] * 24},
    )
    rows[best[1]] = {**rows[best[1]], "at": [9.0] * 24}
    graph.mutate('query m($v: Vector(24)) { insert Post { slug: "new", group: 1, at: $v } }', {"v": query})
    rows["new"] = {"group": 1, "at": query}
    assert expected(rows, query)[0] == "new"
    assert slugs(graph.query(NEAR, {"q": query})) == expected(rows, query)
    more = records(rng, 1500, "q")
    graph.load([{"type": "Post", "data": row} for row in more], mode="append")
    rows |= {row["slug"]: row for row in more}
    for query in questions(rng):
        assert slugs(graph.query(NEAR, {"q": query})) == expected(rows, query)
        assert slugs(graph.query(NEAR_SOME, {"q": query})) == expected(rows, query, groups=5)


@pytest.fixture
def sketch_files(tmp_path):
    """The notes of the sketches on disk, when asked."""
    return lambda: sorted((tmp_path / "graph").glob("_cache/**/sketch*/facts.json"))


def test_a_fresh_process_reads_the_sketch_and_not_the_vectors(stored, sketch_files, rng, monkeypatch):
    graph, rows = stored
    query = questions(rng)[0]
    graph.query(NEAR, {"q": query})
    assert len(sketch_files()) == 1
    forget()

    def refuse(*_):
        raise AssertionError("the whole column was read")

    monkeypatch.setattr(nearest, "build_sketch", refuse)
    read = tables_module.TableView.read
    monkeypatch.setattr(
        tables_module.TableView,
        "read",
        lambda self, fragment, columns: refuse() if "at" in columns else read(self, fragment, columns),
    )
    for query in questions(rng)[: nearest.TAKES_BEFORE_HOLDING // 3]:
        assert slugs(graph.query(NEAR, {"q": query})) == expected(rows, query)


def test_a_column_asked_for_often_is_held_in_memory_if_there_is_room(stored, rng, monkeypatch):
    graph, rows = stored
    query = questions(rng)[0]
    graph.query(NEAR, {"q": query})
    forget()
    taken = []
    take = nearest.vectors_at

    def count(view, group, column, rows):
        taken.append(view.held(group, column) is None)
        return take(view, group, column, rows)

    monkeypatch.setattr(nearest, "vectors_at", count)
    for _ in range(12):
        assert slugs(graph.query(NEAR, {"q": query})) == expected(rows, query)
    assert taken[0]
    assert not taken[-1]
    forget()
    monkeypatch.setattr(SHARED, "has_room_for", lambda size: False, raising=False)
    taken.clear()
    for _ in range(12):
        assert slugs(graph.query(NEAR, {"q": query})) == expected(rows, query)
    assert all(taken)


@pytest.mark.parametrize("damage", ["truncated", "other rows", "no facts"])
def test_a_sketch_that_is_damaged_or_of_other_files_is_made_anew(stored, sketch_files, rng, damage):
    graph, rows = stored
    query = questions(rng)[0]
    graph.query(NEAR, {"q": query})
    (facts,) = sketch_files()
    if damage == "truncated":
        codes = facts.parent / "body_codes.npy"
        codes.write_bytes(codes.read_bytes()[:-100])
    elif damage == "no facts":
        facts.write_text("{")
    else:
        facts.write_text(facts.read_text().replace(".lance", ".other"))
    forget()
    assert slugs(graph.query(NEAR, {"q": query})) == expected(rows, query)
    (anew,) = sketch_files()
    assert anew != facts


def test_vectors_that_have_no_sketch_are_compared_one_by_one(stored, sketch_files, rng):
    graph, _ = stored
    rows = {row["slug"]: row for row in [*records(rng, 1500), {"slug": "far", "group": 1, "at": [1e30] * 24}]}
    graph.load([{"type": "Post", "data": row} for row in rows.values()], mode="overwrite")
    for query in questions(rng):
        assert slugs(graph.query(NEAR, {"q": query})) == expected(rows, query)
    assert slugs(graph.query(NEAR, {"q": [1e30] * 24}))[0] == "far"
    assert not sketch_files()


def test_sketches_of_versions_gone_by_do_not_pile_up(stored, sketch_files, rng):
    graph, _ = stored
    for number in range(derived.KEPT + 3):
        graph.load([{"type": "Post", "data": row} for row in records(rng, 1000, f"r{number}")], mode="overwrite")
        graph.query(NEAR, {"q": questions(rng)[0]})
    assert len(sketch_files()) == derived.KEPT + 1
