"""The release, and the number of the storage format it writes; readable without importing anything heavy."""

from __future__ import annotations

__version__ = "0.1.0"

STORAGE_FORMAT = 4
"""The internal schema version that this release stamps into `__manifest` and the newest it reads."""
