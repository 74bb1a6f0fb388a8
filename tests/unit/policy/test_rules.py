"""What a policy file may say, and the sentence for everything else."""

import pytest

from omnigraph.errors import InputError
from omnigraph.policy import Policy, parse_rules

VALID = """
version: 1
groups: { admins: [act-ana], team: [act-ana, act-bo] }
protected_branches: [main]
rules:
  - id: team-read
    allow: { actors: { group: team }, actions: [read, export], branch_scope: any }
  - id: team-write-drafts
    allow: { actors: { group: team }, actions: [change], branch_scope: unprotected }
  - id: admins-promote
    allow: { actors: { group: admins }, actions: [branch_merge, schema_apply], target_branch_scope: protected }
  - id: team-stored-queries
    allow: { actors: { group: team }, actions: [invoke_query] }
"""


def one_rule(allow: str, head: str = "") -> str:
    return f"version: 1\n{head}\ngroups: {{team: [a]}}\nrules:\n  - id: r\n    allow: {{{allow}}}\n"


def test_the_file_of_the_guide_is_read_whole() -> None:
    rules = parse_rules(VALID)
    assert rules.actors == {"act-ana", "act-bo"}
    assert rules.protected_branches == {"main"}
    assert [rule.id for rule in rules.rules] == [
        "team-read",
        "team-write-drafts",
        "admins-promote",
        "team-stored-queries",
    ]
    assert rules.rules[2].target_branch_scope == "protected"
    assert rules.kind is None


@pytest.mark.parametrize("kind", ["server", "graph"])
def test_a_file_may_name_its_kind_and_is_held_to_it(kind: str) -> None:
    action = {"server": "graph_list", "graph": "read"}
    text = one_rule(f"actors: {{group: team}}, actions: [{action[kind]}]", f"kind: {kind}")
    assert parse_rules(text).kind == kind
    assert parse_rules(text, kind=kind).kind == kind
    other = "graph" if kind == "server" else "server"
    with pytest.raises(InputError, match=f"this is a policy of kind {kind}, and one of kind {other} is needed"):
        parse_rules(text, kind=other)
    wrong = one_rule(f"actors: {{group: team}}, actions: [{action[other]}]", f"kind: {kind}")
    with pytest.raises(InputError, match=f"the {other} action '{action[other]}' in a policy of kind {kind}"):
        parse_rules(wrong)


def test_a_file_without_a_kind_serves_one_graph_and_its_server() -> None:
    both = VALID + "  - id: list\n    allow: { actors: { group: team }, actions: [graph_list] }\n"
    policy = Policy.parse(both)
    assert policy.check("act-bo", "graph_list").allowed
    assert policy.check("act-bo", "read", "main").allowed
    assert Policy.parse(both, kind="graph").check("act-bo", "graph_list").allowed
    with pytest.raises(InputError, match="the graph action 'read' in a policy of kind server"):
        Policy.parse(both, kind="server")


