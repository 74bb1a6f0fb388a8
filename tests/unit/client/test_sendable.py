"""What cannot travel as a parameter is refused before it is sent, in the words of a graph in a folder."""

import datetime as dt
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph import ParameterError
from omnigraph.client.sendable import sendable
from omnigraph.graph import create

BAD: list[tuple[str, Any]] = [
    ("F64", math.nan),
    ("F64", -math.inf),
    ("F64", np.float64("inf")),
    ("[F64]", [1.0, math.inf]),
    ("Vector(2)", np.array([1.0, math.nan])),
    ("String", "half \ud800"),
    ("[String]", ["whole", "\udfff"]),
]


@pytest.mark.parametrize(("kind", "value"), BAD, ids=[f"{kind}-{place}" for place, (kind, _) in enumerate(BAD)])
def test_both_ways_refuse_a_parameter_alike(tmp_path: Path, kind: str, value: Any) -> None:
    text = f"query q($p: {kind}) {{ match {{ $a: A }} return {{ $a.k }} }}"
    with create(tmp_path / "graph", "node A { k: String @key }") as graph, pytest.raises(ParameterError) as here:
        graph.query(text, params={"p": value})
    with pytest.raises(ParameterError) as there:
        sendable({"p": value}, text)
    assert str(there.value) == str(here.value)


def test_a_name_that_is_no_text_is_shown_escaped() -> None:
    with pytest.raises(ParameterError, match=r"param '\\ud800': the text is not valid Unicode"):
        sendable({"\ud800": 1})


def test_what_json_has_travels_as_it_is() -> None:
    given = {"n": 2**64 - 1, "f": 1.5, "t": dt.date(2020, 1, 2), "l": np.array([1, 2]), "none": None}
    assert sendable(given) == {"n": 2**64 - 1, "f": 1.5, "t": "2020-01-02", "l": [1, 2], "none": None}
    assert sendable(None) is None
