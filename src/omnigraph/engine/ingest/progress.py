"""What a running job tells whoever watches.

A job passes through named phases; inside a phase an engine with tasks of its own says how many of them are done.
Nothing here draws: a listener does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from msgspec import Struct, field


@dataclass(frozen=True)
class Progress:
    """One observation: the phase, how far it is in tasks, and the rows counted so far in this job.

    `tasks_total` is 0 while it is not known yet. `note` carries a sentence when there is something to say.
    """

    phase: str
    seconds: float
    tasks_done: int = 0
    tasks_total: int = 0
    rows: int = 0
    note: str = ""

    @property
    def fraction(self) -> float | None:
        """How much of the phase is done, None while that is unknown."""
        return self.tasks_done / self.tasks_total if self.tasks_total else None

    @property
    def rows_per_second(self) -> float:
        """The mean rate since the job began."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


Listener = Callable[[Progress], None]
Observe = Callable[[int, int], None]
"""Hears how many tasks are done, and of how many."""
Watching = Callable[[str, Observe], AbstractContextManager[None]]
"""Observes the tasks of a phase of this name while a block runs."""


class Phases(Struct):
    """Times the phases of one job and passes observations on to the listener."""

    listener: Listener | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.perf_counter)
    _rows: Callable[[], int] = field(default=lambda: 0)
    _opened: dict[str, float] = field(default_factory=dict)

    def count_rows_with(self, rows: Callable[[], int]) -> None:
        """Say where the number of rows counted so far can be read."""
        self._rows = rows

    def say(self, note: str, phase: str = "starting") -> None:
        """Pass a sentence on."""
        self._tell(Progress(phase, self._elapsed(), rows=self._rows(), note=note))

    def open(self, name: str) -> None:
        """Begin a phase that ends elsewhere, with `close`; beginning it again starts it anew."""
        self._opened[name] = time.perf_counter()
        self._tell(Progress(name, self._elapsed(), rows=self._rows()))

    def close(self, name: str) -> None:
        """End a phase begun with `open`."""
        if name in self._opened:
            self.seconds[name] = time.perf_counter() - self._opened.pop(name)

    @contextmanager
    def phase(self, name: str, watching: Watching | None = None) -> Iterator[None]:
        """Time a block under a name; `watching` reports, while it runs, how many of its tasks are done."""
        began = time.perf_counter()
        self._tell(Progress(name, self._elapsed(), rows=self._rows()))

        def observe(done: int, total: int) -> None:
            self._tell(Progress(name, self._elapsed(), done, total, self._rows()))

        try:
            with watching(name, observe) if watching is not None and self.listener is not None else nullcontext():
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def _tell(self, progress: Progress) -> None:
        if self.listener is not None:
            self.listener(progress)

    def _elapsed(self) -> float:
        return time.perf_counter() - self._began


def local_listener(listener: Listener | None) -> Callable[[str, int], None] | None:
    """What the engine in this process reports to: the name of a phase, and the rows read so far."""
    if listener is None:
        return None
    began = time.perf_counter()
    return lambda phase, rows: listener(Progress(phase, time.perf_counter() - began, rows=rows))
