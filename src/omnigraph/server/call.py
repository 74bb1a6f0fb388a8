"""One request inside a route: its graph, its caller, its body, and the two ways into the engine.

`Call.read` runs something on a thread for reads. `run_write` is the one path of every write: the key is looked up,
the actor admitted, the branch's turn awaited, the write run to its end, and its answer kept under the key.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.engine.manifest.records import KEY
from omnigraph.engine.write.attached import attaching, foretelling
from omnigraph.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    ChangesUnavailableError,
    GraphError,
    KeyConflictError,
    MergeConflictError,
    UnavailableError,
)
from omnigraph.graph import Graph
from omnigraph.ids import MAIN, parse_branch
from omnigraph.server import bodies
from omnigraph.server.errors import Answer, HttpRefusal, answer_of, json_response
from omnigraph.server.large import LARGE_BYTES
from omnigraph.server.receipts import Receipt, identity_of
from omnigraph.server.requests_seen import ATTACHED, LEASE_SECONDS, REPLAYED, Note, RequestsSeen, checked_key
from omnigraph.server.served import Served, ServerState

_log = logging.getLogger("omnigraph.server")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

IF_COMMIT = "omnigraph-if-graph-commit"
BRANCH_WORK_BYTES = 256
"""What an operation on branches counts for when an actor's bytes in flight are added up."""


