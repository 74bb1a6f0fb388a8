"""A writer that counts as one of another machine: a real process, with a host name, a temporary folder and a lease
of its own, which stops where a test wants it to."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from omnigraph import failpoints
from omnigraph.engine.coordination import file_lock as turns
from omnigraph.engine.coordination import owner
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.errors import GraphError
from omnigraph.graph import Graph, connect
from omnigraph.testing.children import child_process

SECONDS_MAX = 60.0


def settle_elsewhere(name: str) -> None:
    """Make this process one of another machine, as far as anybody can tell from its intents."""
    here = owner.this_process()
    elsewhere = owner.replace(here, host=name, boot_id=f"boot-of-{name}")
    owner._identity = lambda pid: elsewhere  # type: ignore[assignment]
    # Turns are a courtesy among writers of one machine; where their files are was decided before this process began.
    tempfile.tempdir = turns._FILES.folder = tempfile.mkdtemp(prefix=f"omnigraph-{name}-")


def open_with_lease(root: str, lease_seconds: float, options: Mapping[str, str]) -> Graph:
    """A graph whose intents are leased for so long."""
    for name, value in options.items():
        os.environ[name] = value
    graph = connect(root)
    graph.context.recovery.intents.lease_seconds = lease_seconds
    Heartbeat.at(graph.context.store.objects).lease.seconds = lease_seconds
    return graph


def write_and_stop(
    root: str, text: str, branch: str, stop_at: str, notes: str, lease_seconds: float, options: dict[str, str]
) -> None:
    """Write; stop this very process at a failpoint; note the answer of the write once it goes on."""
    settle_elsewhere("far")
    graph = open_with_lease(root, lease_seconds, options)

    def stop(name: str) -> None:
        if name == stop_at:
            failpoints.install(None)
            Path(f"{notes}.stopped").touch()
            os.kill(os.getpid(), signal.SIGSTOP)

    failpoints.install(stop)
    try:
        result = graph.mutate(text, branch=branch, actor="act-far")
        answer = {"commit": result.commit_id, "error": None, "text": ""}
    except GraphError as exc:
        answer = {"commit": None, "error": type(exc).__name__, "text": str(exc)}
    Path(notes).write_text(json.dumps(answer), encoding="utf-8")


class Stopped:
    """A process that stands still in the middle of a write."""

    def __init__(self, process: ForkServerProcess, notes: Path) -> None:
        self._process, self._notes = process, notes

    def go_on(self) -> dict[str, str | None]:
        """Let the process go on, and return what its write was told."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)
        self._process.join(SECONDS_MAX)
        assert self._process.exitcode == 0
        answer: dict[str, str | None] = json.loads(self._notes.read_text(encoding="utf-8"))
        return answer


@contextmanager
def stopped_writer(
    root: str,
    text: str,
    stop_at: str,
    scratch: Path,
    *,
    branch: str = "main",
    lease_seconds: float = 1.0,
    options: Mapping[str, str] | None = None,
) -> Iterator[Stopped]:
    """Run a write of another machine until it stands still at a failpoint; its lease runs on."""
    notes = scratch / "answer.json"
    process = child_process(write_and_stop, root, text, branch, stop_at, str(notes), lease_seconds, dict(options or {}))
    process.start()
    deadline = time.monotonic() + SECONDS_MAX
    while not Path(f"{notes}.stopped").exists():
        assert process.is_alive(), "the writer ended before it reached the failpoint"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield Stopped(process, notes)
    finally:
        process.kill()
        process.join(10)
