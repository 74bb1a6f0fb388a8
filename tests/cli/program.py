"""The program as a test calls it: in this process, or as a process of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from omnigraph.cli.main import run

PROGRAM = Path(sys.executable).parent / "omnigraph"


@dataclass(frozen=True)
class Outcome:
    """What a command did: its exit code and what it printed."""

    code: int
    out: str
    err: str


def call(*words: str | Path, stdin: str | None = None) -> Outcome:
    """Run a command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.stdin
    if stdin is not None:
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = run([str(word) for word in words])
    finally:
        sys.stdin = before
    return Outcome(code, out.getvalue(), err.getvalue())


def spawn(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> Outcome:
    """Run a command line as a process."""
    done = subprocess.run(
        [str(PROGRAM), *(str(word) for word in words)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
