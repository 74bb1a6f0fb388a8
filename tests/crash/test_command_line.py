"""A command that is killed in the middle is settled by the next one, and the history says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.property.graph_model import SCHEMA

from omnigraph.testing.failpoints import CRASH_EXIT_CODE

HIRE = 'query hire() { insert Company { name: "acme" } insert Person { name: "ann" } }'


def omnigraph(*words: str, failpoints: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from omnigraph.cli.main import main; main()", *words],
        env={**os.environ, "OMNIGRAPH_FAILPOINTS": failpoints},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.long
def test_a_killed_command_is_finished_by_the_next_one(tmp_path: Path) -> None:
    root, query = str(tmp_path / "graph"), tmp_path / "hire.gq"
    query.write_text(HIRE)
    (tmp_path / "schema.pg").write_text(SCHEMA)
    assert omnigraph("init", "--schema", str(tmp_path / "schema.pg"), root).returncode == 0
    write = ("mutate", "--query", str(query), "--store", root, "--as", "act-alice")
    killed = omnigraph(*write, failpoints="mutation.post_finalize_pre_publisher=exit")
    assert killed.returncode == CRASH_EXIT_CODE, killed.stderr
    looked = omnigraph("verify", root)
    assert looked.returncode == 1, "looking changes nothing, so the write is still unfinished"
    assert "pending" in looked.stdout
    assert omnigraph(*write).returncode == 0
    assert omnigraph("verify", root).returncode == 0
    listed = omnigraph("commit", "list", "--filter", "actor=omnigraph:recovery", "--json", root)
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)["commits"]) == 1
