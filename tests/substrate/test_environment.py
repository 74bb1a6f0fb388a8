"""Where the environment would let Lance hang, a graph is refused for writing, and still read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.storage.lance_internals.environment import IO_THREADS

SCHEMA = "node A { k: String @key }"
INSERT = 'query q() { insert A { k: "a" } }'
READ = "query q() { match { $a: A } return { $a.k as k } }"
WRITING = f"import sys, omnigraph; omnigraph.create(sys.argv[1], {SCHEMA!r}).mutate({INSERT!r})"


def run(threads: str, code: str, *words: str) -> str:
    """What a process with so many threads prints; it has a minute, and a hanging one fails the test."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, IO_THREADS: threads},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("threads", ["0", "1", "many", ""])
def test_a_process_whose_commits_would_hang_is_refused_at_once(
    tmp_path: Path, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked in this process, of whose environment Lance has long read what it wants: it is refused before Lance is."""
    omnigraph.create(tmp_path / "there", SCHEMA).close()
    monkeypatch.setenv(IO_THREADS, threads)
    with pytest.raises(omnigraph.StorageError, match=f"the environment variable {IO_THREADS} is") as refused:
        omnigraph.create(tmp_path / "new", SCHEMA)
    assert (refused.value.kind, (tmp_path / "new").exists()) == ("configuration", False)
    with pytest.raises(omnigraph.StorageError, match=f"the environment variable {IO_THREADS} is"):
        omnigraph.connect(tmp_path / "there")


def test_it_may_still_read(tmp_path: Path) -> None:
    with omnigraph.create(tmp_path / "graph", SCHEMA) as graph:
        graph.mutate(INSERT)
    reading = f"import sys, omnigraph; print(len(omnigraph.connect(sys.argv[1], read_only=True).query({READ!r})))"
    assert run("1", reading, str(tmp_path / "graph")) == "1\n"


def test_two_threads_are_enough(tmp_path: Path) -> None:
    assert run("2", WRITING, str(tmp_path / "graph")) == ""
    with omnigraph.connect(tmp_path / "graph") as graph:
        assert graph.query(READ).to_pylist() == [{"k": "a"}]
