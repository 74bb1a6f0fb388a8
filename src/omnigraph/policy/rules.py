"""The file of a policy: groups of actors, protected branches, and rules that allow.

`parse_rules` turns the text into frozen records and refuses everything it does not know, because a key that is
misspelt and ignored would widen what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from msgspec import Struct

from omnigraph.boundary import text
from omnigraph.errors import InputError

VERSION = 1

BRANCH_ACTIONS = frozenset({"read", "export", "change"})
TARGET_ACTIONS = frozenset({"schema_apply", "branch_create", "branch_delete", "branch_merge"})
PLAIN_ACTIONS = frozenset({"invoke_query", "admin"})
GRAPH_ACTIONS = BRANCH_ACTIONS | TARGET_ACTIONS | PLAIN_ACTIONS
"""What is done to one graph; the first kind is scoped by its branch, the second by its target branch."""
SERVER_ACTIONS = frozenset({"graph_list"})
"""What is done to a server as a whole."""
ACTIONS = GRAPH_ACTIONS | SERVER_ACTIONS
SCOPES = ("any", "protected", "unprotected")
KINDS = {"graph": GRAPH_ACTIONS, "server": SERVER_ACTIONS}

_SCOPED = {"branch_scope": BRANCH_ACTIONS, "target_branch_scope": TARGET_ACTIONS}
_FIELDS = {
    "the document": ("version", "kind", "groups", "protected_branches", "rules"),
    "rule": ("id", "allow"),
    "allow": ("actors", "actions", "branch_scope", "target_branch_scope", "queries"),
    "actors": ("group",),
}


class Rule(Struct, frozen=True):
    """One rule: a group may do these actions, on branches of this scope, or by these stored queries.

    A scope of None and a scope of `any` mean the same. `queries` of None means every stored query.
    """

    id: str
    group: str
    actions: tuple[str, ...]
    branch_scope: str | None = None
    target_branch_scope: str | None = None
    queries: tuple[str, ...] | None = None


class Rules(Struct, frozen=True):
    """A checked policy file. `kind` is `graph`, `server`, or None for a file that may hold rules of both kinds."""

    groups: Mapping[str, tuple[str, ...]]
    protected_branches: frozenset[str]
    rules: tuple[Rule, ...]
    kind: str | None = None

    @property
    def actors(self) -> frozenset[str]:
        """Everybody who is in some group."""
        return frozenset(actor for members in self.groups.values() for actor in members)


def parse_rules(source: str, *, origin: str = "policy", kind: str | None = None) -> Rules:
    """Check the text of a policy file; `origin` names it in messages, `kind` is what it is going to be used for.

    Raises:
        InputError: the text is not YAML, or not a valid policy; the message names the place and the remedy.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"the kind of a policy is graph or server, not '{kind}'")
    return _Reader(origin).rules(load_yaml(source, origin), kind)


def load_yaml(source: str, origin: str) -> Any:
    """The document of a YAML text; a key that stands twice in one mapping is refused.

    Raises:
        InputError: it is not YAML.
    """

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Refuses a key given twice, of which YAML would silently keep the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGE_KEY]
            for position, key in enumerate(keys):
                if key in keys[:position]:
                    line = node.start_mark.line + 1
                    raise InputError(
                        f"{origin}: the key '{key}' stands twice in the mapping that begins in line {line}"
                    )
            return super().construct_mapping(node, deep=deep)

    try:
        return yaml.load(source, Loader)
    except yaml.YAMLError as exc:
        raise InputError(f"{origin} is not valid YAML: {' '.join(str(exc).split())}") from exc
    except InputError:
        raise
    except (RecursionError, ValueError, TypeError) as exc:
        # A key that cannot be hashed, a date out of range, or nesting without end.
        raise InputError(f"{origin} is not valid YAML: {exc}") from exc


_MERGE_KEY = "tag:yaml.org,2002:merge"


