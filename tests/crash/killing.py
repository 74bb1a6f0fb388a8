"""A writer process that is killed at any moment, and says beforehand and afterwards what it wrote."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from omnigraph.errors import ConflictError, RecoveryRequiredError
from omnigraph.graph import connect

INSERT = """query q($name: String, $hub: String, $hot: String, $age: I32) {
  insert Person { name: $name, age: $age }
  insert WorksAt { from: $name, to: $hub, since: $age }
  insert Company { name: $hot }
}"""
UPDATE = 'query q($age: I32) { update Person set { age: $age } where name = "ann" }'


def write_until_killed(root: str, journal: str, worker: str) -> None:
    """Write for ever: a person with an edge and an upsert of a hot key, sometimes an update everybody fights for."""
    logging.disable(logging.WARNING)
    with open(journal, "a", encoding="utf-8") as log:
        graph = connect(root)
        _say(log.fileno(), worker, "ready", 0.0)
        number = 0
        while True:
            number += 1
            name = f"{worker}-{number}"
            _say(log.fileno(), name, "begin", 0.0)
            started = time.monotonic()
            try:
                if number % 5:
                    graph.mutate(
                        INSERT, {"name": name, "hub": "acme", "hot": f"hot-{number % 3}", "age": number}, actor=worker
                    )
                else:
                    graph.mutate(UPDATE, {"age": number}, actor=worker)
                outcome = "done"
            except ConflictError:
                outcome = "conflict"
            except RecoveryRequiredError:
                outcome = "unfinished"
            _say(log.fileno(), name, outcome, time.monotonic() - started)


def _say(descriptor: int, name: str, outcome: str, seconds: float) -> None:
    """One line in one system call, so that a kill never leaves half of one."""
    line = json.dumps({"name": name, "outcome": outcome, "seconds": seconds, "pid": os.getpid()})
    os.write(descriptor, f"{line}\n".encode())


def read_journal(folder: Path) -> Iterator[dict[str, object]]:
    for path in sorted(folder.glob("*.log")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
