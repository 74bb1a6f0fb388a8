"""Bytes outside any graph, by URI, from below a place that somebody trusts and from nowhere else.

A URI is taken apart once: decoded first, then without anything that two readers could understand differently. A file
is compared after every link on its way was resolved, and it is opened by that resolved path, folder by folder, without
following links: what is read is what was compared, even if somebody puts a link there in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes, urlsplit

import obstore
from msgspec import Struct
from obstore.exceptions import BaseError
from obstore.store import from_url

from omnigraph.engine.storage.translate import classify_lance_error
from omnigraph.errors import InputError, StorageError

FILE = "file"
_LOCAL_HOSTS = ("", "localhost")


class Place(Struct, frozen=True):
    """A URI, decoded: `parts` are the components of its path, none of them empty or a dot."""

    scheme: str
    authority: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority.rpartition('@')[2]}/{'/'.join(self.parts)}"

    def resolved(self) -> tuple[str, ...]:
        """The components after every link on the way was followed; only files have links."""
        if self.scheme != FILE:
            return self.parts
        return tuple(part for part in os.path.realpath("/" + "/".join(self.parts)).split("/") if part)


def parse_place(uri: str) -> Place:
    """The place a URI names.

    Raises:
        InputError: it is no URI with a path, or one that could be understood in two ways.
    """
    try:
        parts = urlsplit(uri)
        path = unquote_to_bytes(parts.path).decode()
        authority = parts.netloc
    except ValueError as exc:
        raise InputError(f"{uri!a} is not a URI: {exc}") from exc
    scheme = parts.scheme.lower()
    # Parsers of URIs drop control characters, and some take a backslash for a slash.
    if any(ord(letter) < 0x20 or letter in "\\\x7f" for letter in uri) or "\x00" in path or "\\" in path:
        raise InputError(f"{uri!a} is not a URI: it has a control character or a backslash")
    if parts.query or parts.fragment or uri.endswith(("?", "#")):
        raise InputError(f"{uri!a} has a query or a fragment: write '?' as %3F and '#' as %23 where a name has them")
    if not scheme or not path.startswith("/") or (scheme != FILE and not authority):
        raise InputError(f"{uri!a} is not the URI of a file or an object: write file:///folder/name or s3://bucket/key")
    if scheme == FILE:
        if authority.lower() not in _LOCAL_HOSTS:
            raise InputError(f"{uri!a} names a file of another machine")
        authority = ""
    found = path[1:].removesuffix("/").split("/") if path.strip("/") else []
    if scheme == FILE:
        found = [part for part in found if part]
    if not {"", ".", ".."}.isdisjoint(found):
        raise InputError(f"{uri!a} has an empty component, '.' or '..' in its path")
    return Place(scheme, authority, tuple(found))


def find_below(uri: str, bases: Sequence[Place]) -> tuple[Place, Place] | None:
    """The place of a URI with its links resolved, and the base that it lies below; None when it lies below none."""
    try:
        place = parse_place(uri)
    except InputError:
        return None
    if uri.endswith("/"):
        return None
    resolved = place.resolved()
    for base in bases:
        if (base.scheme, base.authority) == (place.scheme, place.authority):
            start = base.resolved()
            if len(resolved) > len(start) and resolved[: len(start)] == start:
                return Place(place.scheme, place.authority, resolved), Place(base.scheme, base.authority, start)
    return None


def read_below(place: Place, base: Place) -> bytes:
    """The bytes of a place that `find_below` found, with its base.

    Raises:
        StorageError: there are none, they cannot be read, or what is there now is a link, a folder or a device.
    """
    try:
        if place.scheme == FILE:
            return _read_file(base.parts, place.parts[len(base.parts) :])
        store = from_url(f"{place.scheme}://{place.authority}")
        return bytes(obstore.get(store, "/".join(place.parts)).bytes())
    except (BaseError, OSError, ValueError) as exc:
        raise classify_lance_error(exc, f"reading {place}") from exc


def _read_file(base: Sequence[str], below: Sequence[str]) -> bytes:
    folder = os.open("/" + "/".join(base), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in below[:-1]:
            deeper = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = deeper
        # Without waiting: opening a FIFO would not return before somebody writes to it.
        found = os.open(below[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    with open(found, "rb") as file:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise StorageError("it is not a regular file", kind="permanent")
        return file.read()