class _Reader:
    """Reads one document; every refusal begins with where it comes from."""

    def __init__(self, origin: str) -> None:
        self._origin = origin

    def rules(self, document: Any, kind: str | None) -> Rules:
        root = self._mapping(document, "the document", "the document")
        version = root.get("version")
        if type(version) is not int or version != VERSION:
            raise self._refusal(f"version must be {VERSION}, not {version!r}")
        kind = self._kind(root, kind)
        groups = self._groups(root.get("groups"))
        protected = frozenset(self._texts(root.get("protected_branches"), "protected_branches", "branch", empty=True))
        listed = root.get("rules")
        if listed is None:
            listed = []
        if not isinstance(listed, list):
            raise self._refusal("rules must be a list")
        rules = tuple(self._rule(item, number, groups, kind) for number, item in enumerate(listed, start=1))
        seen: set[str] = set()
        for rule in rules:
            if rule.id in seen:
                raise self._refusal(f"two rules have the id '{rule.id}': give each its own")
            seen.add(rule.id)
        return Rules(groups, protected, rules, kind)

    def _kind(self, root: Mapping[str, Any], wanted: str | None) -> str | None:
        if "kind" not in root:
            # One file may do for a graph and for the server it is on.
            return None if wanted == "graph" else wanted
        kind = root["kind"]
        if not isinstance(kind, str) or kind not in KINDS:
            raise self._refusal(f"kind must be server or graph, not {kind!r}")
        if wanted is not None and kind != wanted:
            raise self._refusal(f"this is a policy of kind {kind}, and one of kind {wanted} is needed here")
        return kind

    def _groups(self, value: Any) -> dict[str, tuple[str, ...]]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._refusal("groups must map each group to its list of actors")
        groups = {}
        for name, members in value.items():
            self._text(name, "the name of a group")
            groups[name] = self._texts(members, f"group '{name}'", "actor")
        return groups

    def _rule(self, value: Any, number: int, groups: Mapping[str, Any], kind: str | None) -> Rule:
        found = self._mapping(value, f"rule {number}", "rule")
        name = self._text(found.get("id"), f"the id of rule {number}")
        place = f"rule '{name}'"
        allow = self._mapping(found.get("allow"), f"allow of {place}", "allow")
        group = self._text(
            self._mapping(allow.get("actors"), f"actors of {place}", "actors").get("group"), f"the group of {place}"
        )
        if group not in groups:
            known = ", ".join(sorted(groups)) or "none is defined"
            raise self._refusal(f"{place} names the unknown group '{group}' (groups: {known})")
        actions = self._actions(allow.get("actions"), place, kind)
        if all(key in allow for key in _SCOPED):
            raise self._refusal(f"{place} has both branch_scope and target_branch_scope: keep one")
        scopes = {key: self._scope(allow, key, actions, place) for key in _SCOPED}
        return Rule(name, group, actions, queries=self._queries(allow, actions, place), **scopes)

    def _actions(self, value: Any, place: str, kind: str | None) -> tuple[str, ...]:
        actions = tuple(dict.fromkeys(self._texts(value, f"actions of {place}", "action")))
        for action in actions:
            if action not in ACTIONS:
                raise self._refusal(
                    f"{place} has the unknown action '{action}' (actions: {', '.join(sorted(ACTIONS))})"
                )
        server = [action for action in actions if action in SERVER_ACTIONS]
        if server and len(server) < len(actions):
            raise self._refusal(f"{place} mixes the server action '{server[0]}' with graph actions: make two rules")
        if kind is not None:
            wrong = next((action for action in actions if action not in KINDS[kind]), None)
            if wrong is not None:
                other = "server" if kind == "graph" else "graph"
                raise self._refusal(f"{place} has the {other} action '{wrong}' in a policy of kind {kind}")
        return actions

    def _scope(self, allow: Mapping[str, Any], key: str, actions: Iterable[str], place: str) -> str | None:
        if key not in allow:
            return None
        scope = allow[key]
        if not isinstance(scope, str) or scope not in SCOPES:
            raise self._refusal(f"{key} of {place} must be {', '.join(SCOPES[:-1])} or {SCOPES[-1]}, not {scope!r}")
        wrong = next((action for action in actions if action not in _SCOPED[key]), None)
        if wrong is not None:
            raise self._refusal(f"{place} has {key}, which the action '{wrong}' does not take: make two rules")
        return scope

    def _queries(self, allow: Mapping[str, Any], actions: Iterable[str], place: str) -> tuple[str, ...] | None:
        if "queries" not in allow:
            return None
        wrong = next((action for action in actions if action != "invoke_query"), None)
        if wrong is not None:
            raise self._refusal(f"{place} has queries, which the action '{wrong}' does not take: make two rules")
        return self._texts(allow["queries"], f"queries of {place}", "query")

    def _mapping(self, value: Any, place: str, fields: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._refusal(f"{place} must be key and value pairs")
        for key in value:
            if key not in _FIELDS[fields]:
                raise self._refusal(f"{place} has the unknown field '{key}' (fields: {', '.join(_FIELDS[fields])})")
        return value

    def _texts(self, value: Any, place: str, noun: str, *, empty: bool = False) -> tuple[str, ...]:
        if value is None and empty:
            return ()
        if not isinstance(value, list):
            raise self._refusal(f"{place} must be a list")
        if not value and not empty:
            raise self._refusal(f"{place} is empty: name at least one {noun}")
        return tuple(self._text(item, f"each {noun} of {place}") for item in value)

    def _text(self, value: Any, place: str) -> str:
        if not isinstance(value, str):
            raise self._refusal(f"{place} must be a text, not {value!r}: put it in quotes")
        if not value.strip():
            raise self._refusal(f"{place} is blank")
        if not value.isascii():
            text(place, value)
        return value

    def _refusal(self, reason: str) -> InputError:
        return InputError(f"{self._origin}: {reason}", code="policy")
