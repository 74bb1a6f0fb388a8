"""The command line before it is parsed."""

import pytest

from omnigraph.cli.arguments import DEPRECATED_VERBS, settle, wants_json


def test_leading_global_flags_move_behind_the_verb() -> None:
    line = settle(["--store", "g.omni", "--quiet", "--as=ana", "load", "--data", "x", "--", "--yes"])
    assert line.words == ("load", "--data", "x", "--store", "g.omni", "--quiet", "--as=ana", "--", "--yes")
    assert line.verb == "load"
    assert line.warnings == ()


def test_flags_behind_the_verb_stay_where_they_are() -> None:
    assert settle(["query", "-e", "--store", "x"]).words == ("query", "-e", "--store", "x")


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["--store", "x"], ["--unknown", "query"]])
def test_a_line_without_a_verb_is_left_alone(words: list[str]) -> None:
    line = settle(words)
    assert line.words == tuple(words)
    assert line.verb is None


def test_help_is_a_word_as_well() -> None:
    assert settle(["help"]).words == ("--help",)
    assert settle(["help", "branch", "merge"]).words == ("branch", "merge", "--help")
    assert settle(["query", "help"]).words == ("query", "help")


@pytest.mark.parametrize("old", sorted(DEPRECATED_VERBS))
def test_an_older_spelling_works_and_warns_once(old: tuple[str, ...]) -> None:
    line = settle([*old, "--mode", "append", "g.omni"])
    assert line.words == (*DEPRECATED_VERBS[old], "--mode", "append", "g.omni")
    (warning,) = line.warnings
    assert " ".join(old) in warning
    assert DEPRECATED_VERBS[old][0] in warning


def test_ingest_merges_unless_told_otherwise() -> None:
    assert settle(["ingest", "--data", "x"]).words == ("load", "--data", "x", "--mode", "merge")
    assert settle(["ingest", "--mode=append"]).words == ("load", "--mode=append")


def test_a_failure_is_json_exactly_when_json_was_asked_for() -> None:
    assert wants_json(["query", "--json"])
    assert wants_json(["query", "--format", "json"])
    assert wants_json(["query", "--format=json"])
    assert not wants_json(["query", "--format", "jsonl"])
    assert not wants_json(["query", "--", "--json"])
