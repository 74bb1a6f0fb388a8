"""Dictionaries, caches and bundles: what is kept, and what happens when it is wrong."""

import json
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.read.cache import persist
from omnigraph.engine.read.cache.derived import DerivedStore
from omnigraph.engine.read.columns import nodes as nodes_module
from omnigraph.engine.read.columns.dictionary import TAIL_MAX, IdDictionary
from omnigraph.engine.read.graph import segments
from omnigraph.engine.storage.cache import SHARED, ByteCache

PAIRS = "match { $a knows $b } return { $a.key, $b.key } order { $a.key, $b.key }"


def test_an_id_keeps_its_code_however_the_dictionary_grows():
    dictionary = IdDictionary()
    first = dictionary.encode(pa.array(["b", "a", "b"]))
    assert first.tolist() == [0, 1, 0]
    many = pa.array([f"n{n}" for n in range(TAIL_MAX * 2)])
    dictionary.encode(many)
    again = dictionary.encode(pa.array(["new", "a", "n5"]))
    assert again[1:].tolist() == [1, 7]
    assert dictionary.code("new") == again[0] == len(dictionary) - 1
    assert dictionary.code("nobody") == -1
    assert dictionary.find(pa.array(["nobody", "b"])).tolist() == [-1, 0]
    assert dictionary.ids_of(np.array([again[0], 0])).to_pylist() == ["new", "b"]
    ids = dictionary.ids_of(np.arange(len(dictionary))).to_pylist()
    assert sorted(ids) == [ids[i] for i in np.argsort(dictionary.order()[1:])]


def test_a_dictionary_orders_its_ids_by_their_bytes_while_it_grows(monkeypatch):
    monkeypatch.setattr("omnigraph.engine.read.columns.dictionary.TAIL_MAX", 5)
    dictionary = IdDictionary(pa.array(["m", "b", "é"]))
    assert not dictionary.is_ordered
    for fresh in (["n"], ["a", "zz"], ["", "mm", "é!"], ["b\0", "a!", "c", "d"]):
        dictionary.encode(pa.array(fresh))
        order, ids = dictionary.order(), dictionary.ids_of(np.arange(len(dictionary))).to_pylist()
        assert order[0] == 0
        assert (order[1:] > 0).all()
        assert sorted(ids, key=str.encode) == [ids[i] for i in np.argsort(order[1:])]
    assert dictionary.is_ordered


def test_the_cache_drops_the_least_recently_used_and_nothing_else():
    cache = ByteCache(10, entry_bytes=0)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    cache.put("huge", 9, 11)
    assert cache.get("huge") is None
    assert cache.use().bytes == 8
    assert cache.get_or_make("d", lambda: 4, lambda _: 1) == 4
    cache.resize(1)
    assert cache.use().entries == 1
    cache.clear()
    assert cache.use().bytes == 0


@pytest.fixture
def kept(graph, monkeypatch):
    """A graph whose adjacency was left on disk, and a process that has forgotten everything."""
    monkeypatch.setattr(persist, "EDGES_MIN", 1)
    expected = graph.ask(PAIRS)

    def forget():
        SHARED.clear()
        nodes_module._DICTIONARIES.clear()
        return graph.now()

    return graph, expected, forget


def bundles(graph):
    return sorted((Path(graph.store.root) / "_cache").rglob("facts.json"))


def test_a_fresh_process_reads_adjacency_from_disk_instead_of_making_it(kept, monkeypatch):
    graph, expected, forget = kept
    assert len(bundles(graph)) == 3
    later = forget()

    def refuse(*_):
        raise AssertionError("adjacency was made again")

    monkeypatch.setattr(segments, "build_csr", refuse)
    monkeypatch.setattr(segments, "_new_segment", refuse)
    assert later.ask(PAIRS) == expected


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "format", "facts", "lineage"])
def test_damaged_or_foreign_bundles_are_made_anew(kept, damage):
    graph, expected, forget = kept
    for facts in bundles(graph):
        folder = facts.parent
        if damage == "format":
            facts.write_text(json.dumps({**json.loads(facts.read_text()), "format": 99}))
        elif damage == "facts":
            facts.write_text("{")
        elif damage == "lineage":
            body = json.loads(facts.read_text())
            facts.write_text(json.dumps({**body, "states": ["x", "y"], "segment": "other"}))
        else:
            for file in folder.glob("*.npy"):
                if damage == "remove":
                    file.unlink()
                elif damage == "truncate":
                    file.write_bytes(file.read_bytes()[:-3])
                else:
                    content = bytearray(file.read_bytes())
                    content[-1] ^= 0xFF
                    file.write_bytes(bytes(content))
    assert forget().ask(PAIRS) == expected
    backwards = 'match { $b: Person { key: "p5" } $a knows $b } return { $a.key } order { $a.key }'
    assert forget().ask(backwards) == ["p3", "p4"]


def test_a_segment_damaged_after_it_was_opened_is_made_anew(kept):
    graph, expected, forget = kept
    later = forget()
    assert later.ask(PAIRS) == expected
    for file in Path(graph.store.root).rglob("sources.npy"):
        file.write_bytes(b"nonsense")
    backwards = 'match { $b: Person { key: "p5" } $a knows $b } return { $a.key } order { $a.key }'
    assert later.ask(backwards) == ["p3", "p4"]


def test_old_bundles_make_room_for_new_ones(tmp_path):
    store = DerivedStore(tmp_path / "d")
    for n in range(6):
        assert store.save("segment", {"a": np.arange(n)}, {"n": n})
    names = store.names("segment")
    assert len(names) == 3
    assert [store.load(name).facts["n"] for name in names] == [5, 4, 3]
    assert store.load(names[0]).arrays["a"].tolist() == [0, 1, 2, 3, 4]


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = DerivedStore(tmp_path / "file" / "below")
    assert store.save("segment", {"a": np.arange(3)}, {}) is False
    assert store.names("segment") == []


def test_many_threads_agree_on_codes_while_the_dictionary_grows():
    dictionary = IdDictionary()
    failures: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            ids = [f"n{n}" for n in rng.integers(0, 20_000, 800)]
            codes = dictionary.encode(pa.array(ids))
            back = dictionary.ids_of(codes).to_pylist()
            if back != ids or dictionary.code(ids[0]) != codes[0]:
                failures.append(f"{seed}: codes do not read back")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(set(dictionary.ids_of(np.arange(len(dictionary))).to_pylist())) == len(dictionary)


def test_very_many_ids_get_the_codes_that_few_get(monkeypatch):
    ids = pa.chunked_array([[f"n{n}" for n in range(900)], [f"n{n}" for n in range(300, 1_300)]])
    expected = IdDictionary(pa.array([f"n{n}" for n in range(500)])).encode(ids)
    monkeypatch.setattr("omnigraph.engine.read.columns.dictionary.SHARED_WORK_MIN", 0)
    monkeypatch.setattr("omnigraph.engine.read.columns.dictionary.SMALL", 0)
    found = IdDictionary(pa.array([f"n{n}" for n in range(500)])).encode(ids)
    assert found.tolist() == expected.tolist()
    assert found.dtype == np.int32
    assert IdDictionary().encode(ids).tolist() == [*range(900), *range(300, 1_300)]