class Call:
    """One request."""

    def __init__(self, request: Request) -> None:
        facts = request.scope["omnigraph"]
        self.request = request
        self.state: ServerState = request.app.state.omnigraph
        self.served: Served = facts["served"]
        self.actor: str | None = facts["actor"]
        self.request_id: str = facts["request_id"]

    @property
    def graph(self) -> Graph:
        """The graph that is addressed."""
        return self.served.graph

    @property
    def seen(self) -> RequestsSeen:
        """The requests with a key that were answered on this graph."""
        return self.state.requests[self.served.graph_id]

    async def body(self, model: type[M], *, bytes_max: int | None = None) -> tuple[M, bytes]:
        """The body, checked, and as it came."""
        bodies.demand_type(self.request, bodies.JSON)
        raw = await self.raw(bytes_max)
        return await self.shape(len(raw), bodies.parse, model, raw), raw

    async def raw(self, bytes_max: int | None = None) -> bytes:
        """The body as it came."""
        settings = self.state.settings
        limit = settings.body_bytes_max if bytes_max is None else bytes_max
        return await bodies.whole(self.request, bytes_max=limit, idle_seconds=settings.body_idle_seconds)

    def demand(self, action: str, *, branch: str | None = None, target: str | None = None) -> None:
        """Let an allowed request go on; 403 otherwise."""
        self.state.access.demand(self.actor, action, branch=branch, target=target)

    async def shape(self, size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Make something of a body of this size, in a thread where that takes long."""
        return await self.state.work.shape(function, *arguments) if size > LARGE_BYTES else function(*arguments)

    async def told(self, function: Callable[[], Any]) -> Response:
        """What a read finds, as the JSON of an answer; both are made in the thread."""
        return await self.state.work.read(lambda: json_response(function()))

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run something that only reads."""
        return await self.state.work.read(function, *arguments)

    def query_parameters(self, *known: str) -> dict[str, list[str]]:
        """The parameters of the URL, each as often as it was given.

        Raises:
            HttpRefusal: 400, one of them is not known.
        """
        found: dict[str, list[str]] = {}
        for name, value in self.request.query_params.multi_items():
            if name not in known:
                raise HttpRefusal(
                    400, f"the parameter '{name[:80]}' is not known (known: {', '.join(known) or 'none'})"
                )
            found.setdefault(name, []).append(value)
        return found

    def one_parameter(self, parameters: Mapping[str, list[str]], name: str) -> str | None:
        """A parameter that may be given once.

        Raises:
            HttpRefusal: 400, it was given more often.
        """
        values = parameters.get(name, [])
        if len(values) > 1:
            raise HttpRefusal(400, f"the parameter '{name}' is given {len(values)} times")
        return values[0] if values else None

    def refuse_condition(self) -> None:
        """Ordinary routes do not take the header of conditional ones, which they would otherwise ignore.

        Raises:
            HttpRefusal: 400.
        """
        if IF_COMMIT in self.request.headers:
            raise HttpRefusal(400, "Omnigraph-If-Graph-Commit is for the routes that end in '/if-graph-commit'")

    def condition(self) -> str:
        """The commit a conditional write depends on.

        Raises:
            HttpRefusal: 400, the header is missing.
        """
        given = self.request.headers.get(IF_COMMIT, "").strip()
        if not given:
            raise HttpRefusal(400, "this route needs the header 'Omnigraph-If-Graph-Commit: <commit id>'")
        return given


def named_branch(name: str | None) -> str:
    """The branch of a request, `main` when it names none; what is no branch name is refused before the policy is asked.

    Raises:
        InputError: it is no branch name.
    """
    return MAIN if name is None else parse_branch(name)


class Write(Struct, frozen=True):
    """A write as the queue needs it: where it goes, how large it is, and what to do."""

    branch: str
    size: int
    digest: Callable[[], str]
    """What makes two requests the same; only one with a key is asked."""
    work: Callable[[Note | None], Mapping[str, Any]]
    """Does it; the note, where the request has a key, tells what it was about when it was first made."""
    receipt: Receipt | None = None
    """How a write that makes a commit is answered, by which an abandoned attempt's answer is found again."""
    found: Callable[[Note], Mapping[str, Any] | None] = field(default=lambda _: None)
    """The answer to an abandoned attempt that makes no commit, None when it did nothing."""
    finished: Callable[[dict[str, Any], Note], Mapping[str, Any]] = field(default=lambda body, _: body)
    """Does what an abandoned attempt had yet to do after its commit, and completes its answer."""
    about: Callable[[], str] | None = None
    """The identity of what the request is about, which its note keeps, empty for nothing; None for its branch."""

    def about_now(self, call: Call) -> str:
        """The identity of what has the name of what the request is about."""
        return identity_of(call.graph, self.branch) if self.about is None else self.about()

    together: bool = False
    """Whether it may be published together with others of its branch."""
    release: Callable[[], None] = field(default=lambda: None)
    """Gives back what the write was given, when it is over."""


def digest_of(call: Call, raw: bytes) -> Callable[[], str]:
    """What makes two requests the same: method, path, parameters, condition and body."""
    request = call.request

    def digest() -> str:
        parts = (request.method, request.url.path, request.url.query, request.headers.get(IF_COMMIT, ""))
        found = hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace"))
        found.update(raw)
        return found.hexdigest()

    return digest


async def has_begun(call: Call, digest: Callable[[], str]) -> bool:
    """Whether this request was allowed and taken on before, by its key; what it names may be gone since."""
    key = call.request.headers.get("idempotency-key")
    if key is None:
        return False
    return await call.state.work.note(lambda: call.seen.has_begun(actor=call.actor, key=key, digest=digest()))


async def run_write(call: Call, write: Write, *, headers: Mapping[str, str] | None = None) -> Response:
    """Carry a write out, once for each key, and answer it.

    Raises:
        HttpRefusal: 409 for a key in use, 429, 503; nothing happened.
    """
    facts = call.request.scope["omnigraph"]
    facts["writing"] = True
    try:
        answer = await call.state.work.to_its_end(_released(call, write))
    finally:
        facts["writing"] = False
    return answer.response(headers)


async def _released(call: Call, write: Write) -> Answer:
    try:
        return await _carried_out(call, write)
    finally:
        write.release()


async def _carried_out(call: Call, write: Write) -> Answer:
    work = call.state.work
    key = call.request.headers.get("idempotency-key")
    if key is not None:
        checked_key(key)
    try:
        # Before the note: a request that is not admitted leaves nothing, and its repetition is the first attempt.
        work.admit(call.actor, write.size)
    except HttpRefusal:
        kept = None if key is None else await _kept(call, write, key)
        if kept is None:
            call.state.metrics.refused_writes.labels("actor").inc()
            raise
        return kept
    try:
        return await (_attempt(call, write, None) if key is None else _once(call, write, key))
    finally:
        work.leave(call.actor, write.size)


async def _kept(call: Call, write: Write, key: str) -> Answer | None:
    """The answer to a request that was carried out before; giving it again takes nobody's place."""
    answer = await call.state.work.note(lambda: call.seen.answered(actor=call.actor, key=key, digest=write.digest()))
    if answer is not None:
        call.state.metrics.replays.inc()
    return answer


async def _once(call: Call, write: Write, key: str) -> Answer:
    """Carry a write out unless that was done before, and keep its answer under its key."""
    work = call.state.work
    begun = await work.note(
        lambda: call.seen.begin(actor=call.actor, key=key, digest=write.digest(), about=lambda: write.about_now(call))
    )
    if isinstance(begun, Answer):
        call.state.metrics.replays.inc()
        return begun
    note = begun
    renewing = asyncio.create_task(_renewing(call, note))
    answer: Answer | None = None
    try:
        try:
            answer = await _attempt(call, write, note)
        except HttpRefusal as refused:
            answer = answer_of(refused, request_id=call.request_id)
        return answer
    finally:
        renewing.cancel()
        seen = call.seen
        try:
            if answer is not None and _is_final(answer):
                await work.note(seen.complete, note, answer)
            else:
                uncertain = answer is None or answer.status == 500 or "recovery_required" in answer.body
                await work.note(lambda: seen.withdraw(note, uncertain=uncertain))
        except GraphError as exc:
            # The write stands or falls by the graph; what the note should say is known here and written later.
            _log.warning("the note of request %s is incomplete: %s", call.request_id, exc)


FINAL_CONFLICTS = frozenset(
    error.__name__ for error in (KeyConflictError, MergeConflictError, AlreadyExistsError, ChangesUnavailableError)
)
"""Conflicts with what is there; all others are with somebody who wrote at the same moment."""


async def _renewing(call: Call, note: Note) -> None:
    while True:
        await asyncio.sleep(LEASE_SECONDS / 3)
        try:
            await call.state.work.note(call.seen.renew, note)
        except GraphError as exc:
            # The lease still runs, and the next renewal is before its end.
            _log.warning("the note of request %s was not renewed: %s", call.request_id, exc)


async def _attempt(call: Call, write: Write, note: Note | None) -> Answer:
    hidden = call.served.uri
    seen = call.seen
    waited = call.state.metrics.refused_writes.labels("waited")

    def run() -> Answer:
        answer = carried_out()
        _ = answer.content  # Written here, not by the event loop.
        return answer

    def carried_out() -> Answer:
        try:
            if note is None:
                return Answer(200, write.work(None))
            done = _found(call, write, note) if note.taken_over else None
            if done is not None:
                return Answer(200, done, REPLAYED)
            if note.taken_over and note.about:
                _demand_same(note, write.about_now(call))
            hear = write.receipt
            with (
                attaching({ATTACHED: note.request, KEY: note.key}),
                foretelling(lambda report: {} if hear is None else hear.keep(seen, note, report)),
            ):
                return Answer(200, write.work(note))
        except Exception as exc:  # noqa: BLE001 - what a write ends with is its answer, and is kept under its key
            if isinstance(exc, UnavailableError):
                waited.inc()
            return answer_of(exc, request_id=call.request_id, hidden=hidden)

    together = write.together and call.served.groups_writes
    try:
        return await call.state.work.write(call.served.graph_id, write.branch, run, together=together)
    except HttpRefusal:
        waited.inc()
        raise


def _demand_same(note: Note, there: str) -> None:
    """Refuse to carry a request out on anything but the branch it was made for.

    Raises:
        BranchNotFoundError: that one was deleted, and `there` is what has its name now.
    """
    if note.is_gone(there):
        named = ", and another has its name" if there else ""
        raise BranchNotFoundError(f"the branch this request was made for was deleted{named}")


def _found(call: Call, write: Write, note: Note) -> Mapping[str, Any] | None:
    """What an attempt that nobody works on any more has done: the graph knows, once what it left is finished."""
    if write.receipt is None:
        call.graph.refresh()
        return write.found(note)
    body = write.receipt.find(call.seen, note, call.graph, write.branch)
    return None if body is None else write.finished(body, note)


def _is_final(answer: Answer) -> bool:
    """Whether a repetition would get the same answer; where nothing happened and trying again may help, it is tried."""
    if answer.status in (424, 429, 500, 503):
        return False
    return answer.status != 409 or answer.body.get("error_type") in FINAL_CONFLICTS
