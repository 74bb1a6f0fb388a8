"""A policy, compiled once and asked often."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from omnigraph.boundary import optional, text
from omnigraph.errors import InputError, InternalError
from omnigraph.policy import cedar
from omnigraph.policy.rules import ACTIONS, SERVER_ACTIONS, Rules, parse_rules

DEFAULT_GRAPH = "default"


@dataclass(frozen=True)
class Decision:
    """What a policy says to one request. `matched_rule_id` is the smallest of the rules that allow it."""

    allowed: bool
    matched_rule_id: str | None
    message: str


class Policy:
    """The rules of one graph or one server. It never changes, and threads may share it."""

    def __init__(self, rules: Rules, *, graph: str = DEFAULT_GRAPH) -> None:
        import cedarpy

        self.rules = rules
        self._graph = graph
        self._actors = rules.actors
        self._ask = cedarpy.is_authorized
        self._policies = cedarpy.PolicySet.from_str(cedar.policies(rules))
        self._entities = cedarpy.Entities.from_json_str(cedar.entities(rules))

    @classmethod
    def parse(
        cls, source: str, *, graph: str = DEFAULT_GRAPH, kind: str | None = None, origin: str = "policy"
    ) -> Policy:
        """Compile the text of a policy file; `kind` is what it is going to be used for, `graph` or `server`.

        Raises:
            InputError: it is not a valid policy.
        """
        return cls(parse_rules(source, origin=origin, kind=kind), graph=graph)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, graph: str = DEFAULT_GRAPH, kind: str | None = None) -> Policy:
        """Compile a policy file.

        Raises:
            InputError: it cannot be read, or is not a valid policy.
        """
        return cls.parse(read_file(path, what="policy"), graph=graph, kind=kind, origin=f"the policy '{path}'")

    def check(
        self,
        actor: str | None,
        action: str,
        branch: str | None = None,
        target_branch: str | None = None,
        query: str | None = None,
    ) -> Decision:
        """Decide whether an actor may do this; `query` names the stored query that is invoked.

        Raises:
            InputError: there is no such action.
            InternalError: the policy could not be evaluated; nothing may be allowed then.
        """
        for name, value in (("actor", actor), ("branch", branch), ("target_branch", target_branch), ("query", query)):
            optional(text)(name, value)
        if action not in ACTIONS:
            raise InputError(f"unknown action '{action}' (actions: {', '.join(sorted(ACTIONS))})")
        said = f"action '{action}'{_subject(branch, target_branch, query)}"
        if actor is None or actor not in self._actors:
            who = f"for actor '{actor}'" if actor is not None else "without an actor"
            return Decision(False, None, f"policy denied {said} {who}")
        protected = self.rules.protected_branches
        answer = self._ask(
            {
                "principal": {"type": "Omnigraph::Actor", "id": actor},
                "action": {"type": "Omnigraph::Action", "id": action},
                "resource": self._resource(action),
                "context": {
                    "has_branch": branch is not None,
                    "branch": branch or "",
                    "branch_is_protected": branch in protected,
                    "has_target_branch": target_branch is not None,
                    "target_branch": target_branch or "",
                    "target_branch_is_protected": target_branch in protected,
                    "has_query": query is not None,
                    "query": query or "",
                },
            },
            self._policies,
            self._entities,
        )
        if answer.diagnostics.errors:
            raise InternalError(f"the policy could not be evaluated: {'; '.join(map(str, answer.diagnostics.errors))}")
        if not answer.allowed:
            return Decision(False, None, f"policy denied {said} for actor '{actor}'")
        named = answer.diagnostics.id_annotations_by_reason
        rule = min(named[reason].rpartition(":")[0] for reason in answer.diagnostics.reasons)
        return Decision(True, rule, f"rule '{rule}' allows {said} for actor '{actor}'")

    def _resource(self, action: str) -> dict[str, str]:
        if action in SERVER_ACTIONS:
            return {"type": "Omnigraph::Server", "id": cedar.SERVER}
        return {"type": "Omnigraph::Graph", "id": self._graph}


def read_file(path: str | os.PathLike[str], *, what: str) -> str:
    """The text of a file.

    Raises:
        InputError: it cannot be read, or is not text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as exc:
        raise InputError(f"cannot read the {what} '{path}': it is not UTF-8 text") from exc
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise InputError(f"cannot read the {what} '{path}': {reason.lower()}") from exc


def _subject(branch: str | None, target_branch: str | None, query: str | None) -> str:
    return (
        ("" if branch is None else f" on branch '{branch}'")
        + ("" if target_branch is None else f" to target branch '{target_branch}'")
        + ("" if query is None else f" of query '{query}'")
    )
