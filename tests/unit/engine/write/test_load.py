from __future__ import annotations

import gzip
import io
import json

import pyarrow as pa
import pytest
from msgspec.structs import replace

from omnigraph.engine.operations.export import export_lines
from omnigraph.engine.operations.load import load
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.write.limits import WriteLimits
from omnigraph.errors import ConstraintError, InputError, KeyConflictError, LimitError, NotFoundError

BERTH = '{"type":"Berth","data":{"code":"%s","depth_m":%s}}'


def test_a_fixture_is_loaded_whole_and_counted(empty_harbour):
    from pathlib import Path

    text = (Path(__file__).parents[3] / "conformance" / "harbour.jsonl").read_text()
    result = empty_harbour.load(text, mode="overwrite", actor="act-ann")
    assert (result.nodes_loaded, result.edges_loaded) == (9, 9)
    assert result.to_json() == {
        "branch": "main",
        "branch_created": False,
        "mode": "overwrite",
        "nodes_loaded": 9,
        "edges_loaded": 9,
        "node_types_loaded": 3,
        "edge_types_loaded": 3,
    }
    assert result.tables()[0] == {"table_key": "edge:CrewOf", "rows_loaded": 4}
    assert empty_harbour.context.manifest.history.list("main", limit=1)[0].actor_id == "act-ann"


def test_merge_replaces_whole_entities_and_keeps_their_edges(harbour):
    harbour.load('{"type":"Vessel","data":{"code":"AB-1","name":"Aurora","kind":"ferry"}}')
    rows = harbour.rows("node:Vessel")
    assert len(rows) == 4
    assert rows["AB-1"]["length_m"] is None
    assert len(harbour.rows("edge:CrewOf")) == 4


def test_a_merged_edge_of_a_known_id_replaces_it_and_counts_once(harbour):
    harbour.load('{"edge":"MooredAt","from":"AB-1","to":"N2","data":{"id":"m-1"}}')
    rows = harbour.rows("edge:MooredAt")
    assert len(rows) == 2
    assert rows["m-1"]["dst"] == "N2"


def test_append_refuses_an_id_that_exists_and_names_the_record(harbour):
    before = harbour.versions()
    with pytest.raises(KeyConflictError, match=r"record 2 \(line 2\)"):
        harbour.load(BERTH % ("N7", 1), BERTH % ("N1", 1), mode="append")
    assert harbour.versions() == before


def test_overwrite_replaces_only_the_tables_the_file_names(harbour):
    before = harbour.versions()
    harbour.load('{"type":"LogEntry","data":{"body":"x"}}', mode="overwrite")
    after = harbour.versions()
    assert {key for key in after if after[key] != before[key]} == {"graph", "node:LogEntry"}
    harbour.load('{"type":"LogEntry","data":{"body":"y"}}', mode="overwrite")
    assert [row["body"] for row in harbour.rows("node:LogEntry").values()] == ["y"]


def test_overwrite_must_not_orphan_edges_that_stay(harbour):
    with pytest.raises(ConstraintError, match="orphan violation"):
        harbour.load(BERTH % ("N1", 1), mode="overwrite")
    harbour.load(BERTH % ("N1", 1), '{"edge":"MooredAt","from":"AB-1","to":"N1"}', mode="overwrite")


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_two_records_of_one_key_are_refused_in_every_mode(harbour, mode):
    with pytest.raises(ConstraintError, match=r"record 3 \(line 4\): @unique violation") as caught:
        harbour.load(BERTH % ("N1", 1), BERTH % ("N8", 1), "", BERTH % ("N8", 1), BERTH % ("N2", 1), mode=mode)
    assert len(caught.value.violations) == 1


def test_the_last_of_two_edges_with_one_id_counts_in_a_merge_only(harbour):
    lines = [
        '{"edge":"Tows","from":"AB-1","to":"AB-2","data":{"id":"t","line":"short"}}',
        '{"edge":"Tows","from":"AB-1","to":"AB-3","data":{"id":"t","line":"long"}}',
    ]
    for mode in ("append", "overwrite"):
        with pytest.raises(ConstraintError, match="'t' of Tows twice"):
            harbour.load(*lines, mode=mode)
    harbour.load(*lines, mode="merge")
    assert harbour.rows("edge:Tows")["t"]["dst"] == "AB-3"


def test_ids_that_are_not_given_are_fresh(harbour):
    harbour.load('{"type":"LogEntry","data":{"body":"x"}}', '{"type":"LogEntry","data":{"body":"x"}}')
    ids = list(harbour.rows("node:LogEntry"))
    assert len(ids) == 2
    assert all(len(entity_id) == 26 for entity_id in ids)


