"""The small names that everything else is keyed by.

Plain strings and integers at run time; the aliases tell a reader which of the many strings is meant. Nothing here
reads or writes.
"""

from __future__ import annotations

import re
import time
from random import SystemRandom
from typing import NewType

from omnigraph.errors import InputError

BranchName = NewType("BranchName", str)
CommitId = NewType("CommitId", str)
OperationId = NewType("OperationId", str)
TableKey = NewType("TableKey", str)
TableVersion = NewType("TableVersion", int)

MAIN = BranchName("main")
SCHEMA_LOCK_BRANCH = BranchName("__schema_apply_lock__")
RESERVED_ACTOR_PREFIX = "omnigraph:"
RECOVERY_ACTOR = "omnigraph:recovery"
REPAIR_ACTOR = "omnigraph:repair"
FORCED_REPAIR_ACTOR = "omnigraph:repair:force"

_RANDOM = SystemRandom()
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+\Z")


def new_ulid() -> str:
    """A fresh 26-character ULID; lexical order is age order to the millisecond."""
    # Imported by the first that is made: the package looks up its own version, which takes a reader 40 ms for nothing.
    from ulid import ULID

    return str(ULID())


def new_token() -> str:
    """A fresh random name for what is derived and can be made again; nothing that is stored for good has one."""
    return f"{_RANDOM.getrandbits(104):026x}"


def now_micros() -> int:
    """The wall clock as Unix microseconds, the unit of every stored timestamp."""
    return time.time_ns() // 1_000


def node_key(type_name: str) -> TableKey:
    """The table key of a node type.

    >>> node_key("Person")
    'node:Person'
    """
    return TableKey(f"node:{type_name}")


def edge_key(type_name: str) -> TableKey:
    """The table key of an edge type."""
    return TableKey(f"edge:{type_name}")


def parse_branch(name: str) -> BranchName:
    """Check a branch name a user gave and return it trimmed.

    Raises:
        InputError: the name is empty, internal, or has characters or segments that are not allowed.
    """
    trimmed = name.strip()
    if not trimmed:
        raise InputError("a branch name must not be empty")
    if trimmed == SCHEMA_LOCK_BRANCH:
        raise InputError(f"'{trimmed}' is an internal branch and cannot be addressed")
    for segment in trimmed.split("/"):
        if not segment or not _SEGMENT.match(segment) or ".." in segment or segment.endswith(".lock"):
            raise InputError(
                f"'{trimmed}' is not a branch name: use letters, digits, '.', '-', '_' in segments separated by"
                " single '/', without '..' and without a '.lock' ending"
            )
    return BranchName(trimmed)


def overlaps(one: str, other: str) -> bool:
    """True when two branch names are equal, or one is a folder of the other; such branches would lie in each other.

    >>> overlaps("review", "review/x"), overlaps("review", "reviews")
    (True, False)
    """
    shorter, longer = sorted((one, other), key=len)
    return f"{longer}/".startswith(f"{shorter}/")


def stored_branch(name: BranchName | str) -> str | None:
    """The form a branch has on disk and in Lance, where main is null."""
    return None if name == MAIN else str(name)


def check_actor(actor: str | None) -> str | None:
    """Refuse actors that only the engine itself may use, and blank ones."""
    if actor is None:
        return None
    if not actor.strip():
        raise InputError("an actor must not be blank")
    if actor.startswith(RESERVED_ACTOR_PREFIX):
        raise InputError(f"actor '{actor}' is reserved: names starting with '{RESERVED_ACTOR_PREFIX}' are the engine's")
    return actor
