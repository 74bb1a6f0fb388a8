"""Small text objects: intents, schema files and locks, on local disk and object stores alike.

One implementation over obstore. Every write is atomic: a reader sees the old object or the new one, never a torn one.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError as ObjectExists
from obstore.exceptions import BaseError, PreconditionError
from obstore.exceptions import NotFoundError as ObjectMissing
from obstore.store import LocalStore, MemoryStore, from_url

from omnigraph.engine.storage.durability import (
    Durability,
    create_durably,
    file_mark,
    is_full,
    remove_if_same,
    replace_durably,
    replace_file,
    replace_if_same,
    sync_files,
)
from omnigraph.engine.storage.layout import is_local
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.translate import classify_lance_error, is_unsupported
from omnigraph.errors import StorageError
from omnigraph.ids import new_ulid

_log = logging.getLogger(__name__)
_PROBE = "__probe"
PROBE_RETRIES = "2"


def _raise(exc: OSError) -> None:
    raise exc


def _raise_unless_gone(function: Any, path: str, failure: Any) -> None:
    """What somebody else has removed meanwhile is no reason to leave the rest."""
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]


def _unconditional(root: str) -> StorageError:
    return StorageError(
        f"'{root}' cannot be written: its store does not support conditional puts (If-None-Match), and without them two"
        " writers would overwrite each other; use one that does, or open the graph read-only",
        kind="configuration",
    )


_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)


def _object_store(root: str, options: Mapping[str, str]) -> Any:
    """The store of a root, from options as Lance takes them: those of the service, of its client and of retries."""
    left = dict(options)
    retry: dict[str, Any] = {}
    if "client_max_retries" in left:
        retry["max_retries"] = int(left.pop("client_max_retries"))
    if "client_retry_timeout" in left:
        retry["retry_timeout"] = timedelta(seconds=int(left.pop("client_retry_timeout")))
    client: dict[str, Any] = {name: left.pop(name) for name in list(left) if name in _CLIENT_OPTIONS}
    for name, value in client.items():
        if value.lower() in ("true", "false"):
            client[name] = value.lower() == "true"
    try:
        return from_url(root, config=left or None, client_options=client or None, retry_config=retry or None)
    except (BaseError, OSError, ValueError) as exc:
        raise classify_lance_error(exc, f"reaching {root}") from exc


class ObjectStore:
    """The text objects below one root; every path is relative to it."""

    def __init__(
        self, root: str, *, durability: Durability = Durability.FAST, options: Mapping[str, str] | None = None
    ) -> None:
        self.root = root
        self.durability = durability
        self._options = dict(options or {})
        self._local = is_local(root)
        self._excludes = False
        """True once this process has seen that the store refuses to create an object twice."""
        self._store: Any
        if self._local:
            # The folder is made by the first write, not here: opening a graph must leave no trace.
            self._store = LocalStore()
        elif root.startswith("memory://"):
            self._store = MemoryStore()
        else:
            self._store = _object_store(root, options or {})

    def _key(self, path: str) -> str:
        return f"{self.root}/{path}".lstrip("/") if self._local else path

    @property
    def _syncs(self) -> bool:
        return self._local and is_full(self.durability)

    def read_text(self, path: str) -> str:
        """The whole object.

        Raises:
            StorageError: it does not exist (`kind` not_found) or cannot be read.
        """
        with step("read_text", path):
            try:
                return self._content(path).decode()
            except (BaseError, OSError, UnicodeDecodeError) as exc:
                raise classify_lance_error(exc, f"reading {path}") from exc

    def read_text_if_exists(self, path: str) -> str | None:
        """The whole object, or None when there is none; any other failure raises."""
        try:
            with step("read_text", path):
                return self._content(path).decode()
        except (ObjectMissing, FileNotFoundError):
            return None
        except (BaseError, OSError, UnicodeDecodeError) as exc:
            raise classify_lance_error(exc, f"reading {path}") from exc

    def _content(self, path: str) -> bytes:
        if not self._local:
            return bytes(obstore.get(self._store, self._key(path)).bytes())
        # Every opening reads some of these files, and a file is a call of the system, not of a runtime with threads.
        try:
            with open(f"{self.root}/{path}", "rb", buffering=0) as file:
                return file.readall()
        except IsADirectoryError as exc:
            raise FileNotFoundError(f"{path} is a folder") from exc

    def write_text(self, path: str, text: str) -> None:
        """Create or replace the object atomically."""
        with step("write_text", path):
            try:
                if self._syncs:
                    replace_durably(f"{self.root}/{path}", text.encode())
                elif self._local:
                    # A write in flight is announced by such a file, and these few calls are what that should cost.
                    replace_file(f"{self.root}/{path}", text.encode())
                else:
                    obstore.put(self._store, self._key(path), text.encode())
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"writing {path}") from exc

    def write_text_if_absent(self, path: str, text: str) -> bool:
        """Create the object; exactly one of any number of concurrent callers gets True."""
        with step("write_text_if_absent", path):
            try:
                if self._syncs:
                    create_durably(f"{self.root}/{path}", text.encode())
                else:
                    obstore.put(self._store, self._key(path), text.encode(), mode="create")
            except (ObjectExists, FileExistsError):
                return False
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"writing {path}") from exc
        return True

    def read_marked(self, path: str) -> tuple[str, object] | None:
        """The whole object, and what tells it from every other one of its name; None when there is none."""
        try:
            with step("read_text", path):
                if self._local:
                    with open(f"{self.root}/{path}", "rb", buffering=0) as file:
                        return file.readall().decode(), file_mark(os.fstat(file.fileno()))
                found = obstore.get(self._store, self._key(path))
                return bytes(found.bytes()).decode(), found.meta["e_tag"]
        except (ObjectMissing, FileNotFoundError):
            return None
        except (BaseError, OSError, UnicodeDecodeError) as exc:
            raise classify_lance_error(exc, f"reading {path}") from exc

    def replace_if_same(self, path: str, text: str, mark: object) -> bool:
        """Replace the object that `read_marked` has read; False when it is gone, or another one by now."""
        with step("write_text", path):
            try:
                if self._local:
                    return replace_if_same(f"{self.root}/{path}", text.encode(), mark, durably=self._syncs)
                return self._put_if_same(path, text, mark)
            except ObjectMissing:
                return False
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"writing {path}") from exc

    def _put_if_same(self, path: str, text: str, mark: object) -> bool:
        try:
            obstore.put(self._store, self._key(path), text.encode(), mode={"e_tag": str(mark)})
        except PreconditionError:
            # Refused by its own first try, too, whose answer was lost.
            return self.read_text_if_exists(path) == text
        except (BaseError, NotImplementedError) as exc:
            if not is_unsupported(exc):
                raise
            # The condition guards a window of one request, without which the store is no less safe than it was.
            obstore.put(self._store, self._key(path), text.encode())
        return True

    def delete_if_same(self, path: str, mark: object) -> bool:
        """Remove the object that `read_marked` has read; False when it is gone, or another one by now.

        Object stores remove unconditionally, so there another may still come between the last look and the removal.
        """
        with step("delete", path):
            try:
                if self._local:
                    return remove_if_same(f"{self.root}/{path}", mark)
                if self.mark(path) != mark:
                    return False
                obstore.delete(self._store, self._key(path))
            except ObjectMissing:
                return False
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"deleting {path}") from exc
        return True

    def require_conditional_puts(self) -> None:
        """Make sure that of two who create one object one is refused, which every commit relies on; asked once.

        A store may say that it cannot, or not know the condition and overwrite: so an object is created twice, and what
        the second try did tells. Locally and in memory it is known.

        Raises:
            StorageError: two writers would both succeed here, and one of them would lose what it wrote.
        """
        if self._excludes or self._local or self.root.startswith("memory://"):
            return
        path = f"{_PROBE}/{new_ulid()}"
        # A store that cannot do it is not asked ten times over a minute, as one that is overloaded would be.
        store = _object_store(self.root, {**self._options, "client_max_retries": PROBE_RETRIES})
        with step("probe", path):
            try:
                obstore.put(store, self._key(path), b"1", mode="create")
            except ObjectExists:
                pass  # its answer was lost and the repetition refused
            except (BaseError, OSError, NotImplementedError) as exc:
                if is_unsupported(exc):
                    raise _unconditional(self.root) from exc
                raise classify_lance_error(exc, f"writing {path}") from exc
            try:
                obstore.put(store, self._key(path), b"2", mode="create")
            except (ObjectExists, PreconditionError):
                self._excludes = True
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"writing {path}") from exc
            finally:
                self._withdraw_probe(path)
        if not self._excludes:
            raise _unconditional(self.root)

    def _withdraw_probe(self, path: str) -> None:
        try:
            obstore.delete(self._store, self._key(path))
        except (BaseError, OSError) as exc:
            _log.warning("the probe %s is left behind: %s", path, exc)

    def exists(self, path: str) -> bool:
        """True for an object or a folder with an object in it; a permission failure raises instead of saying no."""
        if self._local:
            return self._exists_local(path)
        if self.has(path):
            return True
        listing = self._list(path)
        return bool(listing["objects"] or listing["common_prefixes"])

    def _exists_local(self, path: str) -> bool:
        full = f"{self.root}/{path}"
        try:
            if not stat.S_ISDIR(os.stat(full).st_mode):
                return True
            return any(files for _, _, files in os.walk(full, onerror=_raise))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as exc:
            raise classify_lance_error(exc, f"looking for {path}") from exc

    def is_impossible(self) -> bool:
        """True when the root is a file, lies below one, or has a name that no folder can have; Lance tries on then."""
        try:
            return self._local and not stat.S_ISDIR(os.stat(self.root).st_mode)
        except OSError as exc:
            return exc.errno in (errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)

    def has(self, path: str) -> bool:
        """True when exactly this object exists; costs one look."""
        try:
            if self._local:
                full = f"{self.root}/{path}"
                # Mostly it is not there, and this look does not raise and catch an error to say so.
                return os.access(full, os.F_OK) and os.path.isfile(full)
            obstore.head(self._store, self._key(path))
        except (ObjectMissing, FileNotFoundError):
            return False
        except (BaseError, OSError) as exc:
            raise classify_lance_error(exc, f"looking for {path}") from exc
        return True

    def fingerprint(self, paths: Sequence[str]) -> tuple[object, ...]:
        """A value that changes whenever one of the objects does; costs no read of their content."""
        return tuple([self.mark(path) for path in paths])

    def mark(self, path: str) -> object:
        """The same of one object; None when there is none."""
        try:
            if self._local:
                return file_mark(os.stat(f"{self.root}/{path}"))
            return obstore.head(self._store, self._key(path))["e_tag"]
        except (ObjectMissing, FileNotFoundError):
            return None
        except (BaseError, OSError) as exc:
            raise classify_lance_error(exc, f"looking for {path}") from exc

    def rename_text(self, source: str, target: str) -> None:
        """Move an object over another; atomic locally, copy and delete on object stores."""
        with step("rename_text", target):
            try:
                obstore.rename(self._store, self._key(source), self._key(target), overwrite=True)
                if self._syncs:
                    sync_files([f"{self.root}/{target}"])
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"renaming {source} to {target}") from exc

    def copy(self, source: str, target: str) -> None:
        """Copy an object of any kind and size; the bytes do not pass through this process where the store copies."""
        with step("copy", target):
            try:
                if self._local:
                    os.makedirs(os.path.dirname(f"{self.root}/{target}"), exist_ok=True)
                obstore.copy(self._store, self._key(source), self._key(target))
                if self._syncs:
                    sync_files([f"{self.root}/{target}"])
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"copying {source} to {target}") from exc

    def delete(self, path: str) -> None:
        """Remove the object; it is fine if there is none."""
        with step("delete", path):
            try:
                if self._local:
                    os.unlink(f"{self.root}/{path}")
                else:
                    obstore.delete(self._store, self._key(path))
            except (ObjectMissing, FileNotFoundError):
                return
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"deleting {path}") from exc

    def list_dir(self, path: str) -> list[str]:
        """The names of the objects directly in a folder, unordered; empty when it does not exist."""
        if self._local:
            return self._list_local(path)
        prefix = self._key(path).rstrip("/") + "/"
        return [str(entry["path"])[len(prefix) :] for entry in self._list(path)["objects"]]

    def _list_local(self, path: str) -> list[str]:
        # A plain directory read: listing an empty folder happens on every write, and this is what it should cost.
        # Names with '#' are the store's own temporary files.
        with step("list_dir", path):
            try:
                with os.scandir(f"{self.root}/{path}") as entries:
                    return [entry.name for entry in entries if "#" not in entry.name and entry.is_file()]
            except FileNotFoundError:
                return []
            except OSError as exc:
                raise classify_lance_error(exc, f"listing {path}") from exc

    def _list(self, path: str) -> dict[str, Any]:
        with step("list_dir", path):
            try:
                found = obstore.list_with_delimiter(self._store, self._key(path).rstrip("/") + "/")
                return {"objects": list(found["objects"]), "common_prefixes": list(found["common_prefixes"])}
            except (ObjectMissing, FileNotFoundError, NotADirectoryError):
                return {"objects": [], "common_prefixes": []}
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"listing {path}") from exc

    def names_at_root(self) -> list[str]:
        """The names of the objects and folders directly at the root, in order; empty when there is none yet."""
        with step("list_dir", ""):
            try:
                if self._local:
                    return sorted(os.listdir(self.root))
                found = obstore.list_with_delimiter(self._store)
                paths = [*(str(entry["path"]) for entry in found["objects"]), *map(str, found["common_prefixes"])]
                return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)
            except (ObjectMissing, FileNotFoundError, NotADirectoryError):
                return []
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, "listing the root") from exc

    def list_folders(self, path: str) -> list[str]:
        """The folders directly in a folder, as paths below the root."""
        found = self._list(path)["common_prefixes"]
        return [f"{path}/{str(prefix).rstrip('/').rpartition('/')[2]}" for prefix in found]

    def entries(self, path: str) -> list[dict[str, Any]]:
        """What the store knows of the objects directly in a folder: `path`, `size`, `last_modified`."""
        return list(self._list(path)["objects"])

    def marks(self, path: str) -> dict[str, object]:
        """The objects directly in a folder, each with a value that no other object of that name ever has."""
        if not self._local:
            return {str(each["path"]).rpartition("/")[2]: each["e_tag"] for each in self.entries(path)}
        try:
            with os.scandir(f"{self.root}/{path}") as found:
                seen = [(entry.name, entry.stat()) for entry in found if entry.is_file()]
        except FileNotFoundError:
            # The folder is not there, or an object went while it was looked at.
            return self._marks_one_by_one(path)
        except OSError as exc:
            raise classify_lance_error(exc, f"listing {path}") from exc
        return {name: file_mark(facts) for name, facts in seen}

    def _marks_one_by_one(self, path: str) -> dict[str, object]:
        found = {name: self.mark(f"{path}/{name}") for name in self.list_dir(path)}
        return {name: mark for name, mark in found.items() if mark is not None}

    def delete_prefix(self, path: str) -> None:
        """Remove a folder and everything below it; safe to repeat, not atomic."""
        with step("delete_prefix", path):
            try:
                if self._local:
                    shutil.rmtree(f"{self.root}/{path}", onerror=_raise_unless_gone)
                    return
                keys = [
                    str(entry["path"])
                    for batch in obstore.list(self._store, self._key(path).rstrip("/") + "/")
                    for entry in batch
                ]
                if keys:
                    obstore.delete(self._store, keys)
            except (ObjectMissing, FileNotFoundError):
                return
            except (BaseError, OSError) as exc:
                raise classify_lance_error(exc, f"deleting {path}") from exc

    def drop_temporaries(self, folders: Sequence[str], older_than_seconds: float) -> None:
        """Remove what writes that were killed have left under temporary names; no listing ever shows it.

        A younger one may be somebody's who is about to give it its name. Object stores have none.
        """
        if not self._local:
            return
        limit = time.time() - older_than_seconds
        for folder in folders:
            place = f"{self.root}/{folder}".rstrip("/")
            try:
                with os.scandir(place) as entries:
                    left = [e.path for e in entries if "#" in e.name and e.is_file() and e.stat().st_mtime < limit]
            except FileNotFoundError:
                continue  # The folder is not there, or one of them went by itself, and the next time sees the others.
            except OSError as exc:
                raise classify_lance_error(exc, f"listing {folder}") from exc
            for path in left:
                self.delete(path.removeprefix(f"{self.root}/"))

    def drop_empty_folder(self, path: str) -> None:
        """Remove a folder that nothing is in; object stores have no folders, and one with something in it stays."""
        if not self._local:
            return
        try:
            os.rmdir(f"{self.root}/{path}")
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise classify_lance_error(exc, f"removing {path}") from exc
