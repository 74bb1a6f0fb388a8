"""The same writes do the same things in the same order, whatever the hash seed of the process."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import re, sys
from omnigraph.engine.operations.export import export_lines
from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.mutate import mutate
from omnigraph.engine.storage import steps
from omnigraph.errors import ConstraintError
from omnigraph.graph import create
from omnigraph.plan import compile_query

class Recorder:
    def before(self, name, target):
        print(name, re.sub(r"[0-9A-Z]{26}", "<id>", target.replace(sys.argv[1], "")))
    def after(self, name, target):
        pass

schema = " ".join(f"node N{n} {{ k: String @key  u: String? @unique }} edge E{n}: N{n} -> N0" for n in range(6))
context = create(sys.argv[1] + "/graph", schema).context
steps.observe(Recorder())
records = [{"type": f"N{n}", "data": {"k": k}} for n in range(6) for k in "abc"]
records += [{"edge": f"E{n}", "from": "a", "to": k, "data": {"id": k}} for n in range(6) for k in "abc"]
load(context, records, mode="append")
for text in ('query m() { delete N0 where k = "a" }', 'query m() { update N1 set { u: "x" } where k != "a" }'):
    try:
        print(mutate(context, compile_query(context.catalog, text, None), {}))
    except ConstraintError as error:
        print(error.violations)
print("\\n".join(export_lines(context.catalog, context.manifest.snapshot())))
"""


def test_steps_messages_and_output_do_not_depend_on_the_hash_seed(tmp_path):
    outputs = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(folder)], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        outputs.append([line for line in done.stdout.splitlines() if "MutationResult" not in line])
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 40
