"""Check queries against a schema without a graph: what a program asks before it ships a query file."""

from __future__ import annotations

import os

from omnigraph.boundary import verb
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.operations.texts import read_query, read_schema
from omnigraph.plan.lint import LintReport
from omnigraph.plan.lint import lint as check

INLINE = "<text>"
"""How a report names what was given as text and not as a file."""


@verb()
def lint(*, schema: str | os.PathLike[str], source: str | os.PathLike[str]) -> LintReport:
    """Parse and type-check every query of a source, and warn about likely mistakes; nothing is run.

    `schema` is the text of a schema or the path of a `.pg` file (`graph.schema.source` of an open graph); `source` is
    the text of queries or the path of a `.gq` file. The report has `is_ok`, `errors`, `warnings`, `results` (a query
    each), `findings` (about the file), and `to_json()`.

    Raises:
        ParseError, SchemaError: the schema is not valid; what is wrong with the queries is in the report.
    """
    catalog = compile_schema(read_schema(schema))
    origin = {"kind": "file", "path": _name(schema, ".pg")}
    return check(catalog, read_query(source), query_path=_name(source, ".gq"), schema_source=origin)


def _name(given: str | os.PathLike[str], ending: str) -> str:
    """The path that was given, or that it was text."""
    named = os.fspath(given)
    return named if named.endswith(ending) and "\n" not in named else INLINE
