"""Staged files that will certainly never be referenced are removed at once; all others are left to `cleanup`.

Certain are the files of a load that was refused before it had armed anything, and, once a load is published, those that
its last attempt rewrote or copied. Attempts of tasks that did not count left files nobody knows the names of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from omnigraph.engine.ingest.stage import Target
from omnigraph.engine.storage.fragments import fragment_files
from omnigraph.engine.storage.layout import is_local
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ExecutionError, GraphError, InputError, KeyConflictError

_log = logging.getLogger(__name__)


class StagedFiles:
    """The files one load has written, by table, and which of them its newest attempt refers to."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._written: dict[str, set[str]] = {}
        self._used: dict[str, set[str]] = {}

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """A refusal before anything is armed also removes what was staged."""
        try:
            yield
        except (InputError, KeyConflictError):
            self.begin_attempt()
            self.discard()
            raise

    def wrote(self, target: Target, texts: Iterable[str]) -> None:
        """Remember the files of some fragments."""
        self._written.setdefault(target.uri, set()).update(name for text in texts for name in fragment_files(text))

    def require_visible(self) -> None:
        """Make sure that what executors wrote on a disk is on a disk that this process sees.

        Raises:
            ExecutionError: a file is not there.
        """
        if not is_local(self._store.root):
            return
        for uri, names in self._written.items():
            for name in names:
                path = f"{folder_of(self._store, uri)}/{name}"
                if not self._store.objects.exists(path):
                    raise ExecutionError(
                        f"Spark's executors wrote '{path}', which is not there for this process: a graph that Spark"
                        " loads has to lie where the executors and this process both see it, in a shared folder or an"
                        " object store",
                        code="spark_job",
                    )

    def begin_attempt(self) -> None:
        """A new attempt refers to nothing yet, whatever the one before it did."""
        self._used.clear()

    def refer_to(self, target: Target, texts: Iterable[str]) -> None:
        """The attempt commits these fragments where they lie."""
        self._used.setdefault(target.uri, set()).update(name for text in texts for name in fragment_files(text))

    def discard(self) -> None:
        """Remove what the attempt does not refer to; trouble is logged, because `cleanup` removes it as well."""
        for uri, names in self._written.items():
            folder = folder_of(self._store, uri)
            for name in sorted(names - self._used.get(uri, set())):
                try:
                    self._store.objects.delete(f"{folder}/{name}")
                except GraphError as exc:
                    _log.warning("the staged file %s/%s could not be removed: %s", folder, name, exc)
                    return
        self._written.clear()


def folder_of(store: TableStore, table_uri: str) -> str:
    """Where a table's files lie below the root of its graph."""
    return table_uri.removeprefix("file://").removeprefix(store.root.removeprefix("file://")).strip("/")
