"""The small names that everything else is keyed by.

Plain strings and integers at run time; the aliases tell a reader which of the many strings is meant. Nothing here
reads or writes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from datetime import datetime
from random import SystemRandom
from typing import NewType, Protocol, TypeAlias

from ulid import ULID

from omnigraph.errors import BranchNotFoundError, InputError

BranchName = NewType("BranchName", str)
CommitId = NewType("CommitId", str)
OperationId = NewType("OperationId", str)
TableKey = NewType("TableKey", str)


class NamesCommit(Protocol):
    """What stands for a commit: one of the history, or a tag."""

    @property
    def graph_commit_id(self) -> CommitId:
        """The commit."""
        ...


Moment: TypeAlias = str | int | datetime | NamesCommit
"""A moment of the past as people name it: a commit or its id, a tag, a time, a snapshot id or a version."""


def spelled(at: Moment) -> str | int | datetime:
    """A moment without objects that stand for a commit, which become its id."""
    return at if isinstance(at, str | int | datetime) else at.graph_commit_id


MAIN = BranchName("main")
SCHEMA_LOCK_BRANCH = BranchName("__schema_apply_lock__")
RESERVED_ACTOR_PREFIX = "omnigraph:"
RECOVERY_ACTOR = "omnigraph:recovery"
REPAIR_ACTOR = "omnigraph:repair"
FORCED_REPAIR_ACTOR = "omnigraph:repair:force"
MESSAGE_BYTES_MAX = 4_096
"""How long the message of a commit may be: a publish writes those of the newest commits anew."""

_RANDOM = SystemRandom()
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+\Z")


def new_ulid() -> str:
    """A fresh 26-character ULID; lexical order is age order to the millisecond."""
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


BRANCH_LENGTH_MAX = 200
"""Names of branches and tags are parts of file names, '/' percent-encoded, and those end at 255 bytes."""


def parse_branch(name: str) -> BranchName:
    """Check a branch name a user gave and return it trimmed.

    Raises:
        InputError: the name is empty, internal, too long, or has characters or segments that are not allowed.
    """
    trimmed = name.strip()
    if not trimmed:
        raise InputError("a branch name must not be empty")
    if len(trimmed) + 2 * trimmed.count("/") > BRANCH_LENGTH_MAX:
        raise InputError(
            f"'{trimmed[:40]}…' is not a branch name: it has {len(trimmed)} characters, and at most"
            f" {BRANCH_LENGTH_MAX} are allowed, a '/' counting as three"
        )
    if trimmed == SCHEMA_LOCK_BRANCH:
        raise InputError(f"'{trimmed}' is an internal branch and cannot be addressed")
    for segment in trimmed.split("/"):
        if not segment or not _SEGMENT.match(segment) or ".." in segment or segment.endswith(".lock"):
            raise InputError(
                f"'{trimmed}' is not a branch name: use letters, digits, '.', '-', '_' in segments separated by"
                " single '/', without '..' and without a '.lock' ending"
            )
    return BranchName(trimmed)


def demand_base(branches: Collection[str], base: str) -> None:
    """Refuse a base that does not exist, also where nothing is made from it: it is misspelt.

    Raises:
        BranchNotFoundError: it is none of the branches.
    """
    if parse_branch(base) not in branches:
        raise BranchNotFoundError(f"there is no branch '{base}'")


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


def text_fault(text: str) -> str | None:
    """Why a text cannot be stored, or None when it can: every text of a graph is stored as UTF-8.

    >>> text_fault("Zürich"), text_fault("\\ud800")
    (None, 'the text is not valid Unicode: it holds half of a surrogate pair')
    """
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return "the text is not valid Unicode: it holds half of a surrogate pair"
    return None


def storable(text: str) -> str:
    """A text that can be stored for one that cannot: what is no Unicode is spelled as Python escapes it.

    >>> storable("a\\ud800b")
    'a\\\\ud800b'
    """
    return text if text_fault(text) is None else text.encode("utf-8", "backslashreplace").decode()


def check_text(text: str, what: str) -> str:
    """A text that is going to be stored, as it is; `what` names it in the message.

    Raises:
        InputError: it cannot be stored.
    """
    if not isinstance(text, str):
        raise InputError(f"{what} is a text, not {type(text).__name__}")
    fault = text_fault(text)
    if fault is not None:
        raise InputError(f"{what} cannot be stored: {fault}")
    return text


def check_actor(actor: str | None) -> str | None:
    """Refuse actors that only the engine itself may use, blank ones, and those that cannot be stored."""
    if actor is None:
        return None
    check_text(actor, "the actor")
    if not actor.strip():
        raise InputError("an actor must not be blank")
    if actor.startswith(RESERVED_ACTOR_PREFIX):
        raise InputError(f"actor '{actor}' is reserved: names starting with '{RESERVED_ACTOR_PREFIX}' are the engine's")
    return actor


def check_message(message: str | None) -> str | None:
    """Refuse messages of commits that say nothing, are too long, or cannot be stored."""
    if message is None:
        return None
    check_text(message, "the message")
    if not message.strip():
        raise InputError("a message must not be blank: leave it out instead")
    size = len(message.encode())
    if size > MESSAGE_BYTES_MAX:
        raise InputError(
            f"a message has at most {MESSAGE_BYTES_MAX} bytes, this one has {size}: keep the rest elsewhere"
        )
    return message
