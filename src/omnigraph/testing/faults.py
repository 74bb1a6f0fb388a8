"""Make storage fail, or the process die, around the N-th storage operation.

Every durable operation of the engine passes `engine.storage.steps`, so counting N = 1, 2, … until a run meets no fault
visits every place where a crash can happen, also the ones somebody adds tomorrow.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType

from msgspec import Struct

from omnigraph.engine.storage import steps
from omnigraph.testing.failpoints import CRASH_EXIT_CODE, InjectedFailure


class Fault(StrEnum):
    """What happens at the chosen operation.

    `RAISE_BEFORE` it fails without effect; `RAISE_AFTER` it takes effect and its acknowledgement is lost; `OUTAGE`
    it and everything after it fails; `EXIT_BEFORE` and `EXIT_AFTER` end the process on either side of it, and
    after it also if it failed by itself; `INTERRUPT_BEFORE` and `INTERRUPT_AFTER` are Ctrl-C on either side of it.
    """

    RAISE_BEFORE = "raise before"
    RAISE_AFTER = "raise after"
    OUTAGE = "outage"
    EXIT_BEFORE = "exit before"
    EXIT_AFTER = "exit after"
    INTERRUPT_BEFORE = "interrupt before"
    INTERRUPT_AFTER = "interrupt after"

    @property
    def kills(self) -> bool:
        """True when the process does not survive it."""
        return self in (Fault.EXIT_BEFORE, Fault.EXIT_AFTER)

    @property
    def follows(self) -> bool:
        """True when the operation has taken effect by then, so that only those that have one are worth a visit."""
        return self in (Fault.RAISE_AFTER, Fault.INTERRUPT_AFTER)

    @property
    def interrupts(self) -> bool:
        """True when it is raised as an interrupt and has to leave as one."""
        return self in (Fault.INTERRUPT_BEFORE, Fault.INTERRUPT_AFTER)


LOOKS = frozenset(
    {"list_branches", "list_dir", "list_tags", "list_versions", "open", "probe_head", "read_text", "read_transaction"}
)
"""The operations that only look. A fault after one of them meets the same stored state, at the same place, as the
fault before it."""


class Step(Struct, frozen=True):
    """One storage operation that was seen."""

    name: str
    target: str

    @property
    def changes(self) -> bool:
        """True unless the operation only looks."""
        return self.name not in LOOKS


class ChangesAndNext:
    """Counts the operations that change something, and the one that follows each of them.

    They are all places between which what is stored differs. An object is for one run, because it remembers.
    """

    def __init__(self) -> None:
        self._changed = True

    def __call__(self, step: Step) -> bool:
        """True for an operation that counts."""
        counts, self._changed = step.changes or self._changed, step.changes
        return counts


class FaultyStore:
    """Storage that fails at its `at`-th operation, counted from 1; use it as a context manager around a write.

    `only` limits the counted operations; an outage concerns all that come after it, or with `partial` only those that
    are counted. `met` tells afterwards whether the fault happened.
    """

    def __init__(
        self, fault: Fault, at: int, *, only: Callable[[Step], bool] | None = None, partial: bool = False
    ) -> None:
        self.fault, self.at, self.only, self.partial = fault, at, only, partial
        self.seen: list[Step] = []
        self._lock = threading.Lock()
        self._numbers = threading.local()
        self._previous: steps.StepObserver | None = None
        self._observing = False

    @property
    def met(self) -> bool:
        """True when the run was long enough to reach the chosen operation."""
        return len(self.seen) >= self.at

    @property
    def step(self) -> Step | None:
        """The operation the fault hit."""
        return self.seen[self.at - 1] if self.met else None

    def before(self, name: str, target: str) -> None:
        """Count an operation, and act if it is the chosen one."""
        step = Step(name, target)
        if self.only is not None and not self.only(step):
            if self.met and self.fault is Fault.OUTAGE and not self.partial:
                raise InjectedFailure(f"an outage, before {name} of {target}")
            self._push(0, step)
            return
        with self._lock:
            self.seen.append(step)
            number = len(self.seen)
        self._push(number, step)
        if number == self.at and self.fault is Fault.EXIT_BEFORE:
            os._exit(CRASH_EXIT_CODE)
        failing = number == self.at and self.fault is Fault.RAISE_BEFORE
        if failing or (number >= self.at and self.fault is Fault.OUTAGE):
            self._pop(step)
            raise InjectedFailure(f"operation {number}, before {name} of {target}")
        if number == self.at and self.fault is Fault.INTERRUPT_BEFORE:
            self._pop(step)
            self._interrupt()

    def after(self, name: str, target: str) -> None:
        """Act after the chosen operation took effect."""
        if self._pop(Step(name, target)) != self.at:
            return
        if self.fault is Fault.EXIT_AFTER:
            os._exit(CRASH_EXIT_CODE)
        if self.fault is Fault.RAISE_AFTER:
            raise InjectedFailure(f"operation {self.at}, after {name} of {target}")
        if self.fault is Fault.INTERRUPT_AFTER:
            self._interrupt()

    def _interrupt(self) -> None:
        """Interrupt the main thread, at this very operation if it is the one that asks for it."""
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        if self._observing:  # what works behind the calls may come to this after the write is over
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def failed(self, name: str, target: str) -> None:
        """Act after the chosen operation failed by itself; what was to fail has failed already."""
        if self._pop(Step(name, target)) != self.at:
            return
        if self.fault is Fault.EXIT_AFTER:
            os._exit(CRASH_EXIT_CODE)
        if self.fault is Fault.INTERRUPT_AFTER:
            self._interrupt()

    def _push(self, number: int, step: Step) -> None:
        if not hasattr(self._numbers, "stack"):
            self._numbers.stack = []
        self._numbers.stack.append((number, step))

    def _pop(self, step: Step) -> int:
        # An operation that was prevented is never reported as done, so its entry may still lie on top.
        stack: list[tuple[int, Step]] = getattr(self._numbers, "stack", [])
        while stack:
            number, begun = stack.pop()
            if begun == step:
                return number
        return 0

    def __enter__(self) -> FaultyStore:
        self._previous = steps.observe(self)
        self._observing = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._observing = False
        steps.observe(self._previous)


class RecordingStore(FaultyStore):
    """Storage that works, and remembers every operation in order."""

    def __init__(self, only: Callable[[Step], bool] | None = None) -> None:
        super().__init__(Fault.RAISE_BEFORE, 1 << 62, only=only)

    def names(self) -> list[str]:
        """The names of the operations in order."""
        return [step.name for step in self.seen]
