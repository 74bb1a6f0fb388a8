"""The policy is asked again by the engine, at the head of every write that names an actor."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import InputError, PolicyError
from omnigraph.policy import Policy

SCHEMA = "node Person { name: String @key }\n"
ADD = "query add($name: String) { insert Person { name: $name } }"
WIDER = "node Person { name: String @key  age: I32? }\n"
LINES = [{"type": "Person", "data": {"name": "Bo"}}]

RULES = """
version: 1
groups: { writers: [ana], drafters: [bo], nobodies: [cy] }
protected_branches: [main]
rules:
  - { id: w, allow: { actors: { group: writers }, actions: [change], branch_scope: any } }
  - id: b
    allow: { actors: { group: writers }, actions: [branch_create, branch_delete, branch_merge, schema_apply] }
  - { id: d, allow: { actors: { group: drafters }, actions: [change], branch_scope: unprotected } }
"""

WRITES: dict[str, tuple[Callable[[Any, str | None], Any], str]] = {
    "mutate": (lambda graph, actor: graph.mutate(ADD, {"name": "Ada"}, actor=actor), "'change' on branch 'main'"),
    "load": (lambda graph, actor: graph.load(LINES, "append", actor=actor), "'change' on branch 'main'"),
    "schema.apply": (
        lambda graph, actor: graph.schema.apply(WIDER, actor=actor),
        "'schema_apply' to target branch 'main'",
    ),
    "branches.create": (
        lambda graph, actor: graph.branches.create("draft", actor=actor),
        "'branch_create' on branch 'main' to target branch 'draft'",
    ),
    "branches.delete": (
        lambda graph, actor: graph.branches.delete("old", actor=actor),
        "'branch_delete' to target branch 'old'",
    ),
    "branches.merge": (
        lambda graph, actor: graph.branches.merge("old", actor=actor),
        "'branch_merge' on branch 'old' to target branch 'main'",
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with omnigraph.create(tmp_path / "g.omni", SCHEMA) as graph:
        graph.branches.create("old")
        graph.mutate(ADD, {"name": "Old"}, branch="old")
    return tmp_path / "g.omni"


def state(root: Path) -> tuple[Any, ...]:
    with omnigraph.connect(root, read_only=True) as graph:
        names = graph.branches.list()
        return tuple((name, graph.snapshot(name).head) for name in names), graph.schema.source


@pytest.mark.parametrize("verb", WRITES)
def test_a_write_that_no_rule_allows_changes_nothing(root: Path, verb: str) -> None:
    write, asked = WRITES[verb]
    before = state(root)
    with omnigraph.connect(root, policy=Policy.parse(RULES)) as graph:
        for actor in ("bo", "cy", "stranger"):
            with pytest.raises(PolicyError, match=f"policy denied action {asked} for actor '{actor}'"):
                write(graph, actor)
        with pytest.raises(PolicyError, match="names no actor"):
            write(graph, None)
    assert state(root) == before


@pytest.mark.parametrize("verb", [name for name in WRITES if name != "schema.apply"])
def test_a_write_that_a_rule_allows_goes_through(root: Path, verb: str) -> None:
    write, _ = WRITES[verb]
    before = state(root)
    with omnigraph.connect(root, policy=Policy.parse(RULES)) as graph:
        write(graph, "ana")
    assert state(root) != before


def test_a_schema_is_changed_by_whom_a_rule_allows(root: Path) -> None:
    with omnigraph.connect(root, policy=Policy.parse(RULES)) as graph:
        graph.branches.delete("old", actor="ana")
        assert graph.schema.apply(WIDER, actor="ana").applied


def test_scopes_hold_in_the_engine(root: Path) -> None:
    with omnigraph.connect(root, policy=Policy.parse(RULES)) as graph:
        assert graph.mutate(ADD, {"name": "Bo"}, branch="old", actor="bo").affected_nodes == 1
        with pytest.raises(PolicyError):
            graph.mutate(ADD, {"name": "Bo"}, actor="bo")


def test_a_merge_that_deletes_its_branch_may_be_denied_the_deletion(root: Path) -> None:
    rules = RULES.replace("branch_delete, ", "")
    with omnigraph.connect(root, policy=Policy.parse(rules)) as graph:
        result = graph.branches.merge("old", delete_branch=True, actor="ana")
    assert result.commit_id
    assert "policy denied action 'branch_delete'" in str(result.branch_delete_error)


def test_reads_ask_nobody_and_no_policy_means_no_gate(root: Path) -> None:
    with omnigraph.connect(root, policy=Policy.parse(RULES)) as graph:
        assert graph.query("query all() { match { $p: Person } return { $p.name } }").to_pylist() == []
    with omnigraph.connect(root) as graph:
        assert graph.mutate(ADD, {"name": "Ada"}).commit_id


def test_the_gate_stays_when_the_schema_is_read_anew(root: Path) -> None:
    with omnigraph.connect(root, policy=Policy.parse(RULES)) as graph:
        with omnigraph.connect(root) as other:
            other.branches.delete("old")
            other.schema.apply(WIDER)
        with pytest.raises(PolicyError):
            graph.mutate(ADD, {"name": "Cy"}, actor="cy")


def test_what_decides_nothing_is_refused(root: Path) -> None:
    with pytest.raises(InputError, match="policy must be a Policy, not of type str"):
        omnigraph.connect(root, policy="policy.yaml")  # type: ignore[arg-type]
