"""Who may write: asked at the head of every write that is attributed to an actor.

The engine knows no policy; it knows something that answers. Without it every write is let through, because whoever
holds the storage is trusted; with it a write that names no actor is refused, because nobody could have allowed it.
"""

from __future__ import annotations

from typing import Protocol

from omnigraph.errors import PolicyError


class Answer(Protocol):
    """Whether something is allowed, and the sentence for people."""

    @property
    def allowed(self) -> bool:
        """True when it is."""

    @property
    def message(self) -> str:
        """What was decided, about whom."""


class WriteGate(Protocol):
    """Decides who may do what; `omnigraph.policy.Policy` is one."""

    def check(
        self, actor: str | None, action: str, branch: str | None = None, target_branch: str | None = None
    ) -> Answer:
        """Decide one request."""


def admit(
    gate: WriteGate | None,
    action: str,
    actor: str | None,
    *,
    branch: str | None = None,
    target_branch: str | None = None,
) -> None:
    """Let a write pass, or refuse it before it has looked at anything.

    Raises:
        PolicyError: the gate denies it, or it names no actor.
    """
    if gate is None:
        return
    if actor is None:
        raise PolicyError(f"this graph has a policy and '{action}' names no actor: pass one, nothing was written")
    answer = gate.check(actor, action, branch, target_branch)
    if not answer.allowed:
        raise PolicyError(answer.message)