def test_an_empty_input_makes_no_commit(harbour):
    before = harbour.versions()
    for mode in ("append", "merge", "overwrite"):
        result = harbour.load("", "  ", mode=mode)
        assert (result.commit_id, result.nodes_loaded) == (None, 0)
    assert harbour.versions() == before


BAD = [
    '{"type":"Nope","data":{}}',
    '{"type":"Berth","data":{"code":"N9"}}',
    '{"type":"Berth","data":{"code":"N9","depth_m":"deep"}}',
    '{"type":"Vessel","data":{"code":"bad","name":"x","kind":"tug"}}',
    '{"type":"Vessel","data":{"code":"AB-9","name":"x","kind":"yacht"}}',
    '{"type":"Vessel","data":{"code":"AB-9","name":"x","kind":"tug","length_m":501}}',
    '{"type":"Sailor","data":{"badge":10,"name":"x","email":"a"}}\n{"type":"Sailor","data":{"badge":11,"name":"x","email":"a"}}',
    '{"edge":"CrewOf","from":"7","to":"nope"}',
    '{"edge":"MooredAt","from":"AB-3","to":"N1"}\n{"edge":"MooredAt","from":"AB-3","to":"N2"}',
    "{",
]


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("text", BAD)
def test_a_refused_load_leaves_no_trace_and_does_not_hinder_the_next(lasting_harbour, text, mode):
    before, content = (lasting_harbour.versions(), lasting_harbour.heads()), lasting_harbour.lines()
    with pytest.raises(ConstraintError, match=r"record \d+ \(line \d+\)"):
        lasting_harbour.load(text, mode=mode)
    assert (lasting_harbour.versions(), lasting_harbour.heads()) == before
    assert lasting_harbour.lines() == content
    assert lasting_harbour.load(BERTH % ("N9", 1), mode="merge").commit_id is not None


def test_values_are_judged_before_uniqueness_and_that_before_references(harbour):
    lines = ['{"edge":"CrewOf","from":"7","to":"nope"}', BERTH % ("N8", 1), BERTH % ("N8", 1)]
    with pytest.raises(ConstraintError, match="@unique"):
        harbour.load(*lines)
    with pytest.raises(ConstraintError, match="@check"):
        harbour.load(*lines, '{"type":"Vessel","data":{"code":"bad","name":"x","kind":"tug"}}')


def test_an_export_loads_back_to_the_same_export(harbour, tmp_path):
    harbour.mutate(
        'insert Vessel { code: "AB-20", name: $n, kind: "tug", manual: $b, built: date("1969-12-31") }',
        "$n: String, $b: Blob",
        parameters={"n": 'quote " back \\ line\n tab\t é \u0001', "b": "base64:"},
    )
    lines = harbour.lines()
    assert [json.loads(line) for line in lines]
    from omnigraph.graph import create

    other = create(tmp_path / "copy", harbour.context.schema_source).context
    load(other, "\n".join(lines).encode(), mode="overwrite")
    assert list(export_lines(other.catalog, other.manifest.snapshot())) == lines


def test_an_export_is_ordered_by_table_and_id_also_when_read_in_ranges(harbour, monkeypatch):
    from omnigraph.engine.operations import export

    lines = harbour.lines()
    keys = [
        ("edge:" + r["edge"] if "edge" in r else "node:" + r["type"], r["data"]["id"]) for r in map(json.loads, lines)
    ]
    assert keys == sorted(keys)
    monkeypatch.setattr(export, "RANGE_ROWS", 2)
    assert harbour.lines() == lines


def test_an_export_in_ranges_asks_no_index(harbour, monkeypatch):
    from omnigraph.engine.operations import export

    lines = harbour.lines()
    options = []
    plain = TableHandle.scan

    def noted(handle, columns=None, filter=None, **named):
        options.append((filter, named.get("use_scalar_index")))
        return plain(handle, columns, filter, **named)

    monkeypatch.setattr(TableHandle, "scan", noted)
    monkeypatch.setattr(export, "RANGE_ROWS", 2)
    assert harbour.lines() == lines
    ranges = [used for filter, used in options if filter and filter.startswith("id ")]
    assert ranges
    assert set(ranges) == {False}


def test_an_export_can_be_limited_to_types_and_tables(harbour):
    def lines(**filters):
        return list(export_lines(harbour.context.catalog, harbour.context.manifest.snapshot(), **filters))

    assert len(lines(types=["Berth"])) == 2
    assert len(lines(types=["Berth"], tables=["edge:Tows"])) == 5
    with pytest.raises(InputError, match="Nope"):
        lines(types=["Nope"])
    with pytest.raises(InputError, match="node:Nope"):
        lines(tables=["node:Nope"])


