"""Commands through a server: the same words, the same output, and what only a server can answer."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.program import call
from tests.server.serving import ADD, PEOPLE, QUERIES, SET_AGE, Process, make_graph

POLICY = """
version: 1
groups: { writers: [act-ana], readers: [act-bo] }
rules:
  - { id: w, allow: { actors: { group: writers }, actions: [read, export, change] } }
  - id: b
    allow: { actors: { group: writers }, actions: [branch_create, branch_delete, branch_merge, schema_apply] }
  - { id: q, allow: { actors: { group: writers }, actions: [invoke_query] } }
  - { id: r, allow: { actors: { group: readers }, actions: [read] } }
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    make_graph(folder / "store.omni")
    shutil.copytree(folder / "store.omni", folder / "served.omni")
    (folder / "queries").mkdir()
    (folder / "queries" / "all.gq").write_text(QUERIES)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "more.jsonl").write_text('{"type":"City","data":{"name":"Rome"}}\n')
    return folder


@pytest.fixture(scope="module")
def url(place: Path) -> Iterator[str]:
    tokens = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"act-ana": "t-ana", "act-bo": "t-bo"}'}
    words = ("--store", place / "served.omni", "--queries", place / "queries", "--policy", place / "policy.yaml")
    server = Process(*words, env=tokens)
    yield server.url
    server.stop()


@pytest.fixture
def served(url: str, operator_home: Path) -> str:
    """The name of the server in the configuration, with a token of somebody who may write."""
    (operator_home / "config.yaml").write_text(f"""
operator: {{ actor: act-ana }}
servers: {{ prod: {{ url: "{url}" }} }}
profiles: {{ p: {{ server: prod, default_graph: default }} }}
aliases:
  who: {{ server: prod, graph: default, query: person, args: [name], format: csv }}
  add: {{ server: prod, graph: default, query: add, args: [name, age], mutation: true }}
  sly: {{ server: prod, graph: default, query: add, args: [name] }}
""")
    assert call("login", "prod", "--token", "t-ana").code == 0
    return "prod"


