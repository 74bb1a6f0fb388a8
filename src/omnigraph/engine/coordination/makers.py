"""For which request a branch was made, so that who repeats it knows its own branch from another of the same name.

And that what was made for a request was deleted since, so that who repeats it does not make it again.

A ref cannot say it, because Lance chooses what is in it. So whoever creates a branch says it beside the requests, while
it holds the lock of the name and before the ref is there. A branch and the record of a request are then a proof: had
somebody else made the branch, the record would be another one, or gone. A record without a branch means nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from omnigraph.engine.storage import layout
from omnigraph.engine.storage.objects import ObjectStore


def record_maker(objects: ObjectStore, branch: str, request: str | None) -> None:
    """Say for which request a branch is about to be made; the caller holds the lock of its name, and it is free."""
    path = _path(branch)
    if request is not None:
        objects.write_text(path, json.dumps({"request": request}))
    elif objects.has(path):
        objects.delete(path)


def maker_of(objects: ObjectStore, branch: str) -> str | None:
    """For which request the branch of this name was made, if there is one; None when nothing is known.

    Look for the branch first: only what is read after it was there tells about it.
    """
    text = objects.read_text_if_exists(_path(branch))
    return None if text is None else str(json.loads(text)["request"])


def record_gone(objects: ObjectStore, request: str | None, what: Mapping[str, Any]) -> None:
    """Say, before it goes, that the branch or tag that was made for this request is deleted; `what` describes it."""
    if request is not None:
        objects.write_text(_gone_path(request), json.dumps(what))


def gone(objects: ObjectStore, request: str) -> dict[str, Any] | None:
    """What was made for this request and is deleted, or about to be; None when nothing is."""
    text = objects.read_text_if_exists(_gone_path(request))
    return None if text is None else dict(json.loads(text))


def forget_gone(objects: ObjectStore, request: str) -> None:
    """Take it back: whoever made it undoes that, and may make it again."""
    objects.delete(_gone_path(request))


def _gone_path(request: str) -> str:
    return f"{layout.REQUESTS_DIR}/{request}.gone.json"


def _path(branch: str) -> str:
    return f"{layout.REQUESTS_DIR}/branch-{quote(branch, safe='')}.json"
