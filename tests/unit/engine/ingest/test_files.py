"""Files cut into pieces: every line has one owner, and its absolute number can be found."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.choices import LoadMode
from omnigraph.engine.ingest import files
from omnigraph.engine.ingest.files import cut, find_files, position_of, read_lines
from omnigraph.engine.ingest.sources import Feed, pack
from omnigraph.errors import ConstraintError, InputError, NotFoundError
from omnigraph.graph import create


def lines_of(path: Path, piece_bytes: int) -> list[tuple[int, int, bytes]]:
    """Every line with its absolute line and record number, found piece by piece."""
    found = []
    [file] = find_files(path)
    for piece in cut(file, piece_bytes):
        line, record = position_of(piece)
        for block in read_lines(piece):
            assert block.lines_before == 0
            for text in block.data.removesuffix(b"\n").split(b"\n"):
                line += 1
                record += bool(text.strip())
                found.append((line, record, text))
    return found


@given(
    st.lists(st.sampled_from([b"", b" ", b"\r", b"{}", b'{"a":1}', b"x" * 40, b"\xc3\xa9"]), max_size=30),
    st.booleans(),
    st.integers(1, 50),
)
def test_every_line_has_exactly_one_owner_and_its_true_number(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, piece_bytes: int
) -> None:
    text = b"\n".join(lines) + (b"\n" if ended else b"")
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_bytes(text)
    expected = []
    record = 0
    for number, line in enumerate(text.removesuffix(b"\n").split(b"\n") if text else [], 1):
        record += bool(line.strip())
        expected.append((number, record, line))
    assert lines_of(path, piece_bytes) == expected


def test_a_compressed_file_is_one_piece_read_in_bounded_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 1000)
    lines = [f'{{"n":{n}}}\n'.encode() for n in range(5000)]
    half = len(lines) // 2
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(lines[:half])) + gzip.compress(b"".join(lines[half:])))
    [piece] = cut(find_files(path)[0])
    seen = 0
    for block in read_lines(piece):
        assert block.lines_before == seen
        assert block.data.splitlines(keepends=True) == lines[seen : seen + block.data.count(b"\n")]
        seen += block.data.count(b"\n")
    assert seen == len(lines)


def test_folders_and_globs_give_files_in_name_order_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "_SUCCESS", ".a.jsonl.crc", "sub/c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    assert [Path(f.uri).name for f in find_files(tmp_path)] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert [Path(f.uri).name for f in find_files(f"{tmp_path}/*.jsonl")] == ["a.jsonl", "b.jsonl"]
    assert find_files(f"file://{tmp_path}/a.jsonl")[0].size == 3
    with pytest.raises(NotFoundError, match="no input file"):
        find_files(tmp_path / "missing.jsonl")
    with pytest.raises(NotFoundError, match="no input file"):
        find_files(f"{tmp_path}/*.csv")


def test_a_file_that_changes_under_the_job_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n")
    [piece] = cut(find_files(path)[0])
    path.write_text("{}\n{}\n")
    with pytest.raises(InputError, match="changed while"):
        list(read_lines(piece))


def test_parquet_is_cut_between_row_groups_with_absolute_row_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": range(1000)}), path, row_group_size=100)
    pieces = cut(find_files(path)[0], piece_bytes=1)
    assert [(p.start, p.first_row) for p in pieces] == [(n, n * 100) for n in range(10)]
    feeds = [(number, Feed(piece)) for number, piece in enumerate(pieces)]
    assert [len(task) for task in pack(feeds, sum(p.weight for p in pieces) // 2)] == [5, 5]


def test_a_broken_parquet_or_gzip_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(InputError, match=r"x\.parquet is not a readable Parquet file"):
        cut(find_files(tmp_path / "x.parquet")[0])
    (tmp_path / "x.jsonl.gz").write_bytes(b"not gzip at all")
    with pytest.raises(InputError, match=r"x\.jsonl\.gz is not a readable gzip file"):
        list(read_lines(cut(find_files(tmp_path / "x.jsonl.gz")[0])[0]))


def test_a_truncated_gzip_file_is_an_error_and_not_a_shorter_load(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"n":1}\n' * 1000)
    (tmp_path / "x.jsonl.gz").write_bytes(whole[:-12])
    with pytest.raises(InputError, match="ends in the middle"):
        list(read_lines(cut(find_files(tmp_path / "x.jsonl.gz")[0])[0]))


def test_a_file_of_rows_that_names_no_type_asks_for_it(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key age: I32? }")
    (tmp_path / "people.csv").write_text("name,age\nann,41\n")
    with pytest.raises(InputError, match='say type="Person"'):
        graph.load(tmp_path / "people.csv")


def test_whole_floats_of_a_csv_are_integers(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key age: I32? far: I64? big: U64? }")
    (tmp_path / "people.csv").write_text("name,age,far,big\nann,41.0,-7.,18446744073709551615.00\nbob,,,\n")
    graph.load(tmp_path / "people.csv", type="Person")
    rows = graph.query("query q() { match { $p: Person } return { $p.* } order { $p.name } }").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("ann", 41, -7, 2**64 - 1), ("bob", None, None, None)]
    (tmp_path / "people.csv").write_text("name,age\nann,41.5\n")
    with pytest.raises(ConstraintError, match=r"'41\.5' is not I32"):
        graph.load(tmp_path / "people.csv", type="Person", mode="merge")


def test_a_file_that_travels_to_another_process_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.jsonl").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    [file] = find_files("lines.jsonl")
    travelling = pickle.dumps(file)
    monkeypatch.chdir("/")
    assert pickle.loads(travelling).place == str(tmp_path / "lines.jsonl")


def test_integers_of_a_csv_are_decimal_whatever_their_width(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key age: I32? far: I64? big: U64? }")
    table = tmp_path / "people.csv"
    table.write_text("name,age,far,big\nann,+41,+7.0,+18446744073709551615\nzoe,-0,-0.0,-00\n")
    graph.load(table, type="Person")
    rows = graph.query("query q() { match { $p: Person } return { $p.* } order { $p.name } }").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("ann", 41, 7, 2**64 - 1), ("zoe", 0, 0, 0)]
    for column, text in [(c, t) for c in ("age", "far", "big") for t in ("0x10", "+-3", " 4", "1_000", "+", "1e3")]:
        table.write_text(f"name,{column}\nbob,5\ncy,{text}\n")
        with pytest.raises(ConstraintError, match=r"record 2 \(line 3\): Person\.") as refused:
            graph.load(table, type="Person")
        assert f"'{text}' is not" in str(refused.value)
    table.write_text("name,far\nbob,0xFFFFFFFFFFFFFFFF\ncy,9223372036854775808\n")
    with pytest.raises(ConstraintError, match=r"'0xFFFFFFFFFFFFFFFF' is not I64.*and 1 more"):
        graph.load(table, type="Person")


@pytest.mark.parametrize("data", ["name,age\nann,1\n".encode("utf-16"), "name,\xe4ge\nann,1\n".encode("latin-1")])
def test_a_csv_in_another_encoding_is_refused_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key age: I32? }")
    (tmp_path / "people.csv").write_bytes(data)
    with pytest.raises(InputError, match=r"people\.csv is not readable CSV: its header line is not UTF-8 text"):
        graph.load(tmp_path / "people.csv", type="Person")


@pytest.mark.parametrize("name", ["berths.parquet", "berths.csv", "berths.csv.gz", "unended.csv"])
def test_a_file_without_rows_has_columns_to_check_and_a_type_to_empty(tmp_path: Path, name: str) -> None:
    def write(column: str) -> None:
        if name.endswith(".parquet"):
            pq.write_table(pa.table({column: pa.array([], pa.string())}), tmp_path / name)
            return
        text = column.encode() + (b"" if name == "unended.csv" else b"\n")
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)

    graph = create(tmp_path / "g", "node Berth { code: String @key }")
    graph.load([{"type": "Berth", "data": {"code": "N1"}}])
    write("kode")
    with pytest.raises(InputError, match="unknown column 'kode' of Berth"):
        graph.load({"Berth": tmp_path / name}, mode="overwrite")
    assert [entry.row_count for entry in graph.snapshot().entries.values()] == [1]
    write("code")
    graph.load({"Berth": tmp_path / name}, mode="overwrite")
    assert [entry.row_count for entry in graph.snapshot().entries.values()] == [0]


@pytest.mark.parametrize("name", ["berths.csv", "berths.csv.gz"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_csv_without_a_byte_names_no_columns_and_is_refused(tmp_path: Path, name: str, mode: LoadMode) -> None:
    graph = create(tmp_path / "g", "node Berth { code: String @key }")
    graph.load([{"type": "Berth", "data": {"code": "N1"}}])
    (tmp_path / name).write_bytes(b"")
    for engine in ("local", "auto"):
        with pytest.raises(InputError, match=rf"{name} needs a header line with its column names: it is empty"):
            graph.load(tmp_path / name, type="Berth", mode=mode, engine=engine)
    assert [entry.row_count for entry in graph.snapshot().entries.values()] == [1]
    # A file of data lines without a line is no mistake: it says nothing of any type.
    (tmp_path / "none.jsonl").write_bytes(b"")
    assert graph.load(tmp_path / "none.jsonl", mode=mode).commit_id is None


@pytest.mark.parametrize("text", [b"", b"\n", gzip.compress(b"", mtime=0)], ids=["nothing", "a line end", "gzip"])
def test_lines_of_a_type_without_a_row_leave_it_empty_when_they_overwrite_it(tmp_path: Path, text: bytes) -> None:
    graph = create(tmp_path / "g", "node Berth { code: String @key }  node Ship { name: String @key }")
    graph.load([{"type": "Berth", "data": {"code": "N1"}}, {"type": "Ship", "data": {"name": "Ada"}}])
    path = tmp_path / ("berths.jsonl.gz" if text[:1] == b"\x1f" else "berths.jsonl")
    path.write_bytes(text)
    graph.load(path, type="Berth", mode="merge")
    assert {key: entry.row_count for key, entry in graph.snapshot().entries.items()} == {
        "node:Berth": 1,
        "node:Ship": 1,
    }
    assert graph.load(path, type="Berth", mode="overwrite").nodes == {"Berth": 0}
    assert {key: entry.row_count for key, entry in graph.snapshot().entries.items()} == {
        "node:Berth": 0,
        "node:Ship": 1,
    }


@pytest.mark.parametrize("before", ["", "\n", "\r\n\n\r\n"])
@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz"])
@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 20])
def test_blank_lines_may_come_before_the_header_of_a_csv(
    tmp_path: Path, before: str, name: str, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.engine.ingest.files.PIECE_BYTES", piece_bytes)
    graph = create(tmp_path / "g", "node Person { name: String @key age: I32? }")
    text = f'{before}name,age\n\n"ann",1\nbob,x\n'.encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with pytest.raises(ConstraintError, match=rf"record 2 \(line {4 + before.count(chr(10))}\): Person\.age: 'x'"):
        graph.load(tmp_path / name, type="Person")
    (tmp_path / name).write_bytes(gzip.compress(text[:-2]) if name.endswith(".gz") else text[:-2])
    graph.load(tmp_path / name, type="Person")
    assert graph.snapshot().open("node:Person").scan(["id", "age"]).to_pylist() == [
        {"id": "ann", "age": 1},
        {"id": "bob", "age": None},
    ]


@pytest.mark.parametrize(
    "text",
    ["name,age\rann,1\rbob,2\r", "name,age\rann,1\nbob,2\n", "name,age\nann,1\rbob,2\n", 'name,age\r"a\nnn",1\r'],
)
def test_a_csv_whose_lines_end_in_carriage_returns_alone_is_refused_and_loses_no_row(tmp_path: Path, text: str) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key age: I32? }")
    (tmp_path / "people.csv").write_text(text, newline="")
    with pytest.raises(InputError, match=r"people\.csv is not readable CSV: a carriage return ends a line by itself"):
        graph.load(tmp_path / "people.csv", type="Person")


def test_a_value_in_quotes_may_hold_a_carriage_return(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key }")
    (tmp_path / "people.csv").write_text('"name"\r\n"a\rb"\r\n', newline="")
    graph.load(tmp_path / "people.csv", type="Person")
    assert graph.table("Person")["name"].to_pylist() == ["a\rb"]


@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz"])
def test_the_line_of_a_csv_that_is_no_utf_8_is_named(tmp_path: Path, name: str) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key text: String? }")
    data = b'name,text\n\nann,"two\nlines"\n\nb\xf6b,x\n'
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(InputError, match=r"line 6 is not UTF-8 text: save the file as UTF-8"):
        graph.load(tmp_path / name, type="Person")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("name,agee", r"unknown column 'agee' of Person: rename, drop or map the columns; did you mean 'age'\?"),
        ("name;age", r"values are separated by commas, and this header line has none but ';'"),
        ("name\tage", r"values are separated by commas, and this header line has none but '\\t'"),
    ],
)
def test_an_unknown_column_of_a_file_is_told_with_the_file_and_what_was_meant(
    tmp_path: Path, header: str, message: str
) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key age: I32? }")
    (tmp_path / "people.csv").write_text(f"{header}\n")
    with pytest.raises(InputError, match=rf"people\.csv: .*{message}"):
        graph.load(tmp_path / "people.csv", type="Person")


def test_a_file_taken_for_parquet_by_its_name_is_told_so(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key }")
    (tmp_path / "people.tsv").write_text("name\nann\n")
    with pytest.raises(InputError, match=r"what ends neither in \.csv nor in \.jsonl is taken for Parquet"):
        graph.load(tmp_path / "people.tsv", type="Person")


def test_a_column_that_is_twice_in_a_parquet_file_is_refused_unless_nobody_asks_for_it(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key age: I32? }")
    columns = [pa.array(["ann"]), pa.array([1]), pa.array([2])]
    pq.write_table(pa.Table.from_arrays(columns, ["name", "age", "age"]), tmp_path / "people.parquet")
    with pytest.raises(InputError, match=r"people\.parquet: the column 'age' of Person is there twice"):
        graph.load(tmp_path / "people.parquet", type="Person")
    other = create(tmp_path / "other", "node Person { name: String @key }")
    other.load(tmp_path / "people.parquet", type="Person", columns={"Person": {"name": "name"}})
    assert other.table("Person")["id"].to_pylist() == ["ann"]


def test_a_mapping_of_columns_is_refused_for_lines_and_not_passed_over(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key  nick: String?  note: String? }")
    path = tmp_path / "people.jsonl"
    path.write_text('{"name": "ann", "nick": "a", "note": "b"}')
    mapped = {"Person": {"nick": "note"}}
    with pytest.raises(InputError, match=r"people\.jsonl holds lines of JSON"):
        graph.load(path, type="Person", columns=mapped)
    path.write_text('{"type": "Person", "data": {"name": "ann", "nick": "a", "note": "b"}}')
    with pytest.raises(InputError, match="leave the mapping out"):
        graph.load(path, columns=mapped)
    (tmp_path / "people.csv").write_text("name,nick,note\nann,a,b")
    graph.load(tmp_path / "people.csv", type="Person", columns=mapped)
    assert graph.table("Person")["nick"].to_pylist() == ["b"]


def test_the_row_numbers_of_a_filtered_frame_are_no_column(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Person { name: String @key }")
    rows = pa.table({"name": ["ann", "cy"], "__index_level_0__": [0, 2]})
    pq.write_table(rows, tmp_path / "people.parquet")
    assert graph.load(tmp_path / "people.parquet", type="Person").nodes == {"Person": 2}
    assert graph.load({"Person": rows}, mode="merge").nodes == {"Person": 2}
    named = create(tmp_path / "named", "node Row { __index_level_0__: I64  name: String @key }")
    named.load(tmp_path / "people.parquet", type="Row")
    assert named.table("Row")["__index_level_0__"].to_pylist() == [0, 2]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_lines_of_one_type_may_be_plain_rows(tmp_path: Path, end: str) -> None:
    def written(name: str, *lines: str) -> Path:
        path = tmp_path / f"{name}.jsonl{end}"
        data = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(data) if end else data)
        return path

    graph = create(
        tmp_path / "g",
        "node Person { name: String @key  type: String?  data: String?  age: I32 @default(7) }"
        " edge Knows: Person -> Person { since: Date? }",
    )
    people = written(
        "people",
        '{"name": "ann", "age": 41}',
        "",
        '{"type": "vip", "name": "bob"}',
        '{"type": "Person", "name": "cy", "data": "x"}',
        '{"type": "Person", "data": {"name": "dan", "type": "a record"}}',
    )
    knows = written("knows", '{"from": "ann", "to": "bob", "since": "2020-01-02"}', '{"src": "bob", "dst": "cy"}')
    graph.load({"Person": people, "Knows": knows})
    rows = graph.query("query q() { match { $p: Person } return { $p.* } order { $p.name } }").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("ann", None, None, 41),
        ("bob", "vip", None, 7),
        ("cy", "Person", "x", 7),
        ("dan", "a record", None, 7),
    ]
    assert graph.table("Knows").select(["from", "to"]).to_pylist() == [
        {"from": "ann", "to": "bob"},
        {"from": "bob", "to": "cy"},
    ]
    graph.load(written("older", '{"name": "ann", "age": 42}'), type="Person", mode="update")
    for lines, message in [
        (('{"name": "eve"}', '{"name": "fay", "agee": 3}'), r"record 2 \(line 2\): unknown field 'agee' of Person"),
        (('{"type": "Knows", "data": {"name": "eve"}}',), "unknown node type 'Knows'; it is an edge type"),
    ]:
        with pytest.raises(ConstraintError, match=message):
            graph.load(written("wrong", *lines), type="Person")
    for line, message in [('{"from": "ann"}', "misses 'to'"), ('{"from": "ann", "to": "bob", "src": "cy"}', "'src'")]:
        with pytest.raises(ConstraintError, match=message):
            graph.load(written("wrong", line), type="Knows")
