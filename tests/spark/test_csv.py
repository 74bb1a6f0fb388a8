"""CSV whose values hold line ends: every record has one owner, and errors name its record and line."""

from __future__ import annotations

import csv
import gzip
import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import create
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.ingest.blame import Locator
from omnigraph.engine.ingest.shape import shape_feed
from omnigraph.engine.ingest.sources import Inputs, resolve
from omnigraph.errors import ConstraintError, InputError
from omnigraph.graph import Graph
from omnigraph.pipeline import run_job

SCHEMA = "node Note { title: String @key  text: String?  size: I32? }"
CATALOG = compile_schema(SCHEMA)

cells = st.text(alphabet='ab",\n\r ', max_size=6)


def inputs(path: Path, piece_bytes: int) -> Inputs:
    return resolve({"Note": path}, CATALOG, piece_bytes=piece_bytes)


def shaped_rows(found: Inputs) -> list[tuple[Any, ...]]:
    """Title and text of every record with the record and line its error would name, piece by piece."""
    locator = Locator(found, CATALOG)
    rows = []
    for number, feed in enumerate(found.feeds):
        for shaped in shape_feed(feed, CATALOG):
            assert not shaped.problems
            for table in shaped.tables.get("node:Note", []):
                for row in table.to_pylist():
                    blame = locator._place(number, row["@record"], row["@line"], "")
                    rows.append((row["title"], row["text"], blame.record, blame.line))
    return rows


@pytest.mark.long
@settings(deadline=None, max_examples=60)
@given(texts=st.lists(cells, min_size=1, max_size=12), piece_bytes=st.integers(1, 60), end=st.sampled_from(["", "\n"]))
def test_wherever_a_file_is_cut_every_record_is_read_once_with_its_line(
    texts: list[str], piece_bytes: int, end: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(["title", "text"])
    expected = []
    for number, text in enumerate(texts):
        line = out.getvalue().count("\n") + 1
        writer.writerow([f"t{number}", text])
        expected.append((f"t{number}", text, number + 1, line))
    path = tmp_path_factory.mktemp("csv") / "notes.csv"
    path.write_text(out.getvalue().removesuffix("\n") + end, newline="")
    assert shaped_rows(inputs(path, piece_bytes)) == expected


def test_an_error_behind_long_values_names_record_and_line(tmp_path: Path) -> None:
    long = '"' + "line\n" * 40 + '"'
    lines = ["title,text,size", f"a,{long},1", "", f"b,{long},2", "c,short,x"]
    path = tmp_path / "notes.csv"
    path.write_text("\n".join(lines) + "\n")
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    graph: Graph = create(tmp_path / "graph", SCHEMA)
    for source in (path, packed):
        # Values are read while they are stored, so that what refuses them is the load.
        expected = rf"{re.escape(source.name)}: record 3 \(line 85\): Note\.size: 'x' is not I32"
        with pytest.raises(ConstraintError, match=expected):
            graph.load({"Note": source}, mode="append", engine="local")
    assert graph.snapshot().open("node:Note").scan().num_rows == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title,text\na,"never closed\nb,c\n', "ends inside a quoted value"),
        ("title,text\na,b\nc\n", r"line 3: expected 2 values and found 1: c"),
        ("title,title\na,b\n", "names a column twice"),
        ('title,text\na,b "q" c" d\ne,f"\n', "a quote"),
    ],
)
def test_broken_csv_is_refused_in_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text(text)
    graph: Graph = create(tmp_path / "graph", SCHEMA)
    with pytest.raises(InputError, match=message):
        graph.load({"Note": path}, mode="append", engine="local")
    assert graph.snapshot().open("node:Note").scan().num_rows == 0


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("last", ['"a",x,', '"a","",', '"a",,', "a,x,"])
def test_the_last_cell_of_a_file_is_null_where_it_is_empty(last: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text(f"title,text,size\n{last}{end}", newline="")
    graph: Graph = create(tmp_path / "graph", SCHEMA)
    graph.load({"Note": path}, mode="append", engine="local")
    assert graph.snapshot().open("node:Note").scan(["size"]).to_pylist() == [{"size": None}]


@pytest.mark.spark
def test_values_with_line_ends_load_on_spark(tmp_path: Path, spark: Any) -> None:
    graph: Graph = create(tmp_path / "graph", SCHEMA)
    path = tmp_path / "notes.csv"
    path.write_text('title,text,size\n"a","one\ntwo ""quoted""",1\nb,,\n')
    run_job(graph.context, {"Note": path}, mode="append", spark=spark)
    found = graph.snapshot().open("node:Note").scan(["id", "text", "size"]).to_pylist()
    assert found == [{"id": "a", "text": 'one\ntwo "quoted"', "size": 1}, {"id": "b", "text": None, "size": None}]