TEAM = "actors: {group: team}"
REFUSED = {
    "not yaml": ("version: [", "is not valid YAML"),
    "unhashable key": ("? [a]\n: 1\n", "is not valid YAML"),
    "not a mapping": ("- 1", "the document must be key and value pairs"),
    "empty": ("", "the document must be key and value pairs"),
    "no version": ("groups: {}", "version must be 1, not None"),
    "version 2": ("version: 2", "version must be 1, not 2"),
    "version true": ("version: true", "version must be 1, not True"),
    "version as text": ("version: '1'", "version must be 1, not '1'"),
    "unknown field": ("version: 1\nrule: []", "unknown field 'rule'"),
    "a key twice": ("version: 1\ngroups: {}\ngroups: {}", "the key 'groups' stands twice"),
    "a key twice below": (one_rule(f"{TEAM}, actions: [read], actions: [change]"), "the key 'actions' stands twice"),
    "unknown kind": ("version: 1\nkind: cluster", "kind must be server or graph, not 'cluster'"),
    "kind of another type": ("version: 1\nkind: [graph]", "kind must be server or graph"),
    "groups as list": ("version: 1\ngroups: [a]", "groups must map each group"),
    "blank group": ("version: 1\ngroups: {' ': [a]}", "the name of a group is blank"),
    "number as group": ("version: 1\ngroups: {1: [a]}", "the name of a group must be a text, not 1: put it in quotes"),
    "empty group": ("version: 1\ngroups: {team: []}", "group 'team' is empty: name at least one actor"),
    "null group": ("version: 1\ngroups: {team: }", "group 'team' must be a list"),
    "text for actors": ("version: 1\ngroups: {team: act-ana}", "group 'team' must be a list"),
    "blank actor": ("version: 1\ngroups: {team: ['']}", "each actor of group 'team' is blank"),
    "number as actor": ("version: 1\ngroups: {team: [7]}", "each actor of group 'team' must be a text, not 7"),
    "half a character": ('version: 1\ngroups: {team: ["\\ud800"]}', "not valid Unicode|is not valid YAML"),
    "blank branch": ("version: 1\nprotected_branches: ['  ']", "each branch of protected_branches is blank"),
    "branches as text": ("version: 1\nprotected_branches: main", "protected_branches must be a list"),
    "rules as mapping": ("version: 1\nrules: {a: 1}", "rules must be a list"),
    "rule as text": ("version: 1\nrules: [a]", "rule 1 must be key and value pairs"),
    "no rule id": ("version: 1\nrules: [{allow: {}}]", "the id of rule 1 must be a text"),
    "blank rule id": ("version: 1\nrules: [{id: ' '}]", "the id of rule 1 is blank"),
    "deny": ("version: 1\nrules: [{id: r, deny: {}}]", "unknown field 'deny'"),
    "no allow": ("version: 1\nrules: [{id: r}]", "allow of rule 'r' must be key and value pairs"),
    "rule id twice": (
        one_rule(f"{TEAM}, actions: [read]") + f"  - {{id: r, allow: {{{TEAM}, actions: [change]}}}}\n",
        "two rules have the id 'r'",
    ),
    "unknown group": (
        one_rule("actors: {group: others}, actions: [read]"),
        r"rule 'r' names the unknown group 'others' \(groups: team\)",
    ),
    "no actors": (one_rule("actions: [read]"), "actors of rule 'r' must be key and value pairs"),
    "single actor": (one_rule("actors: {actor: a}, actions: [read]"), "unknown field 'actor'"),
    "no actions": (one_rule(TEAM), "actions of rule 'r' must be a list"),
    "empty actions": (one_rule(f"{TEAM}, actions: []"), "actions of rule 'r' is empty: name at least one action"),
    "unknown action": (one_rule(f"{TEAM}, actions: [write]"), "unknown action 'write'"),
    "both scopes": (
        one_rule(f"{TEAM}, actions: [read], branch_scope: any, target_branch_scope: any"),
        "rule 'r' has both branch_scope and target_branch_scope: keep one",
    ),
    "both kinds of action": (one_rule(f"{TEAM}, actions: [read, graph_list]"), "mixes the server action 'graph_list'"),
    "branch scope on a target action": (
        one_rule(f"{TEAM}, actions: [branch_merge], branch_scope: any"),
        "branch_scope, which the action 'branch_merge' does not take",
    ),
    "target scope on a branch action": (
        one_rule(f"{TEAM}, actions: [change], target_branch_scope: any"),
        "target_branch_scope, which the action 'change' does not take",
    ),
    "scope on invoke_query": (one_rule(f"{TEAM}, actions: [invoke_query], branch_scope: any"), "does not take"),
    "scope on admin": (one_rule(f"{TEAM}, actions: [admin], target_branch_scope: any"), "does not take"),
    "scope on graph_list": (one_rule(f"{TEAM}, actions: [graph_list], branch_scope: any"), "does not take"),
    "unknown scope": (
        one_rule(f"{TEAM}, actions: [read], branch_scope: mine"),
        "must be any, protected or unprotected",
    ),
    "null scope": (one_rule(f"{TEAM}, actions: [read], branch_scope: "), "must be any, protected or unprotected"),
    "queries on read": (one_rule(f"{TEAM}, actions: [invoke_query, read], queries: [a]"), "has queries, which"),
    "no queries": (one_rule(f"{TEAM}, actions: [invoke_query], queries: []"), "is empty: name at least one query"),
    "null queries": (one_rule(f"{TEAM}, actions: [invoke_query], queries: "), "queries of rule 'r' must be a list"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_everything_else_is_refused_with_its_place(case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        parse_rules(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path) -> None:
    with pytest.raises(InputError, match=r"cannot read the policy .*no such file"):
        Policy.read(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        Policy.read(tmp_path / "bad.yaml")
    (tmp_path / "p.yaml").write_text("version: 3")
    with pytest.raises(InputError, match=r"the policy '.*p.yaml': version must be 1"):
        Policy.read(tmp_path / "p.yaml")
