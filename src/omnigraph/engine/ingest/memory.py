"""How much memory this machine has for us."""

from __future__ import annotations

import os


def machine_memory_mb() -> int:
    """Physical memory, or the container's limit where that is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as limit:
            text = limit.read().strip()
    except OSError:
        text = "max"
    return int(min(total, int(text)) if text.isdigit() else total) // 2**20
