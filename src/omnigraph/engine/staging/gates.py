"""One writer at a time per table and branch, within one process.

Gates order the writers of a process so that they rarely meet in storage; they protect nothing across processes, where
the strict table commit and the publish decide. Staging needs no gate; arming, applying, publishing and disarming
happen behind the gates of every table written. Gates are always taken in sorted order, so no two writers wait for
each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import ClassVar

from omnigraph.errors import ConflictError, InternalError
from omnigraph.ids import TableKey

GateKey = tuple[TableKey, str | None]
"""A table and the branch written, None being main."""

WAIT_SECONDS = 60.0


def _order(key: GateKey) -> tuple[str, str]:
    return (key[0], key[1] or "")


class _Gate:
    """A lock that knows its holder, because taking it twice would wait for ever."""

    __slots__ = ("holder", "lock", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: int | None = None
        self.users = 0


class Gates:
    """The gates of one graph in this process; `Gates.at` gives every handle of a root the same ones."""

    _shared: ClassVar[dict[str, Gates]] = {}
    _shared_lock = threading.Lock()

    def __init__(self) -> None:
        self._gates: dict[GateKey, _Gate] = {}
        self._registry = threading.Lock()

    @classmethod
    def at(cls, root: str) -> Gates:
        """The process-wide gates of a canonical root."""
        with cls._shared_lock:
            return cls._shared.setdefault(root, cls())

    def busy(self, keys: Iterable[GateKey]) -> bool:
        """True when somebody holds one of the gates right now; only a hint."""
        with self._registry:
            return any((gate := self._gates.get(key)) is not None and gate.lock.locked() for key in keys)

    def acquire(self, keys: Iterable[GateKey], *, timeout_seconds: float = WAIT_SECONDS) -> HeldGates:
        """Take all gates, in order; nothing is held when this raises.

        Raises:
            ConflictError: another writer of this process kept a table for longer than the timeout.
            InternalError: this thread holds one of them already.
        """
        deadline = time.monotonic() + timeout_seconds
        held: list[tuple[GateKey, _Gate]] = []
        try:
            for key in sorted(set(keys), key=_order):
                gate = self._enter(key)
                if gate.holder == threading.get_ident():
                    self._leave(key, gate)
                    raise InternalError(f"this writer already holds the gate of '{key[0]}'")
                if not gate.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    self._leave(key, gate)
                    raise ConflictError(
                        f"another write kept '{key[0]}' busy for more than {timeout_seconds:g} s — retry later"
                    )
                gate.holder = threading.get_ident()
                held.append((key, gate))
        except BaseException:
            self._release(held)
            raise
        return HeldGates(self, held)

    def _enter(self, key: GateKey) -> _Gate:
        with self._registry:
            gate = self._gates.setdefault(key, _Gate())
            gate.users += 1
            return gate

    def _leave(self, key: GateKey, gate: _Gate) -> None:
        with self._registry:
            gate.users -= 1
            if not gate.users:
                self._gates.pop(key, None)

    def _release(self, held: Iterable[tuple[GateKey, _Gate]]) -> None:
        for key, gate in reversed(list(held)):
            gate.holder = None
            gate.lock.release()
            self._leave(key, gate)


class HeldGates:
    """Gates this writer holds until `release`, or until the `with` block ends."""

    def __init__(self, gates: Gates, held: list[tuple[GateKey, _Gate]]) -> None:
        self._gates, self._held = gates, held

    def covers(self, keys: Iterable[GateKey]) -> bool:
        """True when all of these gates are held."""
        return {key for key, _ in self._held} >= set(keys)

    def release(self) -> None:
        """Open the gates; doing so twice is harmless."""
        held, self._held = self._held, []
        self._gates._release(held)

    def __enter__(self) -> HeldGates:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
