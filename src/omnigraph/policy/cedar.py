"""Rules as Cedar policies and entities.

One rule becomes one `permit` per action, annotated with `<rule id>:<action>`. Texts of the file become Cedar string
literals through `literal`, and texts of a request enter as data, so neither can be read as policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from omnigraph.policy.rules import SERVER_ACTIONS, Rule, Rules

NAMESPACE = "Omnigraph"
SERVER = "root"
"""The id of the one resource that server actions act on."""

SCHEMA = f"""
namespace {NAMESPACE} {{
  entity Group;
  entity Actor in [Group];
  entity Graph;
  entity Server;
  type Asked = {{
    has_branch: Bool, branch: String, branch_is_protected: Bool,
    has_target_branch: Bool, target_branch: String, target_branch_is_protected: Bool,
    has_query: Bool, query: String,
  }};
  action "read", "export", "change", "schema_apply", "branch_create", "branch_delete", "branch_merge", "invoke_query",
    "admin" appliesTo {{ principal: [Actor], resource: [Graph], context: Asked }};
  action "graph_list" appliesTo {{ principal: [Actor], resource: [Server], context: Asked }};
}}
"""
"""What a request may look like; every policy this module makes is valid by it."""

_CONDITIONS = {
    "protected": "context.has_{0} && context.{0}_is_protected",
    "unprotected": "context.has_{0} && !context.{0}_is_protected",
}


def policies(rules: Rules) -> str:
    """Every rule as Cedar text."""
    return "\n".join(permit for rule in rules.rules for permit in _permits(rule))


def entities(rules: Rules) -> str:
    """The groups, and each actor in its groups, as Cedar has them in JSON."""
    groups = [{"uid": _uid("Group", name), "attrs": {}, "parents": []} for name in rules.groups]
    actors = [
        {
            "uid": _uid("Actor", actor),
            "attrs": {},
            "parents": [_uid("Group", name) for name, members in rules.groups.items() if actor in members],
        }
        for actor in sorted(rules.actors)
    ]
    return json.dumps([*groups, *actors])


def _uid(kind: str, name: str) -> dict[str, str]:
    return {"type": f"{NAMESPACE}::{kind}", "id": name}


def _permits(rule: Rule) -> Iterator[str]:
    for action in rule.actions:
        resource = (
            f"== {NAMESPACE}::Server::{literal(SERVER)}" if action in SERVER_ACTIONS else f"is {NAMESPACE}::Graph"
        )
        conditions = [f"when {{ {condition} }}" for condition in _conditions(rule)]
        yield (
            f"@id({literal(f'{rule.id}:{action}')})\n"
            f"permit (principal in {NAMESPACE}::Group::{literal(rule.group)},"
            f" action == {NAMESPACE}::Action::{literal(action)}, resource {resource})"
            f"{''.join(f' {condition}' for condition in conditions)};"
        )


def _conditions(rule: Rule) -> Iterator[str]:
    for subject, scope in (("branch", rule.branch_scope), ("target_branch", rule.target_branch_scope)):
        if scope in _CONDITIONS:
            yield _CONDITIONS[scope].format(subject)
    if rule.queries is not None:
        yield f"context.has_query && [{', '.join(literal(name) for name in rule.queries)}].contains(context.query)"


def literal(text: str) -> str:
    r"""A text as a Cedar string; whatever is not a plain letter, digit or sign is written by its number.

    >>> literal('team "a"')
    '"team \\u{22}a\\u{22}"'
    """
    plain = (c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\u{{{ord(c):x}}}" for c in text)
    return f'"{"".join(plain)}"'
