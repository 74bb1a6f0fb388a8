"""The programs in the guides are valid, and what they claim is so."""

import contextlib
import io
import json
import re

import pytest
from tests.conformance.harbour import HERE
from tests.docs.blocks import ROOT, blocks
from tests.docs.examples import Example, examples

import omnigraph
from omnigraph.catalog.resolve import compile_schema
from omnigraph.errors import GraphError
from omnigraph.plan import compile_file

GUIDES = tuple(f"docs/guide/{name}.md" for name in ("schema", "query", "change", "from-cypher", "search"))
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
    defaults = "[{'v.code': 'a', 'v.size': 1}, {'v.code': 'b', 'v.size': 4}]"
    assert printed.getvalue().startswith(f"{defaults}\nadd_property\nTrue 2\n")


def test_the_guide_shows_the_schema_the_conformance_tables_use() -> None:
    from tests.conformance.harbour import SCHEMA

    assert compile_schema(HARBOUR) == compile_schema(SCHEMA)


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> omnigraph.Graph:
    graph = omnigraph.create(tmp_path_factory.mktemp("guide") / "harbour.omni", HARBOUR)
    graph.load(HERE / "harbour.jsonl")
    return graph


@pytest.mark.parametrize("example", [*examples("docs/guide/query.md")], ids=lambda example: example.name)
def test_a_query_of_the_reference_gives_what_it_says(example: Example, harbour: omnigraph.Graph) -> None:
    rows = [list(row.values()) for row in harbour.query(example.text, params=example.parameters, name=example.name)]
    found = [row[0] if len(row) == 1 else row for row in rows]
    assert found
    if example.gives is not None:
        assert (found if example.is_ordered else sorted(found, key=json.dumps)) == example.gives


def test_the_reference_shows_every_function_and_word() -> None:
    from omnigraph.plan.functions import TABLE

    shown = " ".join(example.text for page in ("query", "search") for example in examples(f"docs/guide/{page}.md"))
    words = {"and", "or", "not", "in", "is null", "is not null", "contains", "starts_with", "ends_with", "matches"}
    words |= {"distinct", "having", "optional", "exists", "either", "path", "limit", "offset", "desc", "as", "now()"}
    assert not [word for word in words if word not in shown]
    assert not [name for name in TABLE if f"{name}(" not in shown]


def _right_hand_sides() -> list[str]:
    """The code in the last column of the tables that stand beside Cypher and SQL."""
    text = (ROOT / "docs/guide/from-cypher.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    return [code for row in rows for code in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", row)[3])]


PLACES = (
    "{}",
    "query q($k: I64, $list: [String], $name: String) {{ {} }}",
    "query q($k: I64, $list: [String], $name: String) {{ match {{ $v: Vessel {} }} return {{ $v }} }}",
    "query q($k: I64, $list: [String], $name: String) {{ match {{ $v: Vessel $b: Berth {} }} return {{ $v }} }}",
    "query q($k: I64, $list: [String], $name: String) {{ match {{ $a: Vessel $b: Vessel {} }} return {{ $a }} }}",
    "query q($k: I64, $list: [String], $name: String) {{ match {{ $v: Vessel $v {} }} return {{ $v }} }}",
    "query q($k: I64, $list: [String], $name: String) {{ match {{ $v: Vessel }} {} }}",
    "query q($k: I64) {{ match {{ $v: Vessel }} return {{ $v.kind, count($v) as n }} {} }}",
    "query q() {{ match {{ $v: Vessel }} return {{ {} }} }}",
    "query q() {{ match {{ $v: Vessel }} return {{ {} as x }} }}",
    "query q() {{ match {{ $v: Vessel $w: Vessel path $p = shortest $v tows{{1,6}} $w }} return {{ {} as x }} }}",
    "query q() {{ match {{ $a: Vessel $b: Vessel }} {} }}",
)


@pytest.mark.parametrize("code", _right_hand_sides())
def test_what_stands_beside_cypher_and_sql_is_valid_where_it_belongs(code: str) -> None:
    catalog = compile_schema(HARBOUR)
    said = []
    for place in PLACES:
        try:
            if all(not isinstance(each, GraphError) for each in compile_file(catalog, place.format(code)).values()):
                return
        except GraphError as error:
            said.append(str(error))
    try:
        compile_schema(f"node P {{ k: String @key }}\n{code}")
    except GraphError as error:
        pytest.fail("\n".join([code, *said, str(error)]))