def test_files_folders_archives_and_streams_are_loaded_alike(empty_harbour, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(BERTH % ("A", 1) + "\n")
    with gzip.open(tmp_path / "in" / "b.jsonl.gz", "wb") as file:
        file.write((BERTH % ("B", 1)).encode())
    (tmp_path / "in" / "readme.txt").write_text("not data")
    context = empty_harbour.context
    assert load(context, tmp_path / "in", mode="append").nodes == {"Berth": 2}
    assert load(context, str(tmp_path / "in" / "a.jsonl"), mode="merge").nodes_loaded == 1
    assert load(context, [tmp_path / "in" / "a.jsonl", tmp_path / "in" / "b.jsonl.gz"], mode="merge").nodes_loaded == 2
    assert load(context, io.BytesIO((BERTH % ("C", 1)).encode()), mode="append").nodes_loaded == 1
    assert load(context, [json.loads(BERTH % ("D", 1))], mode="append").nodes_loaded == 1
    assert set(empty_harbour.rows("node:Berth")) == {"A", "B", "C", "D"}


def test_a_load_beyond_the_limits_of_its_graph_is_refused_before_any_effect(harbour):
    before = harbour.versions()
    lines = [BERTH % (f"L{n}", 1) for n in range(3)]
    for limits, resource in ((WriteLimits(rows_max=2), "rows of"), (WriteLimits(bytes_max=20), "bytes of")):
        harbour.context = replace(harbour.context, limits=limits)
        with pytest.raises(LimitError, match="node:Berth") as caught:
            harbour.load(*lines)
        assert caught.value.resource.startswith(resource)
    assert harbour.versions() == before
    harbour.context = replace(harbour.context, limits=WriteLimits(2, 20))
    harbour.load(*lines, *[BERTH % ("N1", 1), BERTH % ("N2", 1)], mode="overwrite")


def test_a_missing_file_and_an_empty_folder_are_said_to_be_so(empty_harbour, tmp_path):
    with pytest.raises(NotFoundError, match=r"no input file at .*nope\.jsonl'"):
        load(empty_harbour.context, tmp_path / "nope.jsonl", mode="append")
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFoundError, match="a folder without load files"):
        load(empty_harbour.context, tmp_path / "none", mode="append")
    (tmp_path / "broken.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match="cannot be read"):
        load(empty_harbour.context, tmp_path / "broken.jsonl.gz", mode="append")
    with pytest.raises(InputError, match="load mode"):
        load(empty_harbour.context, b"", mode="upsert")


def test_problems_of_several_files_name_the_file(empty_harbour, tmp_path):
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    files[0].write_text(BERTH % ("A", 1))
    files[1].write_text("\n" + BERTH % ("B", '"x"'))
    with pytest.raises(ConstraintError, match=r"b\.jsonl: record 1 \(line 2\): Berth\.depth_m"):
        load(empty_harbour.context, files, mode="append")
    files[1].write_text("\n\n" + BERTH % ("A", 1))
    with pytest.raises(ConstraintError, match=r"b\.jsonl: record 1 \(line 3\): @unique violation"):
        load(empty_harbour.context, files, mode="append")


def test_arrow_tables_are_loaded_by_type(empty_harbour):
    source = {
        "Berth": pa.table({"code": ["A", "B"], "depth_m": [1, 2]}),
        "Vessel": pa.table({"code": ["AB-1"], "name": ["x"], "kind": pa.array(["tug"]).dictionary_encode()}),
        "edge:MooredAt": pa.table({"from": ["AB-1"], "to": ["A"]}),
    }
    result = load(empty_harbour.context, source, mode="append")
    assert (result.nodes_loaded, result.edges_loaded) == (3, 1)
    with pytest.raises(ConstraintError, match=r"record 1: Berth\.depth_m"):
        load(empty_harbour.context, {"Berth": pa.table({"code": ["C"], "depth_m": ["x"]})}, mode="append")
    table = pa.table({"code": ["AB-2", "AB-3"], "name": ["x", "y"], "kind": ["tug", "tug"], "length_m": [1, 900]})
    with pytest.raises(ConstraintError, match="record 2: @range"):
        load(empty_harbour.context, {"Vessel": table}, mode="append")
    with pytest.raises(InputError, match="no property 'depth'"):
        load(empty_harbour.context, {"Berth": pa.table({"code": ["C"], "depth": [1]})}, mode="append")


def test_an_empty_arrow_table_empties_its_type_in_an_overwrite(harbour):
    load(
        harbour.context,
        {"CrewOf": pa.table({"from": pa.array([], pa.string()), "to": pa.array([], pa.string())})},
        mode="overwrite",
    )
    assert harbour.rows("edge:CrewOf") == {}
    harbour.load('{"edge":"CrewOf","from":"7","to":"AB-1"}', mode="append")
    assert len(harbour.rows("edge:CrewOf")) == 1
