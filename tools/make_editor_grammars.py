"""Make the TextMate grammars of both languages from the tables of their words; run it after a table has changed.

python tools/make_editor_grammars.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import omnigraph.graph  # noqa: F401  # registers every function
from omnigraph.catalog.constraints import ANNOTATIONS
from omnigraph.language.words import (
    CONSTANTS,
    LITERAL_CALLS,
    QUERY_CLAUSES,
    QUERY_OPERATORS,
    SCALARS,
    SCHEMA_DECLARATIONS,
    TYPE_CALLS,
)
from omnigraph.plan.functions import names

FOLDER = Path(__file__).parent.parent / "editors"


def grammars() -> dict[str, dict[str, Any]]:
    """Every grammar by the name of its file."""
    return {"gq.tmLanguage.json": query_grammar(), "pg.tmLanguage.json": schema_grammar()}


def text_of(grammar: dict[str, Any]) -> str:
    """A grammar as its file holds it."""
    return json.dumps(grammar, indent=2, ensure_ascii=False) + "\n"


def query_grammar() -> dict[str, Any]:
    """The grammar of `.gq`: queries and mutations."""
    return _grammar(
        "Omnigraph queries",
        "gq",
        [
            {"name": "variable.other.property.gq", "match": r"\$[a-z_]\w*\.(?:[a-z_]\w*|\*)"},
            {"name": "variable.other.gq", "match": r"\$[a-z_]\w*"},
            {"name": "entity.name.tag.gq", "match": r"@[a-z_]\w*"},
            {"name": "support.function.gq", "match": rf"\b(?:{_any([*names(), *LITERAL_CALLS])})(?=\s*\()"},
            {"name": "keyword.control.gq", "match": rf"\b(?:{_any(QUERY_CLAUSES)})\b(?!\s*:)"},
            {"name": "keyword.operator.word.gq", "match": rf"\b(?:{_any(QUERY_OPERATORS)})\b(?!\s*:)"},
            *_common("gq"),
            {"name": "keyword.operator.gq", "match": r">=|<=|!=|[-=<>+*/%]"},
        ],
    )


def schema_grammar() -> dict[str, Any]:
    """The grammar of `.pg`: schemas."""
    return _grammar(
        "Omnigraph schemas",
        "pg",
        [
            {"name": "entity.name.tag.pg", "match": rf"@(?:{_any(ANNOTATIONS)})\b|@x_\w*"},
            {"name": "invalid.unknown.annotation.pg", "match": r"@[a-z_]\w*"},
            {"name": "variable.other.property.pg", "match": r"\b[a-z_]\w*(?=\s*:)"},
            {"name": "keyword.control.pg", "match": rf"\b(?:{_any(SCHEMA_DECLARATIONS)})\b"},
            {"name": "support.function.pg", "match": r"\bnow(?=\s*\()"},
            *_common("pg"),
            {"name": "keyword.operator.pg", "match": r"->|\.\.|\?"},
        ],
    )


def _grammar(name: str, suffix: str, patterns: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "scopeName": f"source.{suffix}",
        "fileTypes": [suffix],
        "patterns": [
            {"name": f"comment.line.double-slash.{suffix}", "match": r"//.*$"},
            {"name": f"comment.block.{suffix}", "begin": r"/\*", "end": r"\*/"},
            {
                "name": f"string.quoted.double.{suffix}",
                "begin": '"',
                "end": '"',
                "patterns": [
                    {"name": f"constant.character.escape.{suffix}", "match": r'\\["\\nrt]'},
                    {"name": f"invalid.illegal.escape.{suffix}", "match": r"\\."},
                ],
            },
            *patterns,
        ],
    }


def _common(suffix: str) -> list[dict[str, str]]:
    return [
        {"name": f"storage.type.{suffix}", "match": rf"\b(?:{_any(SCALARS)})\b|\b(?:{_any(TYPE_CALLS)})(?=\s*\()"},
        {"name": f"constant.language.{suffix}", "match": rf"\b(?:{_any(CONSTANTS)})\b"},
        {"name": f"constant.numeric.{suffix}", "match": r"\b[0-9]+(?:\.[0-9]+)?\b"},
        {"name": f"entity.name.type.{suffix}", "match": r"\b[A-Z]\w*\b"},
    ]


def _any(words: Any) -> str:
    """Any of the words, the longest first, because the first that fits is taken."""
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


def main() -> None:
    """Write every grammar."""
    FOLDER.mkdir(exist_ok=True)
    for name, grammar in grammars().items():
        (FOLDER / name).write_text(text_of(grammar), encoding="utf-8")
        sys.stdout.write(f"editors/{name}\n")


if __name__ == "__main__":
    main()
