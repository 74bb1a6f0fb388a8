"""One writer at a time per table and branch, within one process.

Gates order the writers of a process so that they rarely meet in storage. Writers of other processes on the machine are
asked to take turns (`turns`), but nothing is protected from them here: the strict table commit and the publish decide.
Arming, applying, publishing and disarming happen behind the gates of every table written; staging needs none. Gates
are always taken in sorted order, so no two writers wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import ClassVar

from omnigraph.engine.staging.turns import Turns
from omnigraph.errors import ConflictError, InternalError
from omnigraph.ids import TableKey

GateKey = tuple[TableKey, str | None]
"""A table and the branch written, None being main."""

WAIT_SECONDS = 60.0
TURN_SECONDS = 5.0
"""How long a writer of another process is given its turn before this one goes on without."""


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

    def __init__(self, turns: Turns | None = None) -> None:
        self._gates: dict[GateKey, _Gate] = {}
        self._registry = threading.Lock()
        self._turns = turns

    @classmethod
    def at(cls, root: str) -> Gates:
        """The process-wide gates of a canonical root."""
        with cls._shared_lock:
            if root not in cls._shared:
                cls._shared[root] = cls(Turns(root))
            return cls._shared[root]

    def busy(self, keys: Iterable[GateKey]) -> bool:
        """True when somebody holds one of the gates, or has the turn, right now; only a hint."""
        wanted = list(keys)
        with self._registry:
            if any(key in self._gates for key in wanted):
                return True
            return self._turns is not None and self._turns.busy(wanted)

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
                if self._turns is not None:
                    self._turns.take(key, min(deadline, time.monotonic() + TURN_SECONDS))
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
            if self._turns is not None:
                self._turns.give(key)
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
