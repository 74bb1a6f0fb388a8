"""Who is behind an intent, and whether that writer can still act.

An owner is a process: its machine, the boot of that machine, its process number and when it started. On the same
machine death can be proved; elsewhere only a lease that was not renewed tells, and tells less: such a writer may
merely be slow. The difference decides how carefully its intent is taken over.
"""

from __future__ import annotations

import os
import socket
from enum import StrEnum
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from omnigraph.ids import now_micros


class Owner(Struct, frozen=True):
    """One writer process, and until when its silence means nothing (`lease_until`, Unix microseconds)."""

    host: str
    boot_id: str
    pid: int
    process_started: str
    pid_namespace: str = ""
    lease_until: int = 0

    def same_process(self, other: Owner) -> bool:
        """True when both name the same process, whatever their leases say."""
        return replace(self, lease_until=0) == replace(other, lease_until=0)

    def same_machine(self, other: Owner) -> bool:
        """True when process numbers of both can be compared."""
        return (self.host, self.pid_namespace) == (other.host, other.pid_namespace)

    def leased(self, lease_seconds: float) -> Owner:
        """The same process with a lease that starts now."""
        return replace(self, lease_until=now_micros() + int(lease_seconds * 1_000_000))

    def to_json(self) -> dict[str, Any]:
        """The `owner` object of a sidecar."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Owner:
        """Read the `owner` object of a sidecar; members it does not know are ignored."""
        return cls(
            host=str(value["host"]),
            boot_id=str(value["boot_id"]),
            pid=int(value["pid"]),
            process_started=str(value.get("process_started", "")),
            pid_namespace=str(value.get("pid_namespace", "")),
            lease_until=int(value.get("lease_until", 0)),
        )


class Liveness(StrEnum):
    """What is known of an owner: `LIVE` leave it alone; `DEAD` it provably does nothing any more; `SILENT` its lease
    ran out, so it may be taken over, but its last requests may still arrive."""

    LIVE = "live"
    DEAD = "dead"
    SILENT = "silent"


class ProcessFacts(Struct, frozen=True):
    """What this machine says about a process number now; `started` is empty where it does not tell."""

    running: bool
    started: str


def liveness(owner: Owner, here: Owner, process: ProcessFacts, now: int) -> Liveness:
    """Judge an owner from this process's point of view; pure, the caller supplies what it saw."""
    if owner.same_machine(here):
        if owner.boot_id != here.boot_id:
            return Liveness.DEAD
        if not process.running or process.started not in ("", owner.process_started):
            return Liveness.DEAD
    return Liveness.LIVE if now < owner.lease_until else Liveness.SILENT


def observe_process(pid: int) -> ProcessFacts:
    """Look a process up; a zombie whose threads have all ended counts as not running."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *rest = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ProcessFacts(running=_exists(pid), started="")
    ended = state in "ZX" and not _has_living_thread(pid)
    return ProcessFacts(running=not ended, started=rest[18])


def _exists(pid: int) -> bool:
    """Whether a process exists that the process file system does not show, e.g. somebody else's."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _has_living_thread(pid: int) -> bool:
    """A killed process may still finish a system call in one of its threads; only then is it not dead yet."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            return True
    return False


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""


@lru_cache(maxsize=2)
def _identity(pid: int) -> Owner:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    machine = _first_line("/etc/machine-id")
    return Owner(
        host=f"{socket.gethostname()}/{machine}" if machine else socket.gethostname(),
        boot_id=_first_line("/proc/sys/kernel/random/boot_id"),
        pid=pid,
        process_started=observe_process(pid).started,
        pid_namespace=namespace,
    )


def this_process() -> Owner:
    """The owner this process is, without a lease."""
    return _identity(os.getpid())


def judge(owner: Owner) -> Liveness:
    """`liveness` with what this machine says now."""
    here = this_process()
    process = observe_process(owner.pid) if owner.same_machine(here) else ProcessFacts(running=True, started="")
    return liveness(owner, here, process, now_micros())
