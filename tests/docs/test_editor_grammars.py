"""The grammars for editors are those of the tables, and know the words of the languages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from omnigraph.language.words import (
    CONSTANTS,
    LITERAL_CALLS,
    QUERY_CLAUSES,
    QUERY_OPERATORS,
    SCHEMA_DECLARATIONS,
    TYPE_CALLS,
)
from omnigraph.plan.functions import names

ROOT = Path(__file__).parent.parent.parent
SPEC = importlib.util.spec_from_file_location("make_editor_grammars", ROOT / "tools" / "make_editor_grammars.py")


@pytest.fixture(scope="module")
def tool() -> Any:
    assert SPEC is not None
    assert SPEC.loader is not None
    module = importlib.util.module_from_spec(SPEC)
    SPEC.loader.exec_module(module)
    return module


def test_the_files_are_those_of_the_tables(tool: Any) -> None:
    for name, grammar in tool.grammars().items():
        kept = (ROOT / "editors" / name).read_text(encoding="utf-8")
        assert kept == tool.text_of(grammar), "run tools/make_editor_grammars.py"


def test_the_tables_hold_every_word_of_the_grammars(tool: Any) -> None:
    words = {}
    for kind in ("query", "schema"):
        text = (ROOT / "tests" / "conformance" / "grammar" / f"{kind}.ebnf").read_text()
        words[kind] = set(re.findall(r'"([a-zA-Z_]+)"', re.sub(r"\(\*[\s\S]*?\*\)", "", text)))
    known = {*QUERY_CLAUSES, *QUERY_OPERATORS, *CONSTANTS, *TYPE_CALLS, *LITERAL_CALLS, *names()}
    assert words["query"] - known <= {"from", "to", "id"}
    assert words["schema"] - {*SCHEMA_DECLARATIONS, *TYPE_CALLS} <= {"card"}


@pytest.mark.parametrize(
    ("file", "text", "scope"),
    [
        ("gq.tmLanguage.json", "match { $p: Person }", "keyword.control.gq"),
        ("gq.tmLanguage.json", "$p.name", "variable.other.property.gq"),
        ("gq.tmLanguage.json", "count($p)", "support.function.gq"),
        ("gq.tmLanguage.json", '"a"', "string.quoted.double.gq"),
        ("gq.tmLanguage.json", "Person {", "entity.name.type.gq"),
        ("gq.tmLanguage.json", "starts_with $x", "keyword.operator.word.gq"),
        ("pg.tmLanguage.json", "node Person {", "keyword.control.pg"),
        ("pg.tmLanguage.json", "@default(now())", "entity.name.tag.pg"),
        ("pg.tmLanguage.json", "@kye", "invalid.unknown.annotation.pg"),
        ("pg.tmLanguage.json", "DateTime?", "storage.type.pg"),
        ("pg.tmLanguage.json", "node: String", "variable.other.property.pg"),
    ],
)
def test_the_first_word_has_its_colour(tool: Any, file: str, text: str, scope: str) -> None:
    patterns = tool.grammars()[file]["patterns"]
    taken = [p["name"] for p in patterns if re.match(p.get("match") or p["begin"], text)]
    assert taken[0] == scope
