"""Graphs and servers for the tests of the HTTP surface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.server.serving import ACTORS, InProcess, in_process, make_graph

from omnigraph.server.access import Access
from omnigraph.server.tokens import Tokens


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph that is never changed; tests copy it."""
    root = tmp_path_factory.mktemp("seed") / "graph"
    make_graph(root)
    return root


@pytest.fixture
def serve(seed: Path, tmp_path: Path) -> Iterator[Callable[..., InProcess]]:
    """Starts a server in this process on a copy of the seed."""
    opened: list[InProcess] = []

    def start(**named: object) -> InProcess:
        server = in_process(seed, tmp_path / f"graph-{len(opened)}", **named)  # type: ignore[arg-type]
        opened.append(server)
        return server

    yield start
    for server in opened:
        server.close()


@pytest.fixture
def open_server(serve: Callable[..., InProcess]) -> InProcess:
    """A server where everybody may do everything."""
    return serve()


@pytest.fixture
def token_server(serve: Callable[..., InProcess]) -> InProcess:
    """A server with tokens and without a policy."""
    return serve(access=Access(Tokens.of(ACTORS)))
