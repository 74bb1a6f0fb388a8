"""However many processes find an unfinished write at once, it is settled once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.crash.writes import MUTATIONS, Open

from omnigraph.engine.recovery import audit, heal
from omnigraph.graph import connect
from omnigraph.testing.children import child_process
from omnigraph.testing.crash import baseline, check_recovered, content_of, copy_graph

OPENERS = 4


@pytest.mark.parametrize("where", ["after some tables", "after all tables", "after the publish"])
def test_processes_that_open_a_graph_at_once_settle_a_write_once(
    where: str, interrupted: dict[str, Path], scratch: Path
) -> None:
    base = baseline(Open(), interrupted[where], scratch)
    root = copy_graph(interrupted[where], scratch / "graph")
    children = [child_process(Open().run, root) for _ in range(OPENERS)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * OPENERS
    check_recovered(root, (base.once,))
    assert len(audit.rows(connect(root).context.store)) == 1


@pytest.mark.parametrize("where", ["after some tables", "after all tables"])
def test_threads_that_write_at_once_settle_a_write_once(
    where: str, interrupted: dict[str, Path], scratch: Path
) -> None:
    root = copy_graph(interrupted[where], scratch / "graph")
    graph = connect(root, read_only=True)
    resolutions: list[object] = []
    threads = [
        threading.Thread(target=lambda: resolutions.extend(heal(graph.context.recovery))) for _ in range(OPENERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(resolutions) == 1
    assert len(audit.rows(graph.context.store)) == 1
    writable = connect(root)
    MUTATIONS["insert a node"].again(writable)
    check_recovered(root, (content_of(writable),))
