"""What stands at the place of a mistake, and what was probably meant.

A mistake that is common enough to be recognised gets a hint: marks of other languages above all, whose writers know
what they want and only miss how it is said here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORD = re.compile(r"[A-Za-z0-9_$]+|[\s\S]")
_CYPHER = re.compile(r"\(\s*[A-Za-z0-9_]*\s*(?::\s*[A-Za-z0-9_]+)?[^()]{0,40}\)\s*<?-")
_TRAVERSAL = "an edge is followed by '$a edgeName $b', without brackets or arrows"
_NODE = f"a node is written '$p: Person', without brackets, and {_TRAVERSAL}"
_QUERY = "a query is 'query name() { match { … } return { … } }'"
_PROPERTY = "the name of a property begins with a small letter"
_DECLARATION = "a type is declared as 'node Person { name: String @key }' or 'edge Knows: Person -> Person'"
_KEYWORD = re.compile(
    r"(?:QUERY|MATCH|OPTIONAL|EXISTS|EITHER|RETURN|DISTINCT|ORDER|ASC|DESC|LIMIT|OFFSET|HAVING|INSERT|UPDATE|SET|DELETE"
    r"|AS|AND|OR|NOT|IN|IS|CONTAINS|TRUE|FALSE)\b"
)
_BEHIND_VARIABLE = re.compile(r"\$\w+\s+$")
_REGION = re.compile(r"\b(?:query|match|return|order|insert|update|node|edge|interface)\b")
"""The words that say what the text behind them is about."""
_NEAR = 40
_ALTERNATIVES_MAX = 6
_CASE = "choose by coalesce(a, b), the first that is not null, or by the conditions of match { }"

_HABITS = {
    "where": "a condition stands in match { }, beside the patterns",
    "like|ilike": "texts are tested with contains, starts_with, ends_with or matches",
    "regexp|rlike|similar": "a pattern is tested with 'matches'",
    "between": "write 'x >= a and x <= b'",
    "case|when|then|else": _CASE,
    "optional": "what may be missing stands in 'optional { … }'",
}
"""Words of other languages, and what to write instead."""
_CONDITIONS = "is|not|and|or|in|contains|starts_with|ends_with|matches"

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


def hint_for(word: str) -> str | None:
    """What to write instead of a word that is taken for a name and stands for nothing, where it is a known one."""
    if word in _CONDITIONS.split("|"):
        return "a condition is no value: it stands in match { } or having { }"
    return next((hint for words, hint in _HABITS.items() if word.lower() in words.split("|")), None)


def hint_behind(text: str, position: int) -> str | None:
    """The same for the word that follows a place."""
    word = re.compile(r"\s*([A-Za-z_]+)").match(text, position)
    return hint_for(word[1]) if word else None


def hint_at(text: str, position: int) -> str | None:
    """What to write instead, where the mistake at a place is a known one."""
    rest = text[position : position + _NEAR]
    before = text[max(position - _NEAR, 0) : position]
    hints = (
        (rest.startswith(("#", "--")), "a comment begins with // or /*"),
        (rest.startswith("/*"), "this comment has no end"),
        (rest.startswith('"'), "this string has no end"),
        (rest.startswith("'"), "strings are written in double quotes"),
        (rest.startswith("=") and before.endswith("="), "equality is written with one '='"),
        (rest.startswith(">") and before.endswith("<"), "inequality is written '!='"),
        (rest.startswith("&&"), "write 'and'"),
        (rest.startswith("||"), "write 'or'; texts are joined by concat(a, b)"),
        (rest.startswith("!"), "write 'not'"),
        (bool(re.match(r"[.}]", rest) and re.search(r"\{\s*\d+\s*$", before)), "bounds are two numbers, such as {1,3}"),
        (bool(re.match(r"\.[A-Z]", rest)), _PROPERTY),
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
        (bool(re.match(r"NULL|Null", rest)) and before.endswith(("is ", "not ")), "'null' is written in small letters"),
        *_edge_hints(rest, before),
        (bool(re.match(r"(?i)by\b", rest)), "an order is written 'order { $p.name desc }'"),
        (bool(re.match(r"(?i)group\b", rest)), "aggregates are grouped by everything else that is returned"),
        (bool(re.match(r"(?i)skip\b", rest)), "rows are left out by 'offset 10', behind limit"),
        (bool(re.match(r"(?i)limit\b", rest)) and "offset" in before, "limit comes before offset"),
        (rest.startswith("*") and bool(re.search(r"(?i)count\s*\(\s*$", before)), "count($p) counts rows"),
        (rest.startswith(",") and bool(re.search(r"\bin\s*\([^()]*$", before)), "a list is written '[1, 2]'"),
        (rest.startswith("^"), "there is no power: write a product"),
        (rest.startswith("~"), "a pattern is tested with 'matches'"),
        (rest.startswith("{") and bool(re.search(r"\boptional\s+match\s*$", before)), "write 'optional { … }'"),
        (bool(re.search(r"\bcase\s+(?:\$\S+\s+)?when\b[^{}]*$", before)), _CASE),
        (bool(re.search(r"\bshortest\s+\$\w+\s+<?\w+>?\s*$", before)), "a path has bounds, such as knows{1,6}"),
        (bool(re.match(r"(?i)where\b", rest)), "a condition stands in match { }, beside the patterns"),
        (bool(re.match(r"(?i)(null|nil|none)\b", rest)), "there is no null literal; use a nullable parameter"),
        *_place_hints(text, position, rest, before),
    )
    found = next((hint for holds, hint in hints if holds), None) or _type_hint(rest, before)
    return found or next((hint for words, hint in _HABITS.items() if re.match(rf"(?i)(?:{words})\b", rest)), None)


def _edge_hints(rest: str, before: str) -> Iterator[tuple[bool, str]]:
    """What is known of an edge that is written as elsewhere, where a word follows a variable."""
    if _BEHIND_VARIABLE.search(before):
        yield bool(re.match(r"[A-Z]\w*", rest)), "the name of an edge begins with a small letter: '$a edgeName $b'"
        yield bool(re.match(r"\w+\s*\*", rest)), "one to three steps are written '$a edgeName{1,3} $b'"
        yield bool(re.match(r"\w+\s*-?>", rest)), _TRAVERSAL
        named = re.match(r"\w+\s*:\s*\$", rest) or re.search(r"\$\w+\s+\$\w+\s+$", before)
        yield bool(named), "an edge is named in front: '$a $e:edgeName $b'"


def _place_hints(text: str, position: int, rest: str, before: str) -> Iterator[tuple[bool, str]]:
    """What is known of a mistake by the part of the text it stands in."""
    region = next(reversed(_REGION.findall(text[:position])), "")
    declares = region in ("node", "edge", "interface")
    yield rest.startswith("(") and bool(re.search(r"\bedge\s+\w+\s*$", before)), _DECLARATION
    yield rest.startswith((",", ";")) and declares, "properties follow one another without a sign between them"
    yield rest.startswith(";"), "clauses, statements and queries follow one another without ';'"
    yield rest.startswith(",") and region == "match", "clauses follow one another without a comma"
    yield bool(re.match(r"[A-Z]\w*\s*:", rest)) and region != "query", _PROPERTY
    yield bool(re.match(r"[A-Z]\w*\s*\(", rest)) and not declares, "functions are written in small letters"
    yield rest.startswith("{") and bool(re.search(r"\bquery(?:\s+\w+)?\s*$", before)), _QUERY
    yield rest.startswith("{") and bool(re.search(r"\breturn\s*$", before)), "the match before it has no '}'"
    yield rest.startswith("order") and "limit" in before, "order comes before limit"
    yield bool(re.match(r"(?i)(?:create|merge|upsert|add)\s+[A-Z]", rest)), "write 'insert Person { … }'"
    removes = re.match(r"(?i)(?:remove|detach)\b", rest) or (rest.startswith("from") and before.endswith("delete "))
    yield bool(removes), "write 'delete Person where …'"
    yield bool(re.match(r"set\b", rest)), "write 'update Person set { … } where …', or 'update $p set { … }'"


def _type_hint(rest: str, before: str) -> str | None:
    """What a type is called here, where one of another language stands behind a colon."""
    if not re.search(r":\s*\[?\s*$", before):
        return None
    return next((hint for names, hint in _TYPES.items() if re.match(rf"(?i)(?:{names})\b", rest)), None)


def any_of(words: list[str]) -> str:
    """What would have fitted as alternatives, of many the first few."""
    if len(words) > _ALTERNATIVES_MAX:
        words = [*words[:_ALTERNATIVES_MAX], "…"]
    if not words:
        return "something else"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
