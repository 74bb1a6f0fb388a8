"""What can be typed next: commands, words of the language, and the names of the graph's schema."""

from __future__ import annotations

import re
from collections.abc import Iterator

from omnigraph.catalog.model import Catalog
from omnigraph.language.words import QUERY_CLAUSES, QUERY_OPERATORS
from omnigraph.plan.functions import names

_PROPERTY = re.compile(r"\$(\w+)\.(\w*)$")
_INSIDE = re.compile(r"\b(?:insert|update)\s+([A-Z]\w*)[^{}]*\{[^{}]*?(\w*)$")
_BOUND = r"\${}\s*:\s*([A-Z]\w*)"
_WORD = re.compile(r"[\w.]*$")


def candidates(text: str, catalog: Catalog, commands: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """What may follow a text, each with how many characters of it are already there.

    `text` is everything from the beginning of the statement to the cursor.
    """
    line = text.rpartition("\n")[2]
    if line.startswith(".") and " " not in line and "\n" not in text:
        yield from ((name, len(line)) for name in commands if name.startswith(line))
        return
    asked = _PROPERTY.search(text)
    if asked is not None:
        yield from ((name, len(asked[2])) for name in _properties(text, asked[1], catalog) if name.startswith(asked[2]))
        return
    begun = _WORD.search(text)
    typed = begun[0] if begun is not None else ""
    inside = _INSIDE.search(text)
    own = sorted(_of_type(inside[1], catalog)) if inside is not None else []
    yield from ((name, len(typed)) for name in dict.fromkeys([*own, *_words(catalog)]) if name.startswith(typed))


def _words(catalog: Catalog) -> Iterator[str]:
    yield from sorted(catalog.nodes)
    for name in sorted(catalog.edges):
        yield name
        yield name[0].lower() + name[1:]
    yield from sorted({*QUERY_CLAUSES, *QUERY_OPERATORS})
    yield from (f"{name}(" for name in names())


def _properties(text: str, variable: str, catalog: Catalog) -> list[str]:
    """The properties of a variable, by the type the statement gives it; of every type where it gives none."""
    bound = re.findall(_BOUND.format(re.escape(variable)), text)
    if bound:
        return sorted(_of_type(bound[-1], catalog))
    return sorted({name for entity in catalog.tables.values() for name in entity.properties})


def _of_type(name: str, catalog: Catalog) -> tuple[str, ...]:
    entity = catalog.nodes.get(name) or catalog.edges.get(name)
    return () if entity is None else tuple(entity.properties)
