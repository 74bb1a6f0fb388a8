"""Who may do what: the states of a server, and one decision per request.

`open` (no tokens, asked for explicitly) allows all graph data; `default_deny` (tokens, no policy) allows reading only;
`policy` asks the policy. Every decision is logged with its actor, action, branches and rule.
"""

from __future__ import annotations

import logging
from enum import StrEnum

from msgspec import Struct, field

from omnigraph.errors import InputError
from omnigraph.policy import Policy
from omnigraph.server.errors import HttpRefusal
from omnigraph.server.tokens import Tokens

_log = logging.getLogger("omnigraph.server.policy")

READ = "read"
EXPORT = "export"
CHANGE = "change"
SCHEMA_APPLY = "schema_apply"
BRANCH_CREATE = "branch_create"
BRANCH_DELETE = "branch_delete"
BRANCH_MERGE = "branch_merge"
INVOKE_QUERY = "invoke_query"
GRAPH_LIST = "graph_list"


class State(StrEnum):
    """How a server decides."""

    OPEN = "open"
    DEFAULT_DENY = "default_deny"
    POLICY = "policy"


class Access(Struct, frozen=True):
    """The tokens and policies of a server; without rules of its own, those of the graph hold for it too."""

    tokens: Tokens = field(default_factory=Tokens)
    graph_rules: Policy | None = None
    server_rules: Policy | None = None

    @property
    def state(self) -> State:
        """Which of the states the server is in."""
        if self.graph_rules is not None or self.server_rules is not None:
            return State.POLICY
        return State.DEFAULT_DENY if self.tokens else State.OPEN

    def check_boot(self, *, unauthenticated: bool) -> None:
        """Refuse a configuration that would surprise its operator.

        Raises:
            InputError: there are no tokens, and nobody said that this is meant; or a policy has nobody to apply to.
        """
        if self.state is State.POLICY and not self.tokens:
            raise InputError(
                "a policy needs to know who is asking: set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE (a JSON object from"
                " actors to tokens), or leave the policy out"
            )
        if self.state is State.OPEN and not unauthenticated:
            raise InputError(
                "no tokens are configured, so everybody who reaches this server could change the graph: set"
                " OMNIGRAPH_SERVER_BEARER_TOKENS_FILE (a JSON object from actors to tokens), or pass"
                " --unauthenticated if that is meant"
            )

    def authenticate(self, header: str | None) -> str | None:
        """The actor of an `Authorization` header; None where nobody has to say who they are.

        Raises:
            HttpRefusal: 401.
        """
        if not self.tokens:
            return None
        scheme, _, token = (header or "").strip().partition(" ")
        challenge = {"WWW-Authenticate": "Bearer"}
        if scheme.lower() != "bearer" or not token.strip():
            raise HttpRefusal(401, "missing bearer token", headers=challenge)
        actor = self.tokens.actor_of(token.strip())
        if actor is None:
            raise HttpRefusal(401, "invalid bearer token", headers=challenge)
        return actor

    def allows(
        self,
        actor: str | None,
        action: str,
        *,
        branch: str | None = None,
        target: str | None = None,
        query: str | None = None,
    ) -> tuple[bool, str]:
        """Whether a request is allowed, and otherwise why not."""
        if self.state is State.OPEN:
            allowed, why = action != GRAPH_LIST, "listing graphs needs a server with tokens and a server policy"
        elif self.state is State.DEFAULT_DENY:
            allowed, why = (
                action == READ,
                (
                    f"action '{action}' is denied: this server has tokens but no policy, so it only reads;"
                    f" start it with --policy <file> and a rule that allows '{action}'"
                ),
            )
        else:
            of_server = action == GRAPH_LIST and self.server_rules is not None
            rules = self.server_rules if of_server else self.graph_rules
            if rules is None:
                allowed, why = False, f"no policy covers action '{action}'"
            else:
                verdict = rules.check(actor, action, branch=branch, target_branch=target, query=query)
                allowed, why = verdict.allowed, verdict.message
                _log.info(
                    "decision=%s actor=%s action=%s branch=%s target=%s rule=%s",
                    "allow" if allowed else "deny",
                    actor,
                    action,
                    branch,
                    target,
                    verdict.matched_rule_id,
                )
        return allowed, why

    def demand(self, actor: str | None, action: str, *, branch: str | None = None, target: str | None = None) -> None:
        """Let an allowed request go on.

        Raises:
            HttpRefusal: 403.
        """
        allowed, why = self.allows(actor, action, branch=branch, target=target)
        if not allowed:
            raise HttpRefusal(403, why)
