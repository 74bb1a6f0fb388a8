"""One graph of one server, as requests address it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NoReturn

import httpx
from msgspec.structs import replace

from omnigraph.client.transport import Call, Transport
from omnigraph.errors import ExecutionError, InputError
from omnigraph.ids import Moment, parse_branch, spelled


def only_direct(what: str) -> NoReturn:
    """Refuse what works on storage.

    Raises:
        ExecutionError: always; it says how to do it.
    """
    raise ExecutionError(
        f"{what} works on the storage of a graph, and this one is behind a server: connect to its path, file:// or s3://"
        " URI to do that"
    )


class Connection:
    """A transport and the path of a graph below the server's address, until it is closed."""

    def __init__(self, transport: Transport, path: str, *, read_only: bool = False) -> None:
        self._transport, self._path, self.read_only = transport, path, read_only
        self._closed = False

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return f"{self._transport.url}{self._path}"

    @property
    def transport(self) -> Transport:
        """What sends requests.

        Raises:
            ExecutionError: the graph was closed.
        """
        if self._closed:
            raise ExecutionError(f"the graph at '{self.uri}' was closed: connect to it again")
        return self._transport

    def get(self, path: str, **params: Any) -> Any:
        """The body of a read by its address below the graph's."""
        return self.transport.get(self._path + path, **params)

    def post(self, path: str, body: Mapping[str, Any], *, writes: bool = False, **headers: str) -> Any:
        """The body of a request below the graph's address."""
        return self.transport.post(self._path + path, body, writes=writes, **headers)

    def send(self, call: Call) -> httpx.Response:
        """The answer to any other request; its path is below the graph's address."""
        return self.transport.send(replace(call, path=self._path + call.path))

    def stream(self, call: Call) -> AbstractContextManager[httpx.Response]:
        """The answer to a request, its body still to be read."""
        return self.transport.stream(replace(call, path=self._path + call.path))

    def writing(self, actor: str | None) -> None:
        """Make sure that a write may be sent.

        Raises:
            InputError: it names an actor, or this handle is read-only.
        """
        if actor is not None:
            raise InputError("the actor of a write through a server is the one its token belongs to: leave actor out")
        if self.read_only:
            raise InputError(
                f"the graph at '{self.uri}' was opened read-only; connect to it without read_only to write"
            )

    @property
    def closed(self) -> bool:
        """True when it may no longer be used."""
        return self._closed

    def close(self) -> None:
        """Give the connections back."""
        self._closed = True
        self._transport.close()


def state_of(branch: str, at: Moment | None) -> dict[str, Any]:
    """Which state a read sees, as requests name it; a bare version is one of its branch."""
    moment = moment_of(branch, at)
    return {"branch": parse_branch(branch)} if moment is None else {"snapshot": moment}


def moment_of(branch: str, at: Moment | None) -> str | None:
    """A moment of a branch, as requests spell it."""
    name = parse_branch(branch)
    if at is None:
        return None
    at = spelled(at)
    if isinstance(at, datetime):
        return at.isoformat()
    return f"manifest:{name}:v{at}" if isinstance(at, int) or at.isdecimal() else at


def state_name(state: Moment) -> str:
    """A branch or a moment of the past of main, as requests spell it."""
    named = spelled(state)
    return named.isoformat() if isinstance(named, datetime) else str(named)
