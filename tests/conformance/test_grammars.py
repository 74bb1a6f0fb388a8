"""The parsers accept exactly what the ordered-choice grammars accept, on whole, damaged and generated programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.conformance.grammar.ordered_choice import OrderedChoice
from tests.plain.printer import print_query_file, print_schema
from tests.property import programs
from tests.property.test_language_fuzz import QUERIES, SCHEMAS

from omnigraph.errors import ParseError
from omnigraph.language import parse_query_file, parse_schema, query_ast, schema_ast

HERE = Path(__file__).parent
SCHEMA = OrderedChoice(HERE / "grammar" / "schema.ebnf")
QUERY = OrderedChoice(HERE / "grammar" / "query.ebnf")
HARBOUR = [(HERE / "harbour.pg").read_text(), (HERE / "harbour.gq").read_text()]


def fits(parse: Callable[[str], object], text: str) -> bool | None:
    """Whether the parser finds that the text fits its grammar; None when a rule beyond the grammar is broken."""
    try:
        parse(text)
    except ParseError as error:
        return None if ": expected " not in error.message else False
    return True


def disagreements(parse: Callable[[str], object], grammar: OrderedChoice, texts: list[str], count: int) -> list[str]:
    found = []
    for text in programs.damaged(texts, count, seed=99):
        actual = fits(parse, text)
        if actual is not None and actual is not grammar.accepts(text):
            found.append(text)
    return found


def test_the_grammars_accept_the_harbour() -> None:
    assert SCHEMA.accepts(HARBOUR[0])
    assert QUERY.accepts(HARBOUR[1])
    assert not SCHEMA.accepts(HARBOUR[1])


def test_damaged_schemas_are_judged_alike() -> None:
    assert disagreements(parse_schema, SCHEMA, SCHEMAS, 400) == []


def test_damaged_queries_are_judged_alike() -> None:
    assert disagreements(parse_query_file, QUERY, QUERIES, 600) == []


@settings(max_examples=25, deadline=None)
@given(programs.schemas)
def test_generated_schemas_fit_the_grammar(schema: schema_ast.Schema) -> None:
    assert SCHEMA.accepts(print_schema(schema))


@settings(max_examples=25, deadline=None)
@given(programs.query_files)
def test_generated_queries_fit_the_grammar(file: query_ast.QueryFile) -> None:
    assert QUERY.accepts(print_query_file(file))


@pytest.mark.long
def test_many_more_damaged_programs_are_judged_alike() -> None:
    assert disagreements(parse_schema, SCHEMA, SCHEMAS, 6_000) == []
    assert disagreements(parse_query_file, QUERY, QUERIES, 9_000) == []
