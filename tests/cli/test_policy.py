"""`omnigraph policy validate|test|explain`."""

import json
from pathlib import Path

import pytest
from tests.cli.program import call

RULES = """
version: 1
groups: { admins: [act-ana], team: [act-ana, act-bo] }
protected_branches: [main]
rules:
  - { id: team-read, allow: { actors: { group: team }, actions: [read], branch_scope: any } }
  - { id: drafts, allow: { actors: { group: team }, actions: [change], branch_scope: unprotected } }
  - { id: promote, allow: { actors: { group: admins }, actions: [branch_merge], target_branch_scope: protected } }
  - { id: stored, allow: { actors: { group: team }, actions: [invoke_query], queries: [weekly] } }
"""
CASES = """
version: 1
cases:
  - { id: bo-reads, actor: act-bo, action: read, branch: main, expect: allow }
  - { id: bo-writes-main, actor: act-bo, action: change, branch: main, expect: deny }
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / "intel.yaml").write_text(RULES)
    (tmp_path / "tests.yaml").write_text(CASES)
    return tmp_path / "intel.yaml"


def test_a_valid_policy_is_named_with_its_actors(policy: Path) -> None:
    assert call("policy", "validate", "--file", policy).out == "policy valid: bundle 'intel' [2 actors]\n"
    told = json.loads(call("policy", "validate", "--file", policy, "--json").out)
    assert told == {
        "ok": True,
        "bundle": "intel",
        "kind": None,
        "actors": 2,
        "rules": ["team-read", "drafts", "promote", "stored"],
    }
    assert call("policy", "validate", "--file", "-", stdin=RULES).out.startswith(
        "policy valid: bundle 'standard input'"
    )


def test_an_invalid_policy_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(RULES.replace("branch_scope: any", "branches: any"))
    outcome = call("policy", "validate", "--file", tmp_path / "p.yaml")
    assert outcome.code == 1
    assert "unknown field 'branches'" in outcome.err
    assert call("policy", "validate", "--file", tmp_path / "none.yaml").code == 1
    assert call("policy", "validate").code == 2


def test_cases_that_hold_pass_and_others_fail_the_command(policy: Path) -> None:
    tests = policy.parent / "tests.yaml"
    passed = call("policy", "test", "--file", policy, "--tests", tests)
    assert (passed.code, passed.out) == (0, "policy tests passed: 2 cases\n")
    tests.write_text(CASES.replace("expect: deny", "expect: allow"))
    failed = call("policy", "test", "--file", policy, "--tests", tests)
    assert failed.code == 1
    assert failed.out == "bo-writes-main: expected Allow but got deny\npolicy tests failed: 1 of 2 cases\n"
    told = json.loads(call("policy", "test", "--file", policy, "--tests", tests, "--json").out)
    assert told == {"ok": False, "cases": 2, "failures": ["bo-writes-main: expected Allow but got deny"]}


def test_a_decision_is_explained(policy: Path) -> None:
    denied = call("policy", "explain", "--file", policy, "--actor", "act-bo", "--action", "change", "--branch", "main")
    assert denied.code == 0
    assert denied.out == (
        "decision: deny\nactor: act-bo\naction: change\nbranch: main\n"
        "message: policy denied action 'change' on branch 'main' for actor 'act-bo'\n"
    )
    words = ("--actor", "act-ana", "--action", "branch_merge", "--branch", "x", "--target-branch", "main", "--json")
    allowed = json.loads(call("policy", "explain", "--file", policy, *words).out)
    assert allowed["decision"] == "allow"
    assert allowed["matched_rule_id"] == "promote"
    stored = ("policy", "explain", "--file", policy, "--actor", "act-bo", "--action", "invoke_query", "--query")
    assert "decision: allow" in call(*stored, "weekly").out
    assert "decision: deny" in call(*stored, "other").out
    unknown = call("policy", "explain", "--file", policy, "--actor", "a", "--action", "write")
    assert unknown.code == 1
    assert "unknown action 'write'" in unknown.err
