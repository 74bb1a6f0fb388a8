"""The programs in the guides are valid, and what they claim is so."""

import contextlib
import io

import pytest
from tests.docs.blocks import blocks

from omnigraph.catalog.resolve import compile_schema
from omnigraph.errors import GraphError
from omnigraph.plan import compile_file

GUIDES = ("docs/guide/schema.md", "docs/guide/query.md", "docs/guide/change.md")
HARBOUR = next(block.text for block in blocks(GUIDES[0]) if block.language == "pg")


@pytest.mark.parametrize("page", GUIDES)
def test_the_programs_of_a_guide_compile(page: str) -> None:
    catalog = compile_schema(HARBOUR)
    for block in blocks(page):
        if block.language == "gq":
            outcomes = compile_file(catalog, block.text)
            assert outcomes
            assert not [outcome for outcome in outcomes.values() if isinstance(outcome, GraphError)]


def test_the_python_of_the_guides_prints_what_it_says() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for page in GUIDES:
            for block in blocks(page):
                if block.language == "python":
                    exec(block.text, {})
    assert printed.getvalue().startswith("add_property\nTrue 2\n")


def test_the_guide_shows_the_schema_the_conformance_tables_use() -> None:
    from tests.conformance.harbour import SCHEMA

    assert compile_schema(HARBOUR) == compile_schema(SCHEMA)