def plain(text: str) -> str:
    """Output without what is new with every graph: ids, times and addresses."""
    text = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "<id>", text)
    text = re.sub(r'"(engine|seconds|bytes_written|created_at|reason)": [^,\n]*', r'"\1": 0', text)
    text = re.sub(r"at=\S+Z", "at=", text)
    text = re.sub(r"  [0-9.]+ s through .*\n|  \w+ because .*\n", "", text)
    text = re.sub(r'"phases": \{[^}]*\}', '"phases": {}', text)
    text = re.sub(r',?\s*"properties": \{[^}]*\}', "", text)
    text = re.sub(r"properties: .*\n|created_at: .*\n", "", text)
    text = re.sub(r'(cursor"?: )\S+', r"\1<cursor>", text)
    text = re.sub(r'commit (\S+) at \S+|"authored_at": \d+|"id": "(type-|\w{20,})[^"]*"', "commit", text)
    text = re.sub(r"(http://\S+/graphs/default|/\S*store\.omni)", "<graph>", text)
    return re.sub(r'"fingerprint": "[^"]*"', '"fingerprint": ""', text)


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("query", "-e", PEOPLE),
    ("query", "-e", PEOPLE, "--json"),
    ("query", "-e", PEOPLE, "--format", "jsonl"),
    ("explain", "-e", PEOPLE),
    ("snapshot",),
    ("snapshot", "--json"),
    ("mutate", "-e", ADD, "--params", '{"name": "dora", "age": 4}'),
    ("mutate", "-e", SET_AGE, "--params", '{"name": "dora", "age": 5}', "--json"),
    ("load", "--mode", "merge", "--data", "more.jsonl"),
    ("load", "--mode", "merge", "--data", "more.jsonl", "--branch", "fresh", "--from", "main", "--json"),
    ("branch", "create", "work/a"),
    ("branch", "list"),
    ("mutate", "-e", SET_AGE, "--params", '{"name": "ada", "age": 40}', "--branch", "work/a"),
    ("branch", "diff", "work/a"),
    ("branch", "diff", "work/a", "--json"),
    ("branch", "create", "past", "--at", "1"),
    ("branch", "delete", "past", "--yes"),
    ("branch", "show", "work/a"),
    ("branch", "show", "work/a", "--json"),
    ("tag", "create", "v1", "--message", "shown"),
    ("tag", "create", "v1", "--json"),
    ("tag", "delete", "v1"),
    ("tag", "list"),
    ("commit", "revert", "nothing"),
    ("branch", "merge", "work/a", "--dry-run"),
    ("branch", "merge", "work/a"),
    ("branch", "merge", "work/a"),
    ("branch", "conflicts", "work/a"),
    ("branch", "delete", "work/a", "--yes"),
    ("branch", "delete", "fresh", "--yes"),
    ("commit", "list"),
    ("commit", "list", "--json", "--limit", "2"),
    ("commit", "list", "--since", "2020-01-01"),
    ("changes", "poll", "--start", "beginning"),
    ("changes", "poll", "--start", "beginning", "--json"),
    ("changes", "poll", "--cursor", "x"),
    ("changes", "follow", "--start", "beginning", "--idle", "0.1s"),
    ("changes", "baseline", "--out", "base.jsonl"),
    ("changes", "baseline", "--out", "base.jsonl", "--json"),
    ("export", "--type", "City"),
    ("schema", "show"),
    ("schema", "plan", "--schema", "wider.pg"),
    ("schema", "apply", "--schema", "wider.pg"),
    ("query", "-e", "query q() {"),
    ("query", "-e", "query q() {", "--json"),
    ("query", "-e", PEOPLE, "--branch", "nowhere", "--json"),
    ("mutate", "-e", ADD, "--params", '{"name": 7}', "--json"),
    ("branch", "create", "main", "--json"),
    ("commit", "show", "nothing", "--json"),
    ("mutate", "-e", ADD, "--params", '{"name": "x"}', "--if-commit", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ("blob", "stat", "node", "Person", "bob", "photo"),
    ("blob", "stat", "node", "Person", "nobody", "photo"),
    ("blob", "put", "node", "Person", "bob", "photo", "--in", "wider.pg"),
    ("blob", "stat", "node", "Person", "bob", "photo", "--json"),
    ("blob", "put", "node", "Person", "nobody", "photo", "--in", "wider.pg"),
)


