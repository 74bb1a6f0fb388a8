"""Algorithms end: what would run for ever, or is no chance, is refused before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph


@pytest.mark.parametrize(
    "arguments", [{"rounds": 0}, {"rounds": 10_001}, {"rounds": 2**31}, {"damping": 1.5}, {"damping": float("nan")}]
)
def test_what_cannot_be_ranked_by_is_refused(tmp_path: Path, arguments: dict[str, float]) -> None:
    graph = omnigraph.create(tmp_path / "g", "node Person { name: String @key }\nedge Knows: Person -> Person")
    with pytest.raises(omnigraph.InputError, match=f"{next(iter(arguments))} must be between"):
        graph.algorithms.pagerank(**arguments)
