"""The same writes do the same things in the same order, whatever the hash seed of the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
        print(name, re.sub(r"[0-9a-f]{40,}|[0-9A-Z]{26}|[0-9]{15,}", "<id>", target.replace(sys.argv[1], "")))
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

MERGING = """
import json, re, sys
from omnigraph.engine.storage import steps
from omnigraph.errors import MergeConflictError
from omnigraph.graph import create

def say(*words):
    print(*(re.sub(r"[0-9A-Z]{26}|[0-9a-f]{32,}|[0-9.]+(?= s$)", "<id>", str(word)) for word in words))

class Recorder:
    def before(self, name, target):
        if name not in ("read_text", "list_dir"):  # copies of several files wait for each other in any order
            say(name, re.sub(r"[0-9]{20,}.*", "<file>", target.replace(sys.argv[1], "")))
    def after(self, name, target):
        pass

schema = " ".join(
    f"node N{n} {{ k: String @key  u: String? @unique  n: I32? }} edge E{n}: N{n} -> N0 @card(0..3)" for n in range(4)
)
graph = create(sys.argv[1] + "/graph", schema)
def nodes(keys, **more):
    return [{"type": f"N{n}", "data": {"k": k, **more}} for n in range(4) for k in keys]
def edges(keys, *, to):
    return [{"edge": f"E{n}", "from": k, "to": to, "data": {"id": f"{k}{to}"}} for n in range(4) for k in keys]
graph.load(nodes("abcdefgh", n=0) + edges("abcd", to="a"), "append")
graph.branches.create("review")
graph.load(nodes("abc", n=1) + nodes("xy", n=1) + edges("abx", to="h"), "merge", branch="review")
graph.load([{"type": "N1", "data": {"k": "z", "u": "same"}}], "merge", branch="review")
graph.load(nodes("bcd", n=2) + nodes("yw", n=2), "merge")
graph.load([{"type": "N1", "data": {"k": "v", "u": "same"}}], "merge")
for n in range(4):
    graph.mutate(f'query q() {{ delete N{n} where k = "h" }}')
steps.observe(Recorder())
say(json.dumps(graph.branches.plan_merge("review").to_json()))
for conflict in graph.branches.conflicts("review"):
    say(json.dumps(conflict.to_json()))
try:
    graph.branches.merge("review")
except MergeConflictError as refused:
    say(refused, refused.total, json.dumps(refused.by_kind), json.dumps(refused.conflicts))
def take(conflict):
    return {"orphan_edge": "drop_edge", "unique_violation": {"set": {"u": None}}}.get(conflict.kind)
say(json.dumps(graph.branches.merge("review", strategy="theirs", resolve=take).to_json()))
print("\\n".join(sorted(graph.export())))
"""


@pytest.mark.long
@pytest.mark.parametrize("script", [SCRIPT, MERGING], ids=["writing", "merging"])
def test_steps_messages_and_output_do_not_depend_on_the_hash_seed(script, tmp_path):
    outputs = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder)], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        outputs.append([line for line in done.stdout.splitlines() if "MutationResult" not in line])
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 40
