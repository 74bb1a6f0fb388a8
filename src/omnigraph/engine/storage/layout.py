"""Where things lie below a graph root.

Names here are the on-disk format (docs/format.md). The path of a type's table is chosen once, at registration; after
that the manifest's `location` is the authority and nothing recomputes it.
"""

from __future__ import annotations

import os
from urllib.parse import unquote, urlparse

from omnigraph.errors import InputError
from omnigraph.ids import TableKey

SCHEMA_SOURCE = "_schema.pg"
SCHEMA_IR = "_schema.ir.json"
SCHEMA_STATE = "__schema_state.json"
SCHEMA_FILES = (SCHEMA_SOURCE, SCHEMA_IR, SCHEMA_STATE)
INIT_CLAIM = "__init_claim.json"
SCHEMA_LOCK = "__schema_apply_lock.json"
SCHEMA_HISTORY = "_schema_history"
STAGING_SUFFIX = ".staging"
MANIFEST = "__manifest"
GRAPH_COMMITS = "_graph_commits.lance"
COMMIT_ACTORS = "_graph_commit_actors.lance"
RECOVERIES = "_graph_commit_recoveries.lance"
RECOVERY_DIR = "__recovery"
WRITERS_DIR = "__writers"
TAGS_DIR = "__tags"
CACHE_DIR = "_cache"
REQUESTS_DIR = "__requests"
"""Where servers note which keyed requests they have answered."""
SMALL_FILES_IN = ("", RECOVERY_DIR, WRITERS_DIR, TAGS_DIR, REQUESTS_DIR)
"""Where small files are written under temporary names first, which a killed process leaves behind."""

ROOT_NAMES = frozenset(
    {
        *(*SCHEMA_FILES, INIT_CLAIM, SCHEMA_LOCK, SCHEMA_HISTORY, MANIFEST, "nodes", "edges"),
        *(GRAPH_COMMITS, COMMIT_ACTORS, RECOVERIES, RECOVERY_DIR, WRITERS_DIR, TAGS_DIR, CACHE_DIR, REQUESTS_DIR),
    }
)
"""The names that a graph may have directly below its root."""

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_U64 = (1 << 64) - 1


def fnv1a64(text: str) -> str:
    """The 64-bit FNV-1a hash of the UTF-8 bytes, as 16 hexadecimal digits.

    >>> fnv1a64("Person")
    '40d76f1f51639ec0'
    """
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _U64
    return f"{value:016x}"


def table_path(table_key: TableKey | str, incarnation: int = 1) -> str:
    """The graph-relative path a newly registered table gets.

    >>> table_path("edge:Knows")
    'edges/602a25a3bd0b455b'
    >>> table_path("node:Person", 2)
    'nodes/40d76f1f51639ec0-2'
    """
    kind, _, name = table_key.partition(":")
    suffix = "" if incarnation == 1 else f"-{incarnation}"
    return f"{kind}s/{fnv1a64(name)}{suffix}"


def normalise_root(uri: str | os.PathLike[str]) -> str:
    """The canonical form of a graph root: an absolute local path, or an object-store URI without a trailing slash.

    Raises:
        InputError: the scheme is not one a graph can live on.
    """
    text = os.fspath(uri).strip()
    if not text:
        raise InputError("a graph needs a location: give a path, a file:// URI or an s3:// URI")
    scheme = urlparse(text).scheme if "://" in text else ""
    if scheme == "file":
        text = unquote(urlparse(text).path)
        scheme = ""
    if scheme in ("http", "https"):
        raise InputError(f"'{text}' is a server address, not storage: give a path, a file:// URI or an s3:// URI")
    if scheme and scheme not in ("s3", "memory"):
        raise InputError(f"'{scheme}://' is not a storage a graph can live on: give a path, file:// or s3://")
    if scheme and not urlparse(text).netloc:
        raise InputError(f"'{text}' names no place in that storage: write s3://bucket/folder")
    if scheme:
        return text.rstrip("/")
    return os.path.realpath(os.path.expanduser(text))


def is_local(root: str) -> bool:
    """True when the root is a directory of this machine."""
    return "://" not in root


def join(root: str, path: str) -> str:
    """The full location of a graph-relative path."""
    return f"{root}/{path}"


def lies_below(target: str, root: str) -> bool:
    """True when a path or URI is the graph's own folder or anything in it, whatever links lead there.

    >>> lies_below("s3://bucket/graph/copy", "s3://bucket/graph"), lies_below("s3://bucket/graph2", "s3://bucket/graph")
    (True, False)
    """
    if "\0" in target:
        return False
    try:
        place = normalise_root(target)
    except InputError:  # A place that can hold no graph is in none.
        return False
    return place == root or place.startswith(f"{root}/")
