"""Printing a tree and parsing the text gives the tree back."""

import pytest
from hypothesis import given, settings
from tests.plain.printer import print_query_file, print_schema
from tests.property import programs

from omnigraph.language import parse_query_file, parse_schema, query_ast, schema_ast


@pytest.mark.long
@settings(max_examples=120, deadline=None)
@given(programs.schemas)
def test_a_printed_schema_parses_to_the_same_tree(schema: schema_ast.Schema) -> None:
    assert parse_schema(print_schema(schema)) == schema


@pytest.mark.long
@settings(max_examples=120, deadline=None)
@given(programs.query_files)
def test_a_printed_query_file_parses_to_the_same_tree(file: query_ast.QueryFile) -> None:
    assert parse_query_file(print_query_file(file)) == file
