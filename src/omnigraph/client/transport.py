"""Requests to a server: sent, repeated where that is safe, and their failures raised as the engine's own.

A read may be sent again whenever its answer did not arrive. A write carries an idempotency key made here, so that it
may be sent again as well: the server answers the second time with what the first one did. A body that can be read only
once is not sent twice; when its answer is lost, the outcome is unknown and the caller is told so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
from msgspec import Struct, field

from omnigraph.errors import GraphError, InputError, OutcomeUnknownError, RecoveryRequiredError, UnavailableError
from omnigraph.ids import new_ulid
from omnigraph.wire_errors import error_from

CONNECT_SECONDS = 10.0
TIMEOUT_SECONDS = 300.0
"""How long a server may be silent while it works on one request."""
RETRY_SECONDS = 30.0
"""How long all the waiting between the attempts of one call may take."""
PAUSE_SECONDS = 0.2
ATTEMPTS_MAX = 6
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
DEFAULT_GRAPH = "default"
"""The id under which a server serves a single store."""

_REPEATED = (429, 502, 503, 504)


class Call(Struct, frozen=True):
    """One request. `content` makes the body anew for each attempt; `once` says that it cannot.

    `blob` says that the answer is bytes, or the place where they are.
    """

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    content: Callable[[], Iterable[bytes]] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    writes: bool = False
    once: bool = False
    blob: bool = False


class Transport:
    """The connections to one server, and the prefix of the paths of one graph."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.url = checked_url(url)
        self._retry_seconds = retry_seconds
        headers = {"User-Agent": "omnigraph-python"}
        if token is not None:
            headers["Authorization"] = f"Bearer {_checked_token(token)}"
        timeout = httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS)
        self._client = httpx.Client(headers=headers, timeout=timeout, follow_redirects=False, trust_env=False)

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:
        """The JSON body of a read by its address."""
        return self.send(Call("GET", path, given(params))).json()

    def post(self, path: str, body: Mapping[str, Any], *, writes: bool = False, **headers: str) -> Any:
        """The JSON body of a request with a JSON body; fields that are None are left out."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send(Call("POST", path, json=given(body), headers=named, writes=writes)).json()

    def send(self, call: Call) -> httpx.Response:
        """The whole answer to a request.

        Raises:
            GraphError: what the server refused it with, as the engine would have raised it.
            UnavailableError: the server cannot be reached, or has no room.
            OutcomeUnknownError: a write was sent and its answer is lost.
        """
        return self._attempt(call, read=True)

    @contextmanager
    def stream(self, call: Call) -> Iterator[httpx.Response]:
        """The answer to a request, its body still to be read; errors are raised before."""
        response = self._attempt(call, read=False)
        try:
            yield response
        finally:
            response.close()

    def _attempt(self, call: Call, *, read: bool) -> httpx.Response:
        key = new_ulid() if call.writes else None
        until = time.monotonic() + self._retry_seconds
        pause, attempt = PAUSE_SECONDS, 0
        sent = False
        while True:
            attempt += 1
            last = attempt >= ATTEMPTS_MAX
            try:
                response = self._client.send(self._request(call, key), stream=True)
                if read:
                    response.read()
            except httpx.HTTPError as exc:
                # A connection that was never made has carried nothing; otherwise the server may be at work.
                reached = not isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
                sent = sent or reached
                if last or (reached and call.once) or time.monotonic() + pause > until:
                    raise self._lost(call, key, exc, reached=sent) from exc
                time.sleep(pause)
                pause *= 2
                continue
            if response.is_success or response.is_redirect:
                self._refuse_strange(response, call, key)
                return response
            wait = _wait_seconds(response, pause)
            failure = self._failure(response, call, key)
            if _is_at_work(response):
                # Somebody works on it, so looking again costs little and is not an attempt.
                sent, last, attempt = True, False, attempt - 1
            if wait is None or last or call.once or time.monotonic() + wait > until:
                raise self._given_up(call, key, failure, sent=sent and wait is not None)
            # A write that may have begun is not undone by a later attempt for which there was no room.
            sent = sent or isinstance(failure, OutcomeUnknownError | RecoveryRequiredError)
            time.sleep(wait)
            pause *= 2

    def _refuse_strange(self, response: httpx.Response, call: Call, key: str | None) -> None:
        """Take no answer for a success that a server of graphs does not give.

        Raises:
            InputError: the request is sent on to another address, and was not carried out.
            UnavailableError, OutcomeUnknownError: something else answers there, a page of a proxy for example.
        """
        if call.blob:
            return
        given = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if response.is_success and given == call.headers.get("Accept", JSON):
            return
        response.close()
        if response.is_redirect:
            place = response.headers.get("Location", "")
            raise InputError(f"the server '{self.url}' sends requests on to '{place}': connect to that address")
        reason = f"it answered {call.path} with '{given}', which no server of graphs does"
        raise self._lost(call, key, UnavailableError(reason))

    def _given_up(self, call: Call, key: str | None, failure: GraphError, *, sent: bool) -> GraphError:
        """What is raised of the last attempt, which was not begun: of one before it nobody has told what it did."""
        if call.writes and sent and not isinstance(failure, OutcomeUnknownError | RecoveryRequiredError):
            return OutcomeUnknownError(_unknown(self.url, str(failure)), key=key)
        return failure

    def _request(self, call: Call, key: str | None) -> httpx.Request:
        headers = dict(call.headers)
        if key is not None:
            headers["Idempotency-Key"] = key
        return self._client.build_request(
            call.method,
            f"{self.url}{call.path}",
            params=_flat(call.params),
            json=call.json,
            content=None if call.content is None else call.content(),
            headers=headers,
        )

    def _failure(self, response: httpx.Response, call: Call, key: str | None) -> GraphError:
        try:
            response.read()
            body = response.json()
        except (httpx.HTTPError, ValueError):
            body = None
        finally:
            response.close()
        told = body if isinstance(body, dict) else {}
        if not told.get("error"):
            told = {**told, "error": f"the server '{self.url}' answered {call.path} with status {response.status_code}"}
        if call.writes and response.status_code in (502, 504):
            return OutcomeUnknownError(_unknown(self.url, str(told["error"])), key=key)
        return error_from(response.status_code, told)

    def _lost(self, call: Call, key: str | None, exc: Exception, *, reached: bool = True) -> GraphError:
        reason = str(exc) or type(exc).__name__
        if call.writes and reached:
            return OutcomeUnknownError(_unknown(self.url, reason), key=key)
        if reached:
            return UnavailableError(f"the server '{self.url}' stopped answering: {reason}")
        return UnavailableError(f"the server '{self.url}' cannot be reached: {reason}")


def _unknown(url: str, reason: str) -> str:
    return (
        f"the answer of '{url}' to a write was lost ({reason}): it may have happened or not; look at the newest"
        " commits before you repeat it"
    )


def _wait_seconds(response: httpx.Response, pause: float) -> float | None:
    """How long to wait before the same request may be sent again; None when it must not be."""
    said = response.headers.get("Retry-After", "")
    told = float(said) if said.isdecimal() else None
    if response.status_code in _REPEATED:
        return pause if told is None else told
    return max(PAUSE_SECONDS, told or 0.0) if _is_at_work(response) else None


def _is_at_work(response: httpx.Response) -> bool:
    """Whether an earlier attempt of this very request is still being worked on."""
    return response.status_code == 409 and response.headers.get("Retry-After", "").isdecimal()


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that there are."""
    return {name: value for name, value in values.items() if value is not None}


