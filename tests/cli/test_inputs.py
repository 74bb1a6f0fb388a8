"""Text that commands read."""

import io
import sys
from pathlib import Path

import pytest
from tests.cli.program import call

from omnigraph.cli.inputs import parameters, query_files, query_text, read_text
from omnigraph.errors import InputError


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("ä".encode())))
    assert read_text("-", what="query file") == "ä"


def test_a_file_that_cannot_be_read_is_named_with_its_role(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the schema '.*nope\.pg': no such file"):
        read_text(str(tmp_path / "nope.pg"), what="schema")
    with pytest.raises(InputError, match="is a directory"):
        read_text(str(tmp_path), what="schema")
    (tmp_path / "latin.pg").write_bytes(b"ab\xe4")
    with pytest.raises(InputError, match="byte 2 is not UTF-8"):
        read_text(str(tmp_path / "latin.pg"), what="schema")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a directory"):
        read_text(str(tmp_path / "file" / "below"), what="schema")


def test_a_program_comes_from_exactly_one_place(tmp_path: Path) -> None:
    (tmp_path / "q.gq").write_text("query q() { }")
    assert query_text(str(tmp_path / "q.gq"), None) == "query q() { }"
    assert query_text(None, "query e() { }") == "query e() { }"
    for path, inline, says in [("q", "e", "mutually"), (None, None, "no query"), (None, " ", "empty")]:
        with pytest.raises(InputError, match=says):
            query_text(path, inline)


def test_the_text_on_the_line_may_be_a_body_alone(tmp_path: Path) -> None:
    assert query_text(None, "query q() { }") == "query q() { }"
    assert query_text(None, "MATCH (p) RETURN p") == "MATCH (p) RETURN p"
    (tmp_path / "g.pg").write_text("node Person { name: String @key }")
    call("init", "--schema", tmp_path / "g.pg", tmp_path / "g.omni")
    done = call("mutate", tmp_path / "g.omni", "-e", 'insert Person { name: "ann" }')
    assert done.out == "changed main via inline: 1 nodes, 0 edges\n"
    body = "match { $p: Person } return { $p.name } // all"
    found = call("query", tmp_path / "g.omni", "-e", body, "--format", "csv")
    assert found.out == "p.name\nann\n"


def test_parameters_are_one_json_object(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"big": 9007199254740993}')
    assert parameters(None, None) == {}
    assert parameters("null", None) == {}
    assert parameters('{"a": [1, null]}', None) == {"a": [1, None]}
    assert parameters(None, str(tmp_path / "p.json")) == {"big": 9007199254740993}


@pytest.mark.parametrize("text", ["[1]", "3", '"x"', "{", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000])
def test_anything_else_as_parameters_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="params must be a JSON object"):
        parameters(text, None)


def test_parameters_come_from_one_place() -> None:
    with pytest.raises(InputError, match="mutually exclusive"):
        parameters("{}", "file")


def test_a_folder_stands_for_its_query_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.gq", "a.gq", "deep/c.gq", "notes.txt"):
        (tmp_path / name).write_text("")
    found = list(query_files([str(tmp_path), "-", "single.gq"]))
    assert found == [str(tmp_path / "a.gq"), str(tmp_path / "b.gq"), str(tmp_path / "deep" / "c.gq"), "-", "single.gq"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no \.gq file"):
        list(query_files([str(tmp_path / "empty")]))
