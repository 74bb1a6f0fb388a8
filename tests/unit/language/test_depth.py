"""Trees of expressions stay as deep as what reads them can bear."""

import pytest

from omnigraph.errors import ParseError
from omnigraph.language.condition_parser import DEPTH_MAX
from omnigraph.language.query_parser import parse_query_file


def sum_of(operators: int) -> str:
    return "+".join(["1"] * (operators + 1))


DEEPEST = {
    "operators in a row": f"$v.x + {sum_of(DEPTH_MAX - 2)} > 1",
    "a comparison": f"$v.x > {sum_of(DEPTH_MAX - 1)}",
    "behind not": f"not $v.x > {sum_of(DEPTH_MAX - 2)}",
    "a call behind not": f"not f({sum_of(DEPTH_MAX - 2)})",
    "in one of several": f"$v.x > {sum_of(DEPTH_MAX - 2)} or $v.x = 1",
    "not in a row": "not " * (DEPTH_MAX - 1) + "$v.x = 1",
}


def program(condition: str) -> str:
    return f"query q() {{ match {{ $v: V {condition} }} return {{ $v }} }}"


@pytest.mark.parametrize("shape", DEEPEST)
def test_an_expression_may_be_so_deep_and_no_deeper(shape: str) -> None:
    deepest = DEEPEST[shape]
    assert parse_query_file(program(deepest)).queries
    deeper = f"not {deepest}" if shape == "not in a row" else deepest.replace("1+1", "1+1+1", 1)
    with pytest.raises(ParseError, match=f"nested more than {DEPTH_MAX} deep"):
        parse_query_file(program(deeper))
