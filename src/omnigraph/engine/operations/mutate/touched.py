"""The ids that one statement touches, and what of them is told."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.engine.operations.outcomes import TouchedIds

IDS_MAX = 1_000
"""Ids that are told of one statement."""


class Touched(Struct):
    """Ids as they are found; of a statement about a type they are told in ascending order, else as they came."""

    ascending: bool = False
    _parts: list[pa.Array] = field(default_factory=list)

    def add(self, ids: pa.Array | pa.ChunkedArray) -> None:
        """Note some ids."""
        self._parts.append(wide.one_array(ids))

    def shown(self) -> TouchedIds:
        """At most so many ids, and whether there are more."""
        count = sum(map(len, self._parts))
        if not count:
            return TouchedIds()
        if not self.ascending:
            return TouchedIds(tuple(_first(self._parts)), count > IDS_MAX)
        ids = wide.concat(self._parts)
        if count > IDS_MAX:
            ids = wide.take(ids, pc.select_k_unstable(ids, IDS_MAX, [("", "ascending")]))
        return TouchedIds(tuple(sorted(ids.to_pylist())), count > IDS_MAX)


def _first(parts: list[pa.Array]) -> list[str]:
    found: list[str] = []
    for part in parts:
        found += part.slice(0, IDS_MAX - len(found)).to_pylist()
    return found
