"""A group that has grown by several fragments at once: what is joined is what would have been made of the whole."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.read.columns.nodes import NodeView, file_codes
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.columns.values import as_numpy
from omnigraph.engine.read.operators import lookup
from omnigraph.engine.read.text.search import text_index
from omnigraph.engine.storage.cache import ByteCache
from omnigraph.engine.storage.tables import TableStore
from omnigraph.graph import create

PARTS = [
    ["m", None, "c", "c"],
    ["z"],
    [None],
    ["a", "c", None, "b"],
    ["c"],
    ["quiet queen", "a"],
]
"""The texts of each fragment, so that new values sort before, among and after those before them."""
ALL = [text for part in PARTS for text in part]


def rows(first: int, texts: list[str | None]) -> pa.Table:
    numbers = [None if text is None else len(text) * 100 + ord(text[0]) for text in texts]
    return pa.table(
        {
            "id": pa.array([f"row {first + place}" for place in range(len(texts))]),
            "text": pa.array(texts, pa.string()),
            "number": pa.array(numbers, pa.int64()),
            "day": pa.array(numbers, pa.int32()).cast(pa.date32()),
        }
    )


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    made = TableStore(str(tmp_path))
    first = rows(0, PARTS[0])
    made.create("nodes/N", first.schema, first)
    return made


def grow(store: TableStore, since: int, until: int) -> None:
    for number in range(since, until):
        start = sum(len(part) for part in PARTS[:number])
        lance.write_dataset(rows(start, PARTS[number]), store.location("nodes/N"), mode="append")


def view_of(store: TableStore, cache: ByteCache) -> NodeView:
    view = NodeView(store.open("nodes/N"), cache)
    assert len(view.groups) == 1
    return view


def equal_rows(view: TableView, column: str) -> list[list[int]]:
    """For every distinct value of a column the rows a lookup gives."""
    index = lookup._sorted_group(view, view.groups[0], column)
    values, _ = as_numpy(view.chunk(view.groups[0], column)) if column != "text" else (ALL, None)
    distinct = sorted({value for value in values if value is not None})
    return [sorted(index.equal(value).tolist()) for value in distinct]


@pytest.mark.parametrize("column", ["text", "number", "day"])
@pytest.mark.parametrize("known", range(1, len(PARTS)))
def test_sorted_values_of_a_group_that_grew_by_several_fragments(store: TableStore, column: str, known: int) -> None:
    cache = ByteCache()
    grow(store, 1, known)
    lookup._sorted_group(view_of(store, cache), view_of(store, cache).groups[0], column)
    grow(store, known, len(PARTS))
    grown = view_of(store, cache)
    assert equal_rows(grown, column) == equal_rows(view_of(store, ByteCache()), column)
    texts = sorted({text for text in ALL if text is not None})
    index = lookup._sorted_group(grown, grown.groups[0], "text")
    for text in texts:
        assert sorted(index.equal(text).tolist()) == [place for place, each in enumerate(ALL) if each == text]


@pytest.mark.parametrize("known", range(1, len(PARTS)))
def test_columns_codes_and_texts_of_a_group_that_grew_by_several_fragments(store: TableStore, known: int) -> None:
    cache = ByteCache()
    grow(store, 1, known)

    def derive(view: NodeView) -> None:
        view.chunk(view.groups[0], "text")
        file_codes(view, view.groups[0], view.dictionary)
        view.value_codes("text")
        text_index(view, view.groups[0], "text")

    derive(view_of(store, cache))
    grow(store, known, len(PARTS))
    view = view_of(store, cache)
    group = view.groups[0]
    assert view.chunk(group, "text").to_pylist() == ALL
    codes = file_codes(view, group, view.dictionary)
    assert view.dictionary.ids_of(codes).to_pylist() == [f"row {number}" for number in range(len(ALL))]
    first_seen = {text: ALL.index(text) for text in ALL}
    same = view.value_codes("text")
    assert np.array_equal(same == 0, [text is None for text in ALL])
    assert all(same[place] == same[first_seen[text]] for place, text in enumerate(ALL))
    assert len(set(same.tolist())) == len(set(ALL))
    found = [
        begin + row
        for begin, index in text_index(view, group, "text").numbered()
        if index.find("c") >= 0
        for row in index.postings(index.find("c"))[0].tolist()
    ]
    assert found == [place for place, text in enumerate(ALL) if text == "c"]


@pytest.mark.parametrize(("size", "inserted"), [(512, 3), (600, 12), (600, 18), (2048, 3)])
def test_a_long_lived_handle_finds_every_node_written_since_its_last_question(
    tmp_path: Path, size: int, inserted: int
) -> None:
    schema = "node P { name: String @key  age: I32  born: Date }\nedge Knows: P -> P"
    graph = create(tmp_path / "graph", schema)
    keys = [f"p{number}" for number in range(size)]
    people = pa.table(
        {"name": keys, "age": list(range(size)), "born": pa.array(range(size), pa.int32()).cast("date32")}
    )
    graph.load({"P": people}, mode="overwrite", engine="local")
    by_key = "query q($v: String) { match { $p: P { name: $v } } return { $p.name as name, $p.age as age } }"
    by_age = "query q($v: I32) { match { $p: P { age: $v } } return { $p.name as name, $p.age as age } }"
    onward = "query q($v: String) { match { $p: P { name: $v } $p knows $q } return { $q.name as name } }"
    for _ in range(3):
        graph.query(by_key, {"v": "p5"}).to_pylist()
        graph.query(by_age, {"v": 5}).to_pylist()
    for number in range(inserted):
        born = f'insert P {{ name: "new{number}", age: {size + number}, born: date("2000-01-01") }}'
        graph.mutate(f'query m() {{ {born} insert Knows {{ from: "new{number}", to: "p{number}" }} }}')
    for number in range(inserted):
        expected = [{"name": f"new{number}", "age": size + number}]
        assert graph.query(by_key, {"v": f"new{number}"}).to_pylist() == expected
        assert graph.query(by_age, {"v": size + number}).to_pylist() == expected
        assert graph.query(onward, {"v": f"new{number}"}).to_pylist() == [{"name": f"p{number}"}]
