"""Memory that was freed goes back to the operating system.

Allocators keep what is freed for the next time. A process that has closed its last graph is better off without it.
"""

from __future__ import annotations

import ctypes
import gc

import pyarrow as pa


def return_memory() -> None:
    """Ask the allocators of this process to give back what nobody uses; where they cannot be asked, nothing happens."""
    # Handles and snapshots refer to each other, so they are freed by a collection and not before.
    gc.collect()
    pa.default_memory_pool().release_unused()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return  # Only one C library has it.
    trim(0)
