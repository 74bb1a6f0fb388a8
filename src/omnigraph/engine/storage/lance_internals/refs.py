"""The refs of tables, each read once for as long as it stays the same.

Lance lists refs by reading every one of them, so whatever asks about one branch would cost as much as there are
branches. A ref is a small file that is written once and never changed: a branch of the same name that is made anew has
another file. So a look at the folder tells which refs are new, and only these are read.
"""

from __future__ import annotations

import json
import threading
from urllib.parse import unquote

from msgspec import Struct

from omnigraph.engine.storage.lance_internals.files import BRANCH_REFS
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.storage.steps import step
from omnigraph.errors import FormatError

_SUFFIX = ".json"


class Ref(Struct, frozen=True):
    """Where a branch of a table was created: on which branch (None is main), at which version."""

    parent: str | None
    version: int


class Refs:
    """The refs of the tables below one root."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._known: dict[str, dict[str, tuple[object, Ref]]] = {}
        self._lock = threading.Lock()

    def of(self, path: str) -> dict[str, Ref]:
        """The refs of a table by name; one that is deleted meanwhile is not there.

        Raises:
            FormatError: a ref cannot be understood.
        """
        folder = f"{path}/{BRANCH_REFS}"
        with step("list_branches", path):
            marks = self._objects.marks(folder)
        with self._lock:
            known = self._known.get(path, {})
        found: dict[str, tuple[object, Ref]] = {}
        for file, mark in marks.items():
            if not file.endswith(_SUFFIX):
                continue
            held = known.get(file)
            if held is None or held[0] != mark:
                # Read after it was seen: what is read is of this mark or newer, and then the mark never comes again.
                text = self._objects.read_text_if_exists(f"{folder}/{file}")
                held = None if text is None else (mark, _parsed(text, f"{folder}/{file}"))
            if held is not None:
                found[file] = held
        with self._lock:
            self._known[path] = found
        return {unquote(file.removesuffix(_SUFFIX)): ref for file, (_, ref) in sorted(found.items())}


def _parsed(text: str, path: str) -> Ref:
    try:
        facts = json.loads(text)
        parent = facts.get("parentBranch")
        return Ref(None if parent is None else str(parent), int(facts["parentVersion"]))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise FormatError(f"{path} is damaged: it does not say where its branch was created") from exc