def _flat(params: Mapping[str, Any]) -> list[tuple[str, str | int | float | bool | None]]:
    found: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in params.items():
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        found += [(name, str(item)) for item in several]
    return found


def segment(name: str) -> str:
    """A name as one segment of a path, whatever is in it."""
    return quote(name, safe="")


def checked_url(url: str) -> str:
    """The address of a server without a slash at its end.

    Raises:
        InputError: it is not one.
    """
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as exc:
        raise InputError(f"'{url}' is not the address of a server: {exc}") from exc
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InputError(f"'{url}' is not the address of a server: write http://host:port or https://host")
    if parsed.query or parsed.fragment or parsed.userinfo:
        raise InputError(f"the address of a server has no query, fragment or password: '{url}'")
    return str(parsed).rstrip("/")


def _checked_token(token: str) -> str:
    if not token.strip() or not token.isascii() or not token.isprintable():
        raise InputError("a token is a text of printable ASCII characters")
    return token.strip()


def list_graphs(transport: Transport) -> list[dict[str, Any]]:
    """The graphs of a server, each with its `graph_id` and `uri`.

    Raises:
        UnavailableError: what answers there is no server of graphs.
    """
    try:
        return [{**each, "graph_id": str(each["graph_id"])} for each in transport.get("/graphs")["graphs"]]
    except (TypeError, KeyError, ValueError) as exc:
        if isinstance(exc, GraphError):
            raise
        raise UnavailableError(f"'{transport.url}' does not answer as a server of graphs does") from exc


def graph_path(transport: Transport, graph: str | None) -> str:
    """Where the routes of a graph lie below the server's address.

    Without an id, the server is asked: its only graph is taken. One that does not tell is taken to serve a store under
    the id that servers give it.

    Raises:
        InputError: it serves several, or none.
    """
    if graph is None and "/graphs/" in transport.url:
        return ""
    if graph is None:
        try:
            known = [each["graph_id"] for each in list_graphs(transport)]
        except UnavailableError:
            raise
        except GraphError:
            known = [DEFAULT_GRAPH]
        if len(known) != 1:
            names = ", ".join(known) or "none"
            raise InputError(
                f"the server '{transport.url}' serves several graphs, name one with graph= or --graph: {names}"
            )
        graph = known[0]
    if not graph.strip():
        raise InputError("the id of the graph is empty")
    return f"/graphs/{segment(graph)}"
