"""A table with more than 2 GiB of text in one fragment, through every door that reads or writes a whole column.

Takes about 5 GB of memory and 3 GB of disk.
"""

import os
import resource

import numpy as np
import pyarrow as pa
from tests.amounts import EXHAUSTIVE_FIRST

from omnigraph import create
from omnigraph.engine.storage.cache import SHARED
from omnigraph.testing.children import run_child

SCHEMA = "node Doc { name: String @key  body: String  n: I32 }"
ROWS, PART = 1_000_000, 50_000
WIDTH = 2_300


def texts(first: int, count: int) -> pa.Array:
    """Documents of one width: a word of their own, a word that few share, and the same filling as all others."""
    lines = np.full((count, WIDTH), ord("z"), dtype=np.uint8)
    lines[:, 64::64] = ord(" ")
    # Long runs of letters are no words, so that looking for words takes seconds and not minutes.
    lines[:, 17:] = np.where(lines[:, 17:] == ord(" "), ord("z"), lines[:, 17:])
    heads = [f"doc{row:07} k{row % 1000:03} " for row in range(first, first + count)]
    lines[:, :16] = np.frombuffer("".join(heads).encode(), dtype=np.uint8).reshape(count, 16)
    offsets = np.arange(count + 1, dtype=np.int32) * WIDTH
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(lines.reshape(-1)))


def batches():
    for first in range(0, ROWS, PART):
        names = pa.array([f"d{row:07}" for row in range(first, first + PART)])
        numbers = pa.array(np.arange(first, first + PART, dtype=np.int32))
        yield pa.RecordBatch.from_arrays([names, texts(first, PART), numbers], ["name", "body", "n"])


def ask(graph, match: str, returned: str) -> list:
    rows = graph.query(f"query q() {{ match {{ $d: Doc  {match} }} return {{ {returned} }} }}").to_pylist()
    return [next(iter(row.values())) for row in rows]


def load_search_change_and_export(root: str) -> None:
    """What the test is about, in a process whose peak is its own."""
    graph = create(root, SCHEMA)
    schema = pa.schema([("name", pa.string()), ("body", pa.string()), ("n", pa.int32())])
    graph.load({"Doc": pa.RecordBatchReader.from_batches(schema, batches())}, mode="append", engine="local")
    graph.mutate('query q() { delete Doc where name = "d0000007" }')
    graph.maintenance.optimize()
    SHARED.clear()
    last = texts(ROWS - 1, 1)[0].as_py()
    assert ask(graph, f'$d.body = "{last}"', "$d.name") == [f"d{ROWS - 1:07}"]
    assert ask(graph, f'$d.body contains "doc{ROWS - 2:07}"', "$d.name") == [f"d{ROWS - 2:07}"]
    assert ask(graph, '$d.body starts_with "doc000000"', "count($d) as n") == [9]
    assert ask(graph, 'search($d.body, "k777")', "count($d) as n") == [ROWS // 1000]
    assert ask(graph, f'search($d.body, "doc{ROWS // 2:07}")', "$d.name") == [f"d{ROWS // 2:07}"]
    assert ask(graph, "", "max($d.body) as m") == [last]
    first = "query q() { match { $d: Doc } return { $d.name } order { $d.body } limit 2 }"
    assert [row["d.name"] for row in graph.query(first)] == ["d0000000", "d0000001"]
    words = f"doc{ROWS // 2 + 1:07} k001"
    best = f'query q() {{ match {{ $d: Doc }} return {{ $d.name }} order {{ bm25($d.body, "{words}") }} limit 1 }}'
    assert [row["d.name"] for row in graph.query(best)] == [f"d{ROWS // 2 + 1:07}"]
    graph.mutate(f'query q() {{ update Doc set {{ n: 0 }} where name = "d{ROWS - 1:07}" }}')
    assert ask(graph, "$d.n = 0", "count($d) as n") == [2]
    assert sum(len(line) > WIDTH for line in graph.export()) == ROWS - 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert peak < 7, f"{peak:.1f} GB at the peak, of {os.getpid()}"


@EXHAUSTIVE_FIRST
def test_more_than_two_gibibytes_of_text_are_loaded_searched_changed_and_exported(disk_path):
    assert ROWS * WIDTH > 2**31
    assert run_child(load_search_change_and_export, str(disk_path / "graph"), timeout_seconds=900) == 0
