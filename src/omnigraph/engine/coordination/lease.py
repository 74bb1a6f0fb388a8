"""Until when the silence of a process means nothing: one length for everything that is kept in its name.

Intents, claims, locks and heartbeats are small objects that keep others away. Each names its owner and the moment its
lease runs out, and is stored again long before that by one thread of the process. A process that is gone is seen to be
so on its own machine; on others, and where it merely stands still, the lease tells. So the length is a compromise that
is made once: others wait for so long, and so long may a process be away without losing what it holds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from omnigraph.engine.coordination.owner import Owner, this_process
from omnigraph.errors import GraphError
from omnigraph.ids import now_micros

_log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
GRACE_SECONDS = 300.0
"""How long after a lease of another machine what cannot be given back stays untouched, because clocks differ."""
RENEWED_BELOW = 2 / 3
"""A lease with less than this share left is renewed."""
LOOKS = 6
"""How often the thread looks during one lease."""
_JOIN_SECONDS = 5.0


class Lease:
    """One stored object of this process, renewed while it is kept; `owner` is what it says now.

    `store` writes the object under an owner, and says whether it was still there to be written. `lock` is held while
    it does, so that whoever removes the object under the same lock knows that it does not come back.
    """

    def __init__(
        self,
        store: Callable[[Owner], bool],
        seconds: float = LEASE_SECONDS,
        *,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store, self._wanted, self.seconds = store, wanted, seconds
        self.owner = this_process()
        self.lock = threading.Lock()
        self.ended = False
        """True once it is not to be renewed any more."""

    def begin(self) -> Owner:
        """The owner to store the object with, its lease starting now."""
        self.owner = this_process().leased(self.seconds)
        return self.owner

    @property
    def is_over(self) -> bool:
        """True when others may take what it stands for."""
        return now_micros() >= self.owner.lease_until

    def renew(self, *, below: float = RENEWED_BELOW) -> None:
        """Store the object again if less than this share of its time is left.

        Raises:
            StorageError: it could not be written.
        """
        with self.lock:
            if self.ended or self.owner.lease_until - now_micros() > self.seconds * 1_000_000 * below:
                return
            owner = this_process().leased(self.seconds)
            if self._store(owner):
                self.owner = owner
            else:
                # Somebody has removed the object, and it is not to come back.
                self.ended = True
                KEEPER.drop(self)

    def renew_if_wanted(self) -> None:
        """What the thread does; trouble is logged, because the next look tries again."""
        try:
            if self._wanted():
                self.renew()
        except GraphError as exc:
            _log.warning("a lease of this process could not be renewed: %s", exc)

    def end(self) -> None:
        """Renew it no more, and wait for a renewal that is under way; what is stored stays."""
        self.ended = True
        with self.lock:
            KEEPER.drop(self)


class LeaseKeeper:
    """The leases of this process, and the one thread that keeps them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: set[Lease] = set()
        self._thread: threading.Thread | None = None
        self._asked = threading.Event()
        self._pid = 0

    def keep(self, lease: Lease) -> None:
        """Renew a lease from now on, until it ends."""
        with self._lock:
            if self._pid != this_process().pid:
                # After a fork the child keeps none of its parent's leases, nor has it its threads.
                self._pid, self._kept, self._thread = this_process().pid, set(), None
                self._asked = threading.Event()
            self._kept.add(lease)
            # A thread that an interrupt kept from starting does not live.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._keep, name="omnigraph-leases", daemon=True)
                self._thread.start()
            elif lease.seconds < LEASE_SECONDS:
                self._asked.set()  # It waits for as long as usual, which may be too long.

    def drop(self, lease: Lease) -> None:
        """Forget a lease; harmless when it is not there."""
        with self._lock:
            self._kept.discard(lease)

    def rest(self) -> None:
        """End the thread while there is nothing to keep; the next lease starts another."""
        with self._lock:
            thread = self._thread
            if thread is None or self._kept or self._pid != this_process().pid:
                return
            self._asked.set()
        thread.join(_JOIN_SECONDS)

    def _keep(self) -> None:
        while True:
            with self._lock:
                if self._asked.is_set():
                    self._asked.clear()
                    if not self._kept:
                        self._thread = None
                        return
                kept = tuple(self._kept)
            for lease in kept:
                lease.renew_if_wanted()
            self._asked.wait(min([LEASE_SECONDS, *(lease.seconds for lease in kept)]) / LOOKS)


KEEPER = LeaseKeeper()
