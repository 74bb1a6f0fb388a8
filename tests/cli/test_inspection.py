"""`snapshot`, `commit` and `schema`: looking at a graph without changing it."""

import json
import re
from pathlib import Path

import pytest
from tests.cli.program import call

import omnigraph
from omnigraph.cli.commands.commit import parse_filters
from omnigraph.cli.schema_steps import describe_step
from omnigraph.errors import InputError

SCHEMA = "// people\nnode Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inspection") / "g.omni"
    omnigraph.create(path, schema=SCHEMA).close()
    return path


def test_snapshot_lists_every_table(root: Path) -> None:
    branch, version, *tables = call("snapshot", root).out.splitlines()
    assert branch == "branch: main"
    assert re.fullmatch(r"manifest_version: \d+", version)
    assert tables == ["edge:Knows v1 branch=main rows=0", "node:Person v1 branch=main rows=0"]
    body = json.loads(call("snapshot", "--store", root, "--json").out)
    assert body["branch"] == "main"
    assert [table["table_key"] for table in body["tables"]] == ["edge:Knows", "node:Person"]
    assert set(body["tables"][0]) == {"table_key", "table_path", "table_version", "table_branch", "row_count"}


def test_the_first_commit_is_listed_and_shown(root: Path) -> None:
    (line,) = call("commit", "list", root).out.splitlines()
    commit_id, *facts = line.split()
    assert facts[:2] == ["branch=main", "version=1"]
    assert facts[2].startswith("at=")
    shown = call("commit", "show", commit_id, root)
    assert shown.out.splitlines()[:3] == [
        f"graph_commit_id: {commit_id}",
        "manifest_branch: null",
        "manifest_version: 1",
    ]
    body = json.loads(call("commit", "show", commit_id, "--uri", root, "--json").out)
    (listed,) = json.loads(call("commit", "list", "--json", root).out)["commits"]
    assert body == listed
    assert body["graph_commit_id"] == commit_id


def test_commits_can_be_chosen_by_time_and_number(root: Path) -> None:
    assert call("commit", "list", "--since", "2100-01-01", root).out == ""
    assert call("commit", "list", "--filter", "until=2000-01-01T00:00:00Z", root).out == ""
    assert call("commit", "list", "--limit", "0", root).out == ""
    assert call("commit", "list", "--filter", "actor=nobody", root).out == ""
    assert len(call("commit", "list", "--since", "2000-01-01", "--limit", "5", root).out.splitlines()) == 1


def test_filters_are_pairs_of_known_keys() -> None:
    assert parse_filters(["actor=ana=b", "since=2026-01-01"]) == {"actor": "ana=b", "since": "2026-01-01"}
    for texts in (["actor"], ["mood=good"], ["actor="], ["actor=a", "actor=b"]):
        with pytest.raises(InputError):
            parse_filters(texts)


def test_a_time_that_is_none_is_refused(root: Path) -> None:
    outcome = call("commit", "list", "--since", "yesterday", root)
    assert outcome.code == 1
    assert "'yesterday' is not a time" in outcome.err


def test_schema_show_prints_the_text_as_it_was_written(root: Path) -> None:
    assert call("schema", "show", root).out == SCHEMA
    assert call("schema", "get", root).out == SCHEMA
    assert json.loads(call("schema", "show", root, "--json").out) == {"schema_source": SCHEMA}


def test_a_profile_and_a_default_address_the_graph(root: Path, operator_home: Path) -> None:
    (operator_home / "config.yaml").write_text(f"profiles: {{ here: {{ store: '{root}' }} }}\nshiny: 1\n")
    outcome = call("--profile", "here", "snapshot")
    assert outcome.out.startswith("branch: main")
    assert "unknown key 'shiny'" in outcome.err
    (operator_home / "config.yaml").write_text(f"defaults: {{ store: '{root}' }}\n")
    assert call("snapshot").out.startswith("branch: main")


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"kind": "add_type", "type_kind": "node", "name": "A"}, "add node 'A'"),
        ({"kind": "rename_type", "type_kind": "node", "from": "A", "to": "B"}, "rename node 'A' to 'B'"),
        (
            {
                "kind": "add_property",
                "type_kind": "node",
                "type_name": "Person",
                "property_name": "age",
                "property_type": {"scalar": "I32", "nullable": True, "list": False, "enum_values": None},
            },
            "add property 'Person.age' (I32?) on node 'Person'",
        ),
        (
            {
                "kind": "drop_property",
                "type_kind": "node",
                "type_name": "Person",
                "property_name": "fax",
                "mode": "soft",
            },
            "drop property 'Person.fax' of node 'Person' (soft mode)",
        ),
        (
            {"kind": "rename_property", "type_kind": "node", "type_name": "A", "from": "x", "to": "y"},
            "rename property 'A.x' to 'y' on node 'A'",
        ),
        (
            {"kind": "add_constraint", "type_kind": "node", "type_name": "A", "constraint": {"Index": ["x", "y"]}},
            "add @index(x, y) on node 'A'",
        ),
        ({"kind": "drop_type", "type_kind": "edge", "name": "E", "mode": "hard"}, "drop edge 'E' (hard mode)"),
        (
            {
                "kind": "extend_enum",
                "type_kind": "node",
                "type_name": "A",
                "property_name": "k",
                "added_values": ["c", "d"],
            },
            "add c, d to the enum of 'A.k' on node 'A'",
        ),
        (
            {"kind": "unsupported_change", "entity": "node:A", "reason": "no", "code": "OG-MF-103"},
            "unsupported: [OG-MF-103] node:A: no",
        ),
        (
            {"kind": "update_type_metadata", "type_kind": "node", "name": "A", "annotations": []},
            "update the annotations of node 'A'",
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_step_of_a_schema_plan_is_said_in_words(step: dict[str, object], says: str) -> None:
    assert describe_step(step) == says


def test_a_configuration_in_the_working_folder_is_not_read_and_says_so(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "omnigraph.yaml").write_text("nonsense: [")
    monkeypatch.chdir(tmp_path)
    outcome = call("snapshot", root)
    assert outcome.code == 0
    assert "'omnigraph.yaml' is not read" in outcome.err
