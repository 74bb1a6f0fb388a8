"""What stands at the place of a mistake, and what was probably meant.

A mistake that is common enough to be recognised gets a hint: marks of other languages above all, whose writers know
what they want and only miss how it is said here.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z0-9_$]+|[\s\S]")
_CYPHER = re.compile(r"\(\s*[A-Za-z0-9_]*\s*(?::\s*[A-Za-z0-9_]+)?[^()]{0,40}\)\s*<?-")
_TRAVERSAL = "an edge is followed by '$a edgeName $b', without brackets or arrows"
_NODE = f"a node is written '$p: Person', without brackets, and {_TRAVERSAL}"
_QUERY = "a query is 'query name() { match { … } return { … } }'"
_DECLARATION = "a type is declared as 'node Person { name: String @key }' or 'edge Knows: Person -> Person'"
_KEYWORD = re.compile(r"(?:QUERY|MATCH|OPTIONAL|RETURN|DISTINCT|ORDER|LIMIT|OFFSET|HAVING|INSERT|UPDATE|DELETE)\b")
_NEAR = 40

_TYPES = {
    "string|str|text|varchar|char": "a text is String",
    "int|int32|int64|integer|bigint|long|serial": "an integer is I32 or I64, without a sign U32 or U64",
    "float|float32|float64|double|real|decimal|numeric": "a number with a fraction is F32 or F64",
    "bool|boolean": "true and false are Bool",
    "date": "a day is Date",
    "datetime|timestamp": "a moment is DateTime",
}
"""Names that other languages have for types, and what they are called here."""


def word_at(text: str, position: int) -> str:
    """What stands at a place, as a message shows it."""
    word = _WORD.match(text, position)
    shown = word[0] if word else ""
    if len(shown) > _NEAR:
        shown = f"{shown[:_NEAR]}…"
    return f"'{shown}'" if shown.isprintable() else f"the character {shown!r}"


def hint_at(text: str, position: int) -> str | None:
    """What to write instead, where the mistake at a place is a known one."""
    rest = text[position : position + _NEAR]
    before = text[max(position - _NEAR, 0) : position]
    hints = (
        (rest.startswith("#"), "a comment begins with // or /*"),
        (rest.startswith("/*"), "this comment has no end"),
        (rest.startswith('"'), "this string has no end"),
        (rest.startswith("'"), "strings are written in double quotes"),
        (rest.startswith("=") and before.endswith("="), "equality is written with one '='"),
        (rest.startswith(">") and before.endswith("<"), "inequality is written '!='"),
        (rest.startswith("&&"), "write 'and'"),
        (rest.startswith("||"), "write 'or'; texts are joined by concat(a, b)"),
        (rest.startswith("!"), "write 'not'"),
        (rest.startswith(".") and not rest.startswith(".."), "no space is allowed around the dot of a property"),
        (rest.startswith("*") and before.rstrip().endswith(".."), "an open upper bound is written '0..'"),
        (bool(re.search(r"@\s*card\s*\([^)]*$", before)), "@card(low..high) comes right after an edge's target type"),
        (bool(re.match(r"(?i)select\b|match\s*\{", rest)), _QUERY),
        (bool(re.match(r"(?i)create\s+(?:node|rel|edge|vertex|table|type)\b", rest)), _DECLARATION),
        (bool(re.match(r"(?i)create\s*\(", rest)), "a node is added by 'query name() { insert Person { … } }'"),
        (bool(re.match(r"(?i)match\s*\(", rest)), f"a query is 'query name() {{ match {{ … }} … }}', and {_TRAVERSAL}"),
        (bool(_CYPHER.match(rest)) and bool(re.search(r"(?i)match\s*$", before)), _TRAVERSAL),
        (bool(re.match(r"->|<-|-\[|\[\s*:", rest)) or (rest.startswith("[") and before.endswith("-")), _TRAVERSAL),
        (rest.startswith(">") and before.endswith("-"), _TRAVERSAL),
        (rest.startswith(":") and before.endswith("["), _TRAVERSAL),
        (rest.startswith(":") and bool(re.search(r"\(\s*\$\w+\s*$", before)), _NODE),
        (bool(_KEYWORD.match(rest)), "keywords are written in small letters"),
        (bool(re.match(r"(?i)where\b", rest)), "a condition stands in match { }, beside the patterns"),
        (bool(re.match(r"(?i)(null|nil|none)\b", rest)), "there is no null literal; use a nullable parameter"),
    )
    return next((hint for holds, hint in hints if holds), None) or _type_hint(rest, before)


def _type_hint(rest: str, before: str) -> str | None:
    """What a type is called here, where one of another language stands behind a colon."""
    if not re.search(r":\s*\[?\s*$", before):
        return None
    return next((hint for names, hint in _TYPES.items() if re.match(rf"(?i)(?:{names})\b", rest)), None)
