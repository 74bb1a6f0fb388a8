"""Who is asking: bearer tokens, kept as digests, and where they come from.

A token is hashed the moment it is read and the plain text is dropped. A presented token is compared with every digest
there is, each in constant time, so that neither the answer nor its delay tells how close a guess was.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from omnigraph.errors import InputError
from omnigraph.ids import check_actor

SECRET = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"
FILE = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
JSON = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
SINGLE = "OMNIGRAPH_SERVER_BEARER_TOKEN"
DEFAULT_ACTOR = "default"


class Tokens(Struct, frozen=True):
    """The digests of all tokens with their actors; falsy when there are none."""

    digests: tuple[tuple[bytes, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.digests)

    @classmethod
    def of(cls, by_actor: Mapping[str, str]) -> Tokens:
        """Hash the token of each actor."""
        return cls(tuple((digest(token), actor) for actor, token in sorted(by_actor.items())))

    def actor_of(self, token: str) -> str | None:
        """The actor a token belongs to; the whole list is walked whatever is found."""
        presented = digest(token)
        found = None
        for stored, actor in self.digests:
            if hmac.compare_digest(stored, presented):
                found = actor
        return found


def digest(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_tokens(variables: Mapping[str, str]) -> Tokens:
    """The tokens an operator configured, from the first source that is set, and the one of the actor `default`.

    Raises:
        InputError: a source cannot be read, or an actor or token is blank or occurs twice.
    """
    if variables.get(SECRET, "").strip():
        return Tokens.of(_checked(_pairs(_aws_secret(variables[SECRET].strip()), SECRET)))
    pairs: list[tuple[str, Any]] = []
    if variables.get(FILE, "").strip():
        path = variables[FILE].strip()
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise InputError(f"the tokens of {FILE}='{path}' cannot be read: {exc}") from exc
        pairs += _pairs(text, FILE)
    elif variables.get(JSON, "").strip():
        pairs += _pairs(variables[JSON], JSON)
    if SINGLE in variables:
        pairs.append((DEFAULT_ACTOR, variables[SINGLE]))
    return Tokens.of(_checked(pairs))


def _pairs(text: str, source: str) -> list[tuple[str, Any]]:
    """Actors and tokens as written, so that one written twice is seen."""
    try:
        found = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as exc:
        raise InputError(f"{source} is not JSON: write an object from actors to tokens") from exc
    if not isinstance(found, tuple):
        raise InputError(f"{source} must be a JSON object from actors to tokens")
    return list(found)


def _checked(pairs: list[tuple[str, Any]]) -> dict[str, str]:
    by_actor: dict[str, str] = {}
    for actor, token in pairs:
        if not isinstance(token, str) or not token.strip():
            raise InputError(f"the token of actor '{actor}' is blank: give it one, or remove the actor")
        if not token.strip().isascii() or not token.strip().isprintable():
            raise InputError(f"the token of actor '{actor}' cannot be sent: use printable ASCII characters")
        check_actor(actor)
        if actor in by_actor:
            raise InputError(f"actor '{actor}' has two tokens: keep one")
        if token.strip() in by_actor.values():
            raise InputError(f"actor '{actor}' has the token of another actor: give each its own")
        by_actor[actor] = token.strip()
    return by_actor


def _aws_secret(secret: str) -> str:
    """The text of a secret, through the command line tool of AWS, which finds its credentials by itself."""
    command = ["aws", "secretsmanager", "get-secret-value", "--secret-id", secret, "--query", "SecretString"]
    try:
        done = subprocess.run([*command, "--output", "text"], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as exc:
        raise InputError(f"{SECRET} needs the program 'aws', which is not installed here") from exc
    except subprocess.TimeoutExpired as exc:
        raise InputError(f"{SECRET}: the secret '{secret}' did not arrive within a minute") from exc
    if done.returncode:
        raise InputError(f"{SECRET}: the secret '{secret}' cannot be read: {done.stderr.strip()[:500]}")
    return done.stdout