@pytest.mark.long
def test_every_command_prints_the_same_through_a_server(
    place: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    schema = call("schema", "show", "--store", "store.omni").out
    (place / "wider.pg").write_text(schema.replace("    age: I32?\n", "    age: I32?\n    shoe: I32?\n"))
    for words in COMMANDS:
        direct = call(*words, "--store", place / "store.omni")
        there = call(*words, "--server", served)
        assert (there.code, plain(there.out)) == (direct.code, plain(direct.out)), (words, there.err)
        written = re.findall(r"^omnigraph .* → .*", direct.err, re.MULTILINE)
        assert bool(written) == bool(re.findall(r"^omnigraph .* → .*\(served\)$", there.err, re.MULTILINE)), words


def test_the_target_is_named_and_the_actor_comes_from_the_token(served: str, url: str) -> None:
    words = ("mutate", "-e", SET_AGE, "--params", '{"name": "ada", "age": 41}', "--profile", "p")
    done = call(*words)
    assert done.err == f"omnigraph mutate → {url}/graphs/default (served)\n"
    assert "actor_id: act-ana" in done.out
    refused = call(*words, "--as", "someone")
    assert refused.code == 1
    assert "--as is for direct writes" in refused.err


@pytest.mark.long
def test_destructive_commands_need_consent(served: str) -> None:
    assert call("branch", "create", "gone", "--server", served).code == 0
    refused = call("branch", "delete", "gone", "--server", served)
    assert refused.code == 1
    assert "pass --yes to consent" in refused.err
    assert call("branch", "delete", "gone", "--server", served, "--yes").code == 0


def test_exit_codes_tell_denied_from_conflict(served: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("branch", "create", "main", "--server", served).code == 3
    lost = call("mutate", "-e", ADD, "--params", '{"name": "x"}', "--if-commit", "01X", "--server", served)
    assert lost.code == 4
    monkeypatch.setenv("OMNIGRAPH_TOKEN_PROD", "t-bo")
    denied = call("mutate", "-e", ADD, "--params", '{"name": "x"}', "--server", served, "--json")
    assert denied.code == 5
    assert json.loads(denied.out)["code"] == "forbidden"
    assert call("query", "-e", PEOPLE, "--server", served).code == 0
    monkeypatch.setenv("OMNIGRAPH_TOKEN_PROD", "wrong")
    assert call("query", "-e", PEOPLE, "--server", served).code == 5
    assert call("query", "-e", PEOPLE, "--server", url, "--graph", "other").code != 0
    assert call("graphs", "list", "--server", served).code == 5


def test_stored_queries_and_aliases(served: str) -> None:
    rows = call("query", "people", "--server", served, "--format", "csv")
    assert rows.out.splitlines()[0] == "p.name,p.age"
    assert "changed main via add" in call("mutate", "add", "--params", '{"name": "eve"}', "--server", served).out
    assert call("alias", "who", "eve").out.splitlines()[1] == "eve,null"
    assert "changed main via add" in call("alias", "add", "flo", "9").out
    assert '"p.age": 9' in call("alias", "who", "flo", "--json").out
    assert "is a mutation" in call("alias", "sly", "x").err
    for words, said in (
        (("alias", "nope"), "aliases: add, sly, who"),
        (("alias", "who", "a", "b"), "takes 1 arguments"),
        (("query", "people", "--store", "x"), "stored queries belong to a server"),
        (("query", "nothing", "--server", served), "stored query not found"),
    ):
        done = call(*words)
        assert done.code == 1
        assert said in done.err
    assert call("alias", "who", "eve", "--server", served).code == 2


def test_a_load_into_a_branch_that_is_missing_says_how_to_make_it(place: Path, served: str) -> None:
    words = ("load", "--server", served, place / "more.jsonl", "--mode", "merge", "--quiet")
    done = call(*words, "--branch", "none")
    assert (done.code, done.err) == (
        1,
        "error: there is no branch 'none': pass --from <base> to create it for the load\n",
    )
    for branch in ("main", "none"):
        done = call(*words, "--branch", branch, "--from", "nope")
        assert (done.code, done.err) == (1, "error: there is no branch 'nope'\n")


def test_a_type_that_lines_cannot_empty_is_refused(place: Path, served: str) -> None:
    (place / "none.csv").write_text("name\n")
    words = ("load", "--server", served, place / "none.csv", "--type", "City", "--yes", "--quiet", "--mode")
    done = call(*words, "overwrite")
    assert done.code == 1
    assert "mutate with 'delete City where true'" in done.err
    assert "nothing changed" in call(*words, "merge").out


def test_direct_commands_refuse_a_server(served: str) -> None:
    for words in (("optimize",), ("verify",), ("repair",), ("cleanup", "--keep", "3"), ("recovery", "list")):
        done = call(*words, "--server", served)
        assert done.code == 1, words
        assert "works on a store" in done.err
    assert call("init", "--schema", "x", "--server", served, "y").code == 2


@pytest.mark.long
def test_a_server_that_is_not_there_is_one_sentence() -> None:
    done = call("query", "-e", PEOPLE, "--server", "http://127.0.0.1:9", "--graph", "g")
    assert done.code == 1
    assert "cannot be reached" in done.err


def test_the_shell_asks_a_server_and_changes_its_graph(served: str) -> None:
    script = """match { $p: Person } return { count($p) as n };
insert City { name: "Shelltown" };
match { $c: City { name: "Shelltown" } } return { $c.name };
.branches
match { $p: Nobody } return { $p };
"""
    done = call("shell", "--server", served, "--graph", "default", "--format", "csv", stdin=script)
    assert done.code != 0
    assert done.out.splitlines()[2:] == [
        "changed main via shell: 1 nodes, 0 edges",
        "actor_id: act-ana",
        "c.name",
        "Shelltown",
        "* main",
    ]
    assert "Nobody" in done.err
