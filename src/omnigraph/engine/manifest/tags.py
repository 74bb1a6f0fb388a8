"""Tags: names that stay with one commit.

A tag is a small file below the root that names a commit and where its state lies. It is made by a put that succeeds
only where there is none, and never changed, so two processes cannot both make it and a crash leaves it whole or absent.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from urllib.parse import quote, unquote

from omnigraph.engine.manifest.references import Spelling, spelling
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import FormatError, InputError
from omnigraph.ids import CommitId, parse_branch

_SUFFIX = ".json"
PATH_LENGTH_MAX = 255
"""What a store takes for the name of a file; tags have shorter ones."""


@dataclass(frozen=True)
class Tag:
    """One tag; `created_at` is Unix time in microseconds, and main is a branch of null."""

    name: str
    graph_commit_id: CommitId
    manifest_branch: str | None
    manifest_version: int
    created_at: int
    actor_id: str | None = None
    message: str | None = None
    request: str | None = field(default=None, compare=False, repr=False)
    """The request it was made for, so that who repeats that knows its own tag from another of the same name."""

    @property
    def identity(self) -> str:
        """What tells the tag from every other one of its name."""
        return f"{self.created_at}:{self.graph_commit_id}"


class Tags:
    """The tags of one graph."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def find(self, name: str) -> Tag | None:
        """The tag of a name, None when there is none.

        Raises:
            FormatError: its file cannot be understood.
        """
        path = _path(name)
        if len(path) > PATH_LENGTH_MAX:
            return None  # No tag has such a name, and a store that is asked for it fails.
        text = self._objects.read_text_if_exists(path) if self._objects.has(path) else None
        return None if text is None else _parsed(text, path)

    def list(self) -> list[Tag]:
        """Every tag, by name; one that is deleted meanwhile is not there."""
        names = [unquote(file.removesuffix(_SUFFIX)) for file in self._objects.list_dir(layout.TAGS_DIR)]
        return [tag for name in sorted(names) if (tag := self.find(name)) is not None]

    def add(self, tag: Tag) -> bool:
        """Store a tag; False when its name is taken."""
        facts = {name: value for name, value in asdict(tag).items() if name != "request" or value is not None}
        return self._objects.write_text_if_absent(_path(tag.name), json.dumps(facts, ensure_ascii=False))

    def remove(self, name: str) -> None:
        """Remove a tag, whether or not it is there."""
        self._objects.delete(_path(name))


def parse_tag(name: str) -> str:
    """Check the name of a tag that a user gave and return it trimmed.

    Raises:
        InputError: it is no name of a branch either, or it could be taken for something else than a name.
    """
    trimmed = name.strip()
    try:
        parse_branch(trimmed)
    except InputError as exc:
        raise InputError(f"'{trimmed}' cannot name a tag; tags are named as branches are: {exc}") from exc
    found = spelling(trimmed)
    if found is not Spelling.NAME:
        raise InputError(
            f"'{trimmed}' cannot name a tag: it reads as {found.value}; put a word in front, as in v-{trimmed}"
        )
    return trimmed


def _path(name: str) -> str:
    return f"{layout.TAGS_DIR}/{quote(name, safe='')}{_SUFFIX}"


def _parsed(text: str, path: str) -> Tag:
    try:
        facts = json.loads(text)
        return Tag(
            str(facts["name"]),
            CommitId(str(facts["graph_commit_id"])),
            facts.get("manifest_branch"),
            int(facts["manifest_version"]),
            int(facts["created_at"]),
            facts.get("actor_id"),
            facts.get("message"),
            facts.get("request"),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise FormatError(f"the tag {path} is damaged: {type(exc).__name__}: {exc}") from exc
