"""Files that a caller named to be written: a regular file whole or not at all, everything else as it is.

A regular file is written beside itself and put in its place, behind whatever links lead to it. A device, a FIFO and an
open descriptor (`/dev/stdout`) are not files that can be replaced: what is written goes through them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from omnigraph.errors import InputError
from omnigraph.ids import new_token

_DESCRIPTORS = re.compile(r"/dev/fd|/proc/(\d+)(/task/\d+)?/fd")
_LINKS_MAX = 40


@contextmanager
def outlet(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream into what a path names; a regular file appears, or changes, when the block is left without an error.

    Raises:
        InputError: it is a folder or a socket, or cannot be written.
    """
    named = _checked(path)
    try:
        descriptor = _open_as_it_is(named)
        if descriptor is None:
            with _replacing(os.path.realpath(named)) as file:
                yield file
        else:
            with open(descriptor, "wb") as file:
                yield file
    except OSError as exc:
        raise _unwritable(named, exc) from exc


def is_replaced(path: str | os.PathLike[str]) -> bool:
    """True when `path` names a regular file, or none yet, and so not something that is written as it is."""
    named = os.fspath(path)
    return _descriptor_of(named) is None and (not os.path.exists(named) or os.path.isfile(named))


def check_outlet(path: str | os.PathLike[str]) -> None:
    """Refuse early what `outlet` would refuse at the end of long work.

    Raises:
        InputError: it is a folder or a socket, or there is no folder to put it in.
    """
    named = _checked(path)
    try:
        found = _descriptor_of(named) is not None or _kind_of(named) is not None
        if not found and not os.path.isdir(os.path.dirname(os.path.realpath(named))):
            raise InputError(f"'{named}' cannot be written: there is no such folder")
    except OSError as exc:
        raise _unwritable(named, exc) from exc


def _checked(path: str | os.PathLike[str]) -> str:
    named = os.fspath(path)
    if not named or "\0" in named:
        raise InputError(f"{named!r} is not the name of a file")
    return named


def _unwritable(path: str, exc: OSError) -> InputError:
    return InputError(f"'{path}' cannot be written: {(exc.strerror or str(exc)).lower()}")


def _kind_of(path: str) -> int | None:
    """The kind of what is at a path, None when nothing is, once it is one that can be written."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(kind):
        raise InputError(f"'{path}' is a folder, and one file is to be written: name a file in it")
    if stat.S_ISSOCK(kind):
        raise InputError(f"'{path}' is a socket, which cannot be written as a file is: name a file, or use a FIFO")
    return kind


def _open_as_it_is(path: str) -> int | None:
    """A descriptor of what must be written through; None where a regular file is to be put in place."""
    own = _descriptor_of(path)
    if own is not None:
        # Not opened anew: what a shell has put behind it may be a file that others have written to before.
        return os.dup(own)
    kind = _kind_of(path)
    if kind is None or stat.S_ISREG(kind):
        return None
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC)


def _descriptor_of(path: str) -> int | None:
    """The open descriptor of this process that a path stands for, as `/dev/stdout` and `/dev/fd/3` do."""
    for _ in range(_LINKS_MAX):
        folder = os.path.realpath(os.path.dirname(path) or ".")
        name = os.path.basename(path)
        found = _DESCRIPTORS.fullmatch(folder)
        if found is not None and name.isdigit() and found.group(1) in (None, str(os.getpid())):
            return int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None


@contextmanager
def _replacing(target: str) -> Iterator[BinaryIO]:
    folder, name = os.path.split(target)
    partial = os.path.join(folder, f".{name[:100]}.{new_token()}")
    try:
        with open(partial, "xb") as file:
            if os.path.exists(target):
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(target).st_mode))
            yield file
        os.replace(partial, target)
    finally:
        if os.path.lexists(partial):
            os.unlink(partial)
