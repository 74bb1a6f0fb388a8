"""Errors as exit codes and as JSON."""

import json
import sys

import pytest

from omnigraph import errors
from omnigraph.cli import main
from omnigraph.cli.exits import exit_code
from omnigraph.cli.main import run
from omnigraph.wire import error_output

CASES: list[tuple[errors.GraphError, int, str | None]] = [
    (errors.ParseError("m"), 1, "bad_request"),
    (errors.ConstraintError("m"), 1, "bad_request"),
    (errors.GraphNotFoundError("m"), 1, "not_found"),
    (errors.VersionReclaimedError("m", table_key="node:A", version=3), 1, None),
    (errors.AlreadyExistsError("m"), 3, "conflict"),
    (errors.ExpectedVersionMismatchError(table_key="node:A", expected=1, actual=2), 3, "conflict"),
    (errors.KeyConflictError(table_key="node:A", entity_id="x"), 3, "conflict"),
    (errors.MergeConflictError("m", conflicts=[]), 3, "conflict"),
    (errors.PreconditionFailedError(expected="a", actual="b"), 4, None),
    (errors.PolicyError("m"), 5, "forbidden"),
    (errors.LimitError("m", resource="rows", limit=1, actual=2), 1, None),
    (errors.RecoveryRequiredError("m", operation_id="01K"), 1, None),
    (errors.StorageError("m"), 1, "internal"),
    (errors.FormatError("m"), 1, "internal"),
    (errors.InternalError("m"), 1, "internal"),
]


@pytest.mark.parametrize(("error", "code", "wire"), CASES, ids=lambda value: type(value).__name__)
def test_each_class_has_its_exit_code_and_wire_code(error: errors.GraphError, code: int, wire: str | None) -> None:
    assert exit_code(error) == code
    body = error_output(error)
    assert body["error"] == error.message
    assert body.get("code") == wire
    assert error.facts().items() <= body.items()


def test_a_lost_race_has_the_body_of_the_specification() -> None:
    error = errors.ExpectedVersionMismatchError(table_key="node:Person", expected=9, actual=11)
    assert error_output(error) == {
        "error": "stale view of 'node:Person': expected manifest table version 9 but current is 11 — refresh and retry",
        "code": "conflict",
        "manifest_conflict": {"table_key": "node:Person", "expected": 9, "actual": 11},
        "published_dataset_version_conflict": {
            "entity_kind": "node",
            "type_name": "Person",
            "expected_published_dataset_version": 9,
            "actual_published_dataset_version": 11,
        },
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["version"], "error: the output cannot be written: no space left on device\n"),
        (["query", "--store", "/nowhere", "-e", "query", "--json"], "error: "),
    ],
)
def test_an_output_that_cannot_be_written_is_one_sentence(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(words) == 1
    told = capsys.readouterr().err
    assert told.startswith(says)
    assert "unexpected" not in told
    assert told.count("error: ") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["load", "g.omni", "--mode", "wrong", "--json"],
        ["query", "g.omni", "--nope", "--json"],
        ["query", "g.omni", "--nope", "--format=json"],
        ["branch", "merge", "--json"],
        ["nonverb", "--json"],
        ["query", "--json", "-e", "\0"],
    ],
)
def test_a_line_that_is_not_understood_is_an_object_too_where_json_is_asked_for(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    told = capsys.readouterr()
    body = json.loads(told.out)
    assert body["code"] == "bad_request"
    assert told.err.startswith(f"error: {body['error']}\n")
    assert run([word for word in words if "json" not in word]) == 2
    assert capsys.readouterr().out == ""


class Interrupting:
    """Stands for Ctrl-C that arrives while a module is imported and a class of it is made."""

    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_while_a_class_is_made_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "parser_of", lambda verb: type("Made", (), {"name": Interrupting()}))
    assert run(["version"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
