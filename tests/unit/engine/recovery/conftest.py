"""Fixtures of the recovery tests."""

from pathlib import Path

import pytest
from tests.unit.engine.recovery.handwriter import SCHEMA

from omnigraph.engine.recovery import RecoveryContext
from omnigraph.graph import Graph, create


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", SCHEMA)


@pytest.fixture
def ctx(graph: Graph) -> RecoveryContext:
    return graph.context.recovery
