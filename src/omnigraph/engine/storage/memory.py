"""Memory that was freed goes back to the operating system.

Allocators keep what is freed for the next time. A process that has closed its last graph is better off without it, if
it is much: looking for it goes through every object of the process, those of the program around us included.
"""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import pyarrow as pa

WORTHWHILE_BYTES = 32 << 20
"""A process that has grown by less since memory was last given back keeps it."""
_STATM = Path("/proc/self/statm")
_least = 0
"""What the process held when memory had just been given back."""


def return_memory() -> None:
    """Ask the allocators of this process to give back what nobody uses; where they cannot be asked, nothing happens."""
    global _least
    held = _resident_bytes()
    if held is not None and held < _least + WORTHWHILE_BYTES:
        _least = min(_least, held)
        return
    # Handles and snapshots refer to each other, so they are freed by a collection and not before.
    gc.collect()
    pa.default_memory_pool().release_unused()
    _trim()
    _least = _resident_bytes() or 0


def _trim() -> None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return  # Only one C library has it.
    trim(0)


def _resident_bytes() -> int | None:
    """What the process holds of the machine's memory; None where the system does not say so this way."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
