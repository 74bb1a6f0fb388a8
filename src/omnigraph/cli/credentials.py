"""Tokens of servers: one file of sections that only its owner may read, and which token goes with which request.

A token is sent to its own server and to no other. The file is read and written as bytes, so that what is not touched
stays as it was written.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from omnigraph.errors import InputError

_SECTION = re.compile(rb"^\s*\[([^\]\r\n]*)\]\s*$")
_TOKEN = re.compile(rb"^\s*token\s*[=:]\s*(.*?)\s*$")
BEARER = "OMNIGRAPH_BEARER_TOKEN"
"""The variable of the token for servers that have none of their own."""


def credentials_path(home: Path) -> Path:
    """Where the tokens are kept."""
    return home / "credentials"


def read_token(home: Path, name: str) -> str | None:
    """The token of a server, None when there is none.

    Raises:
        InputError: the file cannot be read, or others can read it.
    """
    section = ""
    for line in _lines(_read(home)):
        found = _SECTION.match(line)
        if found:
            section = found.group(1).strip().decode("utf-8", "replace")
        elif section == name and (token := _TOKEN.match(line)):
            return token.group(1).decode("utf-8", "replace").strip() or None
    return None


def store_token(home: Path, name: str, token: str) -> None:
    """Keep the token of a server; other sections stay as they are.

    Raises:
        InputError: the name or the token cannot be written, or the file is open to others.
    """
    check_name(name)
    if not token.strip() or not token.isascii() or not token.strip().isprintable():
        raise InputError("a token is one line of printable ASCII characters, and not blank")
    rest = _without(_read(home), name)
    if rest and not rest.endswith(b"\n"):
        rest += b"\n"
    _write(home, rest + f"[{name}]\ntoken = {token.strip()}\n".encode())


def remove_token(home: Path, name: str) -> bool:
    """Forget the token of a server; False when there was none."""
    check_name(name)
    before = _read(home)
    after = _without(before, name)
    if after == before:
        return False
    _write(home, after)
    return True


def check_name(name: str) -> None:
    """Refuse what cannot name a server.

    Raises:
        InputError: it is blank, or has characters that the file uses itself.
    """
    if not name.strip() or name != name.strip() or any(mark in name for mark in "[]\r\n") or not name.isprintable():
        raise InputError(f"'{name}' cannot name a server: use letters, digits, '-' and '_'")


def token_for(url: str, servers: Mapping[str, str], environ: Mapping[str, str], home: Path) -> str | None:
    """The token of a request to `url`; `servers` are the configured addresses by name.

    The server with the longest matching address decides: its own variable, else its section of the file. Without one,
    the token for every server counts.
    """
    named = [(len(address.rstrip("/")), name) for name, address in servers.items() if is_below(url, address)]
    if named:
        name = max(named)[1]
        own = environ.get(variable(name), "").strip() or read_token(home, name)
        if own:
            return own
    return environ.get(BEARER, "").strip() or None


def variable(name: str) -> str:
    """The variable of one server's token.

    >>> variable("eu-prod")
    'OMNIGRAPH_TOKEN_EU_PROD'
    """
    return f"OMNIGRAPH_TOKEN_{name.upper().replace('-', '_')}"


def is_below(url: str, address: str) -> bool:
    """Whether a URL lies below a server's address, segment by segment.

    >>> is_below("http://h:80/graphs/x", "http://h:80"), is_below("http://h:80-evil/", "http://h:80")
    (True, False)
    """
    asked, server = urlsplit(url), urlsplit(address)
    if (asked.scheme, asked.netloc.lower()) != (server.scheme, server.netloc.lower()):
        return False
    prefix = server.path.rstrip("/")
    return asked.path.rstrip("/") == prefix or asked.path.startswith(prefix + "/")


def _read(home: Path) -> bytes:
    path = credentials_path(home)
    try:
        mode = path.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(f"others can read the tokens in '{path}': run chmod 600 {path}")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as exc:
        raise InputError(f"cannot read the tokens in '{path}': {(exc.strerror or str(exc)).lower()}") from exc


def _lines(text: bytes) -> list[bytes]:
    return [line.rstrip(b"\r\n") for line in text.splitlines(keepends=True)]


def _without(text: bytes, name: str) -> bytes:
    """The file without one section; every other byte stays."""
    kept: list[bytes] = []
    inside = False
    for line in text.splitlines(keepends=True):
        found = _SECTION.match(line.rstrip(b"\r\n"))
        if found:
            inside = found.group(1).strip().decode("utf-8", "replace") == name
        if not inside:
            kept.append(line)
    return b"".join(kept)


def _write(home: Path, text: bytes) -> None:
    """Replace the file as a whole; it is never open to others, not even for a moment."""
    path = credentials_path(home)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=home, prefix=".credentials-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as exc:
        raise InputError(f"cannot write the tokens to '{path}': {(exc.strerror or str(exc)).lower()}") from exc
