"""For which request a branch was made, so that who repeats it knows its own branch from another of the same name.

A ref cannot say it, because Lance chooses what is in it. So whoever creates a branch says it beside the requests, while
it holds the lock of the name and before the ref is there. A branch and the record of a request are then a proof: had
somebody else made the branch, the record would be another one, or gone. A record without a branch means nothing.
"""

from __future__ import annotations

import json
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


def _path(branch: str) -> str:
    return f"{layout.REQUESTS_DIR}/branch-{quote(branch, safe='')}.json"
