"""A process that stands still before one of its storage operations, for longer than its leases, and then goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

LEASE_SECONDS = 0.01
WRITES = (
    "cleanup_versions",
    "build_index",
    "commit",
    "compact",
    "configure",
    "copy",
    "create",
    "create_branch",
    "delete",
    "delete_prefix",
    "rename_text",
    "restore",
    "write_fragments",
    "write_text",
    "write_text_if_absent",
)
"""The steps that others can see; before the others nothing has changed since the one before."""


class Standing:
    """A process that stands still before its `at`-th step of some names, while something happens elsewhere."""

    def __init__(self, at: int, names: tuple[str, ...] | None, meanwhile: Callable[[], None]) -> None:
        self._at, self._names, self._meanwhile = at, names, meanwhile
        self.seen = 0
        self.met = ""

    def before(self, name: str, target: str) -> None:
        if self._names is not None and name not in self._names:
            return
        self.seen += 1
        if self.seen == self._at:
            self.met = f"{name} of {target}"
            time.sleep(LEASE_SECONDS)
            self._meanwhile()

    def after(self, name: str, target: str) -> None:
        return
