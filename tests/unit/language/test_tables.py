"""Parsing tables that travel with the package are never of another grammar."""

from __future__ import annotations

from importlib import resources

import pytest
from lark import Transformer, Tree

from omnigraph.language import tables
from omnigraph.language.tables import SUFFIX, freeze, parser_of

PACKAGE = resources.files("omnigraph.language")
GRAMMAR = 'start: WORD+\nWORD: /[a-z]+/\n%ignore " "\n'
OTHER = 'start: NUMBER+\nNUMBER: /[0-9]+/\n%ignore " "\n'


class Keep(Transformer[object, object]):
    """Leaves trees as they are."""


@pytest.mark.parametrize("name", ["query", "schema"])
def test_the_tables_in_the_package_are_those_of_its_grammars(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def computed(*arguments: object, **options: object) -> None:
        raise AssertionError("run tools/freeze_grammars.py: the tables are not those of the grammar")

    grammar = PACKAGE.joinpath(f"{name}.lark").read_text(encoding="utf-8")
    frozen = PACKAGE.joinpath(name + SUFFIX).read_bytes()
    monkeypatch.setattr(tables.Lark, "__init__", computed)
    parser_of(grammar, frozen, Keep())


def test_frozen_tables_give_the_tree_that_the_grammar_gives() -> None:
    frozen = parser_of(GRAMMAR, freeze(GRAMMAR), Keep()).parse("some words here")
    assert frozen == parser_of(GRAMMAR, None, Keep()).parse("some words here")
    assert isinstance(frozen, Tree)
    assert [str(token) for token in frozen.children] == ["some", "words", "here"]


@pytest.mark.parametrize("frozen", [None, b"", b"short", freeze(OTHER)])
def test_tables_of_another_grammar_are_passed_over(frozen: bytes | None) -> None:
    tree = parser_of(GRAMMAR, frozen, Keep()).parse("one two")
    assert isinstance(tree, Tree)
    assert [str(token) for token in tree.children] == ["one", "two"]
