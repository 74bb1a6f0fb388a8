"""`load`, `query`, `mutate`, `explain` and `export`: data in, questions, changes, data out."""

import csv
import io
import json
from pathlib import Path

import pytest
from tests.cli.program import call, spawn

import omnigraph
from omnigraph.cli.commands.load import parse_mapping, sources
from omnigraph.errors import InputError

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person { since: Date? }\n"
LINES = """{"type":"Person","data":{"name":"Ada","age":36}}
{"type":"Person","data":{"name":"Linus","age":29}}
{"type":"Person","data":{"name":"Zoë, \\"Z\\""}}
{"edge":"Knows","from":"Ada","to":"Linus","data":{"since":"2024-01-01","id":"k1"}}
"""
QUERIES = """
query adults($age: I32) {
    match { $p: Person  $p.age >= $age }
    return { $p.name as name, $p.age as age }
    order { $p.name }
}
query everybody() { match { $p: Person } return { $p.name as name, $p.age as age } order { $p.name } }
query add_person($name: String, $age: I32?) { insert Person { name: $name, age: $age } }
query forget($name: String) { delete Person where name = $name }
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "g.omni"
    omnigraph.create(path, schema=SCHEMA).close()
    (tmp_path / "people.jsonl").write_text(LINES)
    (tmp_path / "people.gq").write_text(QUERIES)
    return path


@pytest.fixture
def loaded(root: Path) -> Path:
    assert call("load", "--data", root.parent / "people.jsonl", "--mode", "append", "--quiet", root).code == 0
    return root


def queries(root: Path) -> Path:
    return root.parent / "people.gq"


def test_load_says_what_it_did(root: Path) -> None:
    outcome = call("load", "--data", root.parent / "people.jsonl", "--mode", "merge", "--as", "ana", root)
    assert outcome.code == 0
    assert outcome.err == f"omnigraph load → {root} (direct, local)\n"
    first, *rest = outcome.out.splitlines()
    assert first == (
        f"loaded {root} on branch main with merge: 3 nodes across 1 node types, 1 edges across 1 edge types"
    )
    assert rest[:2] == ["  edge:Knows   1", "  node:Person  3"]
    assert " s through local" in rest[2]
    assert rest[3].startswith("  local because about 0 MB of input")
    commit_id = rest[4].split()[-1]
    assert f"{commit_id} branch=main" in call("commit", "list", "--actor", "ana", root).out


def test_files_behind_the_graph_are_loaded_as_data(root: Path) -> None:
    people, more = root.parent / "people.csv", root.parent / "more.csv"
    people.write_text("name,age\nAda,36\n")
    more.write_text("name,age\nLinus,29\n")
    outcome = call("load", root, people, more, "--type", "Person")
    assert outcome.code == 0, outcome.err
    assert "  node:Person  2" in outcome.out.splitlines()


def test_files_behind_a_flag_that_names_the_graph_are_loaded_as_data(root: Path) -> None:
    people, more = root.parent / "people.csv", root.parent / "more.csv"
    people.write_text("name,age\nAda,36\n")
    more.write_text("name,age\nLinus,29\n")
    outcome = call("load", "--store", root, people, more, "--type", "Person")
    assert outcome.code == 0, outcome.err
    assert "  node:Person  2" in outcome.out.splitlines()


def test_two_graphs_are_refused_where_the_data_has_a_flag_of_its_own(root: Path) -> None:
    outcome = call("load", root, "--store", root, "--data", root.parent / "people.jsonl")
    assert outcome.code == 1
    assert "a positional URI and --store are mutually exclusive" in outcome.err


def test_load_as_json_has_both_sets_of_fields(root: Path) -> None:
    outcome = call("load", "--data", "-", "--mode", "overwrite", "--json", root, stdin=LINES)
    body = json.loads(outcome.out)
    assert body["uri"] == str(root)
    assert (body["branch"], body["mode"], body["branch_created"]) == ("main", "overwrite", False)
    assert (body["nodes_loaded"], body["edges_loaded"]) == (3, 1)
    assert (body["node_types_loaded"], body["edge_types_loaded"]) == (1, 1)
    assert body["tables"] == [
        {"table_key": "edge:Knows", "rows_loaded": 1},
        {"table_key": "node:Person", "rows_loaded": 3},
    ]
    assert body["commit"]
    assert body["engine"] == "local"


def test_a_load_that_breaks_a_rule_changes_nothing(loaded: Path) -> None:
    before = call("snapshot", loaded).out
    bad = loaded.parent / "bad.jsonl"
    bad.write_text('{"type":"Person","data":{"name":"New"}}\n{"edge":"Knows","from":"New","to":"Nobody"}\n')
    outcome = call("load", "--data", bad, "--mode", "append", loaded)
    assert outcome.code == 1
    assert "Nobody" in outcome.err
    assert call("snapshot", loaded).out == before


def test_appending_an_existing_id_is_a_conflict(loaded: Path) -> None:
    outcome = call("load", "--data", "-", "--mode", "append", "--json", loaded, stdin=LINES.splitlines()[0] + "\n")
    assert outcome.code == 3
    body = json.loads(outcome.out)
    assert body["code"] == "conflict"
    assert body["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "Ada"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--data", "nope.jsonl"], "nope.jsonl"),
        ([], "--data"),
        (["--data", "a", "--nodes", "Person=b"], "either --data"),
        (["--nodes", "Person"], "TYPE=PATH"),
        (["--data", "a", "--spark-conf", "x"], "KEY=VALUE"),
        (["--data", "a", "--map", "Person=x"], "TYPE.PROPERTY=COLUMN"),
    ],
)
def test_a_load_of_nothing_sensible_is_refused(root: Path, words: list[str], says: str) -> None:
    outcome = call("load", *words, "--mode", "append", root)
    assert outcome.code == 1
    assert says in outcome.err
    assert "Traceback" not in outcome.err


def test_a_load_updates_what_is_there(loaded: Path) -> None:
    line = json.dumps({"type": "Person", "data": {"name": "Ada", "age": 77}}) + "\n"
    outcome = call("load", "--data", "-", "--mode", "update", "--json", loaded, stdin=line)
    assert json.loads(outcome.out)["mode"] == "update"
    missing = call("load", "--data", "-", "--mode", "update", loaded, stdin=line.replace("Ada", "zed"))
    assert missing.code == 1
    assert "Person 'zed' does not exist" in missing.err


def test_a_load_appends_unless_it_is_told_otherwise(root: Path) -> None:
    people = root.parent / "people.jsonl"
    assert json.loads(call("load", "--data", people, root, "--json").out)["mode"] == "append"
    again = call("load", "--data", people, root)
    assert again.code != 0
    assert "already has id" in again.err
    assert call("load", "--data", "x", "--mode", "replace", root).code == 2


def test_files_by_type_and_column_maps_are_understood() -> None:
    with sources([], ["Person=a.parquet", "Person=b.parquet"], ["Knows=k.csv"]) as source:
        assert source == {"node:Person": ["a.parquet", "b.parquet"], "edge:Knows": ["k.csv"]}
    assert parse_mapping(["Person.name=full", "Person.age=years", "Knows.from=a"]) == {
        "Person": {"name": "full", "age": "years"},
        "Knows": {"from": "a"},
    }
    with pytest.raises(InputError):
        parse_mapping(["name=full"])


def test_query_prints_a_table(loaded: Path) -> None:
    outcome = call("query", "adults", "--query", queries(loaded), "--params", '{"age": 18}', "--store", loaded)
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.splitlines() == [
        "2 rows from branch main via adults",
        "name  | age",
        "------+----",
        "Ada   | 36",
        "Linus | 29",
    ]


def test_query_in_the_other_formats(loaded: Path, operator_home: Path) -> None:
    line = ["query", "everybody", "--query", queries(loaded), "--store", loaded]
    rows = list(csv.reader(io.StringIO(call(*line, "--format", "csv").out)))
    assert rows == [["name", "age"], ["Ada", "36"], ["Linus", "29"], ['Zoë, "Z"', "null"]]
    told = call(*line, "--format", "jsonl", "--verbose")
    lines = told.out.splitlines()
    assert (len(lines), json.loads(told.err)["row_count"]) == (3, 3)
    assert call(*line, "--format", "jsonl").err == ""
    assert json.loads(lines[2]) == {"name": 'Zoë, "Z"', "age": None}
    body = json.loads(call(*line, "--json").out)
    assert body == json.loads(call(*line, "--format", "json").out)
    assert body["columns"] == ["name", "age"]
    assert body["target"] == {"branch": "main", "snapshot": None}
    (operator_home / "config.yaml").write_text("defaults: { output: kv }\n")
    assert call(*line).out.splitlines()[1:4] == ["row 1", "name: Ada", "age: 36"]


def test_query_reads_the_past(loaded: Path) -> None:
    newest, oldest = (line.split()[0] for line in call("commit", "list", loaded).out.splitlines())
    line = ["query", "everybody", "--query", queries(loaded), "--store", loaded, "--snapshot"]
    assert call(*line, oldest).out.splitlines() == [f"0 rows from snapshot {oldest} via everybody", "(no rows)"]
    assert call(*line, newest).out.splitlines()[0] == f"3 rows from snapshot {newest} via everybody"
    assert call(*line[:-1], "--at", oldest).out == call(*line, oldest).out


def test_the_graph_of_a_query_may_be_its_positional(loaded: Path) -> None:
    asked = ["query", "--query", queries(loaded), "--params", '{"age": 18}']
    told = call(*asked, "adults", "--store", loaded)
    assert told.code == 0
    for words in (["adults", loaded], [loaded, "adults"]):
        assert call(*asked, *words).out == told.out
    inline = "query q() { match { $p: Person } return { count($p) as n } }"
    assert call("query", loaded, "-e", inline, "--format", "csv").out.splitlines() == ["n", "3"]
    assert call("explain", loaded, "-e", inline).code == 0
    change = 'query q() { insert Person { name: "Bo" } }'
    assert call("mutate", loaded, "-e", change, "--quiet").code == 0
    assert call("query", loaded, "-e", inline, "--format", "csv").out.splitlines() == ["n", "4"]
    for words in ([loaded, "a/b"], ["adults", "everybody"]):
        refused = call(*asked, *words)
        assert refused.code == 1
        assert "both look like" in refused.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--query", "nope.gq"], "no such file"),
        (["-e", ""], "empty"),
        ([], "no query given"),
        (["-e", "query q() { match { $p: Nope } return { $p } }"], "T1"),
        (["-e", "query q( {"], "1"),
        (["-e", "query q($a: I32) { match { $p: Person $p.age = $a } return { $p.name } }"], "'$a' not provided"),
        (["-e", "query q() { match { $p: Person } return { $p.name } }", "--params", "[]"], "JSON object"),
        (["-e", "query q() { match { $p: Person } return { $p.name } }", "--branch", "nope"], "nope"),
        (["-e", "query q() { match { $p: Person } return { $p.name } }", "--snapshot", "nope"], "nope"),
        (["-e", "query q() { match { $p: Person } return { $p.name } }", "--branch", "a", "--snapshot", "b"], "excl"),
        (["-e", 'query q() { insert Person { name: "x" } }'], "mutat"),
    ],
)
def test_a_query_that_cannot_run_is_one_sentence(loaded: Path, words: list[str], says: str) -> None:
    outcome = call("query", *words, "--store", loaded)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert says in outcome.err
    assert "Traceback" not in outcome.err


def test_several_queries_need_a_name(loaded: Path) -> None:
    outcome = call("query", "--query", queries(loaded), "--store", loaded)
    assert outcome.code == 1
    assert "adults" in outcome.err or "multiple queries" in outcome.err


def test_mutate_commits_and_says_so(loaded: Path) -> None:
    line = ["mutate", "add_person", "--query", queries(loaded), "--params", '{"name": "Grace"}', "--store", loaded]
    outcome = call(*line, "--as", "ana")
    assert outcome.code == 0
    assert outcome.out == "changed main via add_person: 1 nodes, 0 edges\nactor_id: ana\n"
    assert outcome.err == f"omnigraph mutate → {loaded} (direct, local)\n"
    body = json.loads(call("mutate", "forget", *line[2:], "--json", "--quiet").out)
    assert body["affected_nodes"] == 1
    assert body["actor_id"] is None
    assert body["commit"] == call("commit", "list", "--limit", "1", loaded).out.split()[0]


def test_a_conditional_mutation_that_lost_exits_with_4(loaded: Path) -> None:
    oldest = call("commit", "list", loaded).out.split()[-3]
    line = ["mutate", "add_person", "--query", queries(loaded), "--params", '{"name": "Grace"}', "--store", loaded]
    outcome = call(*line, "--if-commit", oldest, "--json")
    assert outcome.code == 4
    assert json.loads(outcome.out)["precondition_failure"]["expected"] == oldest
    head = call("commit", "list", "--limit", "1", loaded).out.split()[0]
    assert call(*line, "--if-commit", head).code == 0


def test_a_mutation_that_breaks_a_rule_changes_nothing(loaded: Path) -> None:
    before = call("snapshot", loaded).out
    outcome = call(
        "mutate", "-e", 'query q() { insert Knows { from: "Ada", to: "Nobody" } }', "--store", loaded, "--quiet"
    )
    assert outcome.code == 1
    assert "Nobody" in outcome.err
    assert call("snapshot", loaded).out == before


def test_a_reserved_actor_is_refused(loaded: Path) -> None:
    outcome = call(
        "mutate", "-e", 'query q() { insert Person { name: "x" } }', "--store", loaded, "--as", "omnigraph:x"
    )
    assert outcome.code == 1
    assert "reserved" in outcome.err


def test_explain_shows_the_plan(loaded: Path) -> None:
    line = ["explain", "adults", "--query", queries(loaded), "--params", '{"age": 3}', "--store", loaded]
    assert "scan $p: Person" in call(*line).out
    analyzed = call(*line, "--analyze")
    assert analyzed.code == 0
    assert "rows" in analyzed.out
    assert json.loads(call(*line, "--json").out)["operator"]


def test_export_loads_back_to_the_same_graph(loaded: Path, tmp_path: Path) -> None:
    exported = call("export", loaded)
    assert exported.code == 0
    keys = [("edge" if "edge" in line else "node") for line in map(json.loads, exported.out.splitlines())]
    assert keys == ["edge", "node", "node", "node"]
    copy = tmp_path / "copy.omni"
    omnigraph.create(copy, schema=SCHEMA).close()
    assert call("load", "--data", "-", "--mode", "append", copy, stdin=exported.out).code == 0
    assert call("export", copy).out == exported.out
    assert len(call("export", "--type", "Person", loaded).out.splitlines()) == 3
    assert len(call("export", "--table", "edge:Knows", loaded).out.splitlines()) == 1
    assert call("export", "--type", "Nope", loaded).code == 1


def test_export_writes_a_file_or_a_folder(loaded: Path, tmp_path: Path) -> None:
    lines = call("export", loaded).out
    assert (
        call("export", "--to", tmp_path / "one.jsonl", loaded).out == f"exported 4 entities to {tmp_path}/one.jsonl\n"
    )
    assert (tmp_path / "one.jsonl").read_text() == lines
    for words in (["--format", "parquet"], []):
        folder = tmp_path / f"folder{len(words)}"
        assert call("export", "--to", f"{folder}/", *words, loaded).code == 0
        assert len([path for path in folder.rglob("*") if path.is_file()]) == 2
    used = call("export", "--to", f"{tmp_path}/folder0/", loaded)
    assert (used.code, "holds files already" in used.err) == (3, True)
    refused = call("export", "--format", "parquet", loaded)
    assert (refused.code, "--to" in refused.err) == (1, True)


def test_the_older_spellings_still_work(loaded: Path) -> None:
    line = ["--query", queries(loaded), "--store", loaded]
    assert call("read", "everybody", *line).out.startswith("3 rows")
    assert call("change", "add_person", *line, "--params", '{"name": "x"}').code == 0
    assert call("ingest", "--data", loaded.parent / "people.jsonl", loaded).code == 0


def test_files_of_one_type_load_with_their_columns_mapped(root: Path) -> None:
    folder = root.parent
    (folder / "people.csv").write_text("full,age\nAda,36\nBob,\n")
    (folder / "knows.csv").write_text("from,to,since\nAda,Bob,2024-01-01\n")
    words = ["--nodes", f"Person={folder / 'people.csv'}", "--edges", f"Knows={folder / 'knows.csv'}"]
    outcome = call("load", "--mode", "append", *words, "--map", "Person.name=full", root)
    assert outcome.code == 0, outcome.err
    assert "2 nodes across 1 node types, 1 edges across 1 edge types" in outcome.out
    assert "through local" in outcome.out
    assert len(call("export", root).out.splitlines()) == 3


def test_a_value_of_the_wrong_kind_in_a_file_names_its_record(root: Path) -> None:
    (root.parent / "people.csv").write_text("name,age\nAda,36\nBob,old\n")
    outcome = call("load", "--mode", "append", "--nodes", f"Person={root.parent / 'people.csv'}", root)
    assert outcome.code == 1
    assert "people.csv: record 2 (line 3): Person.age" in outcome.err
    assert "rows=0" in call("snapshot", root).out


@pytest.mark.long
def test_output_is_utf_8_in_every_locale(loaded: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    words = ["query", "everybody", "--query", queries(loaded), "--store", loaded]
    assert "Zoë" in spawn(*words, env=plain).out
    changed = spawn("mutate", "add_person", *words[2:], "--params", '{"name": "x"}', env=plain)
    assert changed.code == 0
    assert "→" in changed.err


def test_a_load_into_a_branch_that_is_missing_says_how_to_make_it(loaded: Path) -> None:
    data = loaded.parent / "people.jsonl"
    done = call("load", loaded, data, "--branch", "none", "--mode", "merge", "--quiet")
    assert (done.code, done.err) == (
        1,
        "error: there is no branch 'none': pass --from <base> to create it for the load\n",
    )


def test_a_load_refuses_a_base_that_does_not_exist_although_the_branch_does(loaded: Path) -> None:
    done = call("load", loaded, loaded.parent / "people.jsonl", "--mode", "merge", "--from", "nope", "--quiet")
    assert (done.code, done.err) == (1, "error: there is no branch 'nope'\n")
    assert call("commit", "list", loaded).out.count("branch=main") == 2
    done = call("load", loaded, loaded.parent / "people.jsonl", "--mode", "merge", "--from", "main", "--quiet")
    assert done.code == 0


def test_a_load_that_is_refused_leaves_no_branch_that_was_made_for_it(loaded: Path) -> None:
    words = ("load", loaded, loaded.parent / "people.jsonl", "--branch", "fresh", "--from", "main", "--quiet")
    refused = call(*words)
    assert refused.code == 3
    assert call("branch", "list", loaded).out == "main\n"
    assert call(*words, "--mode", "merge").code == 0
    assert call(*words).code == 3
    assert call("branch", "list", loaded).out == "fresh\nmain\n"
