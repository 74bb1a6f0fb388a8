"""Reading request bodies: bounded in size and in patience, and then the shape they must have.

A body is read only after the caller is known and the graph is found. Whatever is wrong with it is a refusal with an
`ErrorOutput`: 413 too large, 415 not the expected kind, 400 not JSON or not the expected fields, 408 too slow.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from typing import IO, Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from omnigraph.server.errors import HttpRefusal
from omnigraph.server.large import loads

M = TypeVar("M", bound=BaseModel)
JSON = "application/json"
NDJSON = "application/x-ndjson"
PROBLEMS_SHOWN = 3


async def chunks(request: Request, *, bytes_max: int, idle_seconds: float) -> AsyncIterator[bytes]:
    """The pieces of a body as they arrive.

    Raises:
        HttpRefusal: it is larger than allowed, or the client stopped sending.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > bytes_max:
        raise too_large(int(announced), bytes_max)
    size, is_more = 0, True
    while is_more:
        try:
            # Not `wait_for`, which makes a task of every piece: most bodies are one that is there already.
            async with asyncio.timeout(idle_seconds or None):
                message = await request.receive()
        except TimeoutError:
            raise HttpRefusal(
                408,
                f"the body stopped arriving for {idle_seconds:g} s; nothing changed",
                headers={"Connection": "close"},
            ) from None
        if message["type"] == "http.disconnect":
            raise HttpRefusal(400, "the client left before its body was complete; nothing changed")
        piece, is_more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > bytes_max:
            raise too_large(size, bytes_max)
        if piece:
            yield piece


def too_large(size: int, bytes_max: int) -> HttpRefusal:
    """The refusal of a body beyond its limit."""
    limit = {"resource": "body_bytes", "limit": bytes_max, "actual": size}
    return HttpRefusal(
        413,
        f"the body has at least {size} bytes, and at most {bytes_max} are taken: split it",
        facts={"resource_limit": limit},
        headers={"Connection": "close"},
    )


async def whole(request: Request, *, bytes_max: int, idle_seconds: float) -> bytes:
    """A body in memory."""
    return b"".join([piece async for piece in chunks(request, bytes_max=bytes_max, idle_seconds=idle_seconds)])


async def spooled(request: Request, *, bytes_max: int, idle_seconds: float) -> tuple[IO[bytes], int, bytes]:
    """A body in an unnamed file, its size and its digest; the caller closes it, and then it is gone."""
    file = tempfile.TemporaryFile(prefix="omnigraph-load-")  # noqa: SIM115 - the caller closes it
    size, digest = 0, hashlib.sha256()
    try:
        async for piece in chunks(request, bytes_max=bytes_max, idle_seconds=idle_seconds):
            size += len(piece)
            digest.update(piece)
            # A write of one network buffer to a file of the page cache does not block for longer than a copy does.
            file.write(piece)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file, size, digest.digest()


def media_type(request: Request) -> str:
    """The content type without its parameters, in small letters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def demand_type(request: Request, wanted: str, *, has_body: bool = True) -> None:
    """Refuse a body that says it is something else.

    Raises:
        HttpRefusal: 415.
    """
    given = media_type(request)
    if given == wanted or (not has_body and not given):
        return
    if wanted == JSON and given.startswith("application/") and given.endswith("+json"):
        return
    raise HttpRefusal(415, f"the content type must be '{wanted}', not '{given}'")


def parse(model: type[M], raw: bytes) -> M:
    """A body as its fields.

    Raises:
        HttpRefusal: 400, it is not JSON, a field is missing or has the wrong type.
    """
    try:
        value = loads(raw, _no_constant)
    except UnicodeDecodeError as exc:
        raise HttpRefusal(400, f"the body is not UTF-8 text: byte {exc.start} is not part of a character") from None
    except RecursionError:
        raise HttpRefusal(400, "the body is nested too deeply") from None
    except ValueError as exc:
        raise HttpRefusal(400, f"the body is not JSON: {exc}") from None
    return shaped(model, value)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def shaped(model: type[M], value: Any) -> M:
    """Checked fields of a parsed value."""
    if not isinstance(value, dict):
        raise HttpRefusal(400, f"the body must be a JSON object, not {_kind(value)}")
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as exc:
        problems = [_problem(each) for each in exc.errors(include_url=False, include_context=False)]
        more = f"; and {len(problems) - PROBLEMS_SHOWN} more" if len(problems) > PROBLEMS_SHOWN else ""
        raise HttpRefusal(400, "; ".join(problems[:PROBLEMS_SHOWN]) + more) from None
    except RecursionError:
        raise HttpRefusal(400, "the body is nested too deeply") from None


def _problem(found: Any) -> str:
    if not found["loc"]:
        return str(found["msg"])
    place = ".".join(str(part) for part in found["loc"])[:200]
    if place == "params":
        return "params must be a JSON object"
    if found["type"] == "missing":
        return f"the field '{place}' is missing"
    if found["type"] == "extra_forbidden":
        return f"the field '{place}' is not known"
    said = str(found["msg"])
    return f"the field '{place}' is wrong: {said[:1].lower()}{said[1:]}"


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a text", list: "an array"}
    return names.get(type(value), "a number")
