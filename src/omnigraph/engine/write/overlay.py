"""The images one write has made so far, searched by value while statements keep adding to them.

A statement of a mutation sees what the earlier ones wrote. Going through all of that for each statement would make a
program of many statements cost the square of their number, so the images are indexed as they come: the latest few in
a dictionary by id, the others in runs of columns that are searched as committed columns are. Runs are joined when a
later one has grown as large, so there are few of them and each row is copied a few times at most. An image that a later
one of the same id replaces is marked in its run and left out when runs are joined. `PendingTable.final_images` works
the same out from everything at once.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.engine.rules.validate import repeated_rows
from omnigraph.engine.storage.columns import CachedColumn, Offsets
from omnigraph.engine.storage.handle import Addresses
from omnigraph.engine.values.temporal import Mask
from omnigraph.engine.write.asked import Asked, narrowed

TAIL_ROWS = 1_024
"""Images that are found by a dictionary; with more of them they become a run of columns."""
TAIL_PIECES = 64
"""Pieces in which the latest images lie; with more of them they are put into one."""
LIST_IDS = 256
"""Ids that are looked up one by one; more of them are compared as a column."""

Marks: TypeAlias = npt.NDArray[np.uint8]


class Images(Struct):
    """Images with what is known of the committed rows under them."""

    rows: pa.Table
    under: Marks
    addresses: Addresses
    ids_differ: bool

    def chosen(self, mask: Mask) -> Images:
        """Those a mask selects."""
        if mask.all():
            return self
        return Images(wide.filter_rows(self.rows, mask), self.under[mask], self.addresses[mask], self.ids_differ)

    def last_of_each(self) -> Images:
        """The last image of every id, in the order written."""
        if self.ids_differ or self.rows.num_rows < 2:
            return self
        ids = wide.one_array(self.rows.column("id"))
        keep = np.ones(len(ids), dtype=np.bool_)
        keep[len(ids) - 1 - repeated_rows(wide.take(ids, np.arange(len(ids) - 1, -1, -1)))] = False
        return self.chosen(keep)

    @staticmethod
    def joined(parts: list[Images]) -> Images:
        """Images one after the other, each column in one piece; no id may occur twice among them."""
        first = parts[0].rows.schema
        rows = wide.compacted(pa.concat_tables([part.rows.cast(first) for part in parts]))
        under = np.concatenate([part.under for part in parts])
        return Images(rows, under, np.concatenate([part.addresses for part in parts]), True)


class _Run(Struct):
    """A run of images whose columns are searched as committed ones are."""

    images: Images
    alive: Mask
    columns: dict[str, CachedColumn] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.alive)

    def column(self, name: str) -> CachedColumn:
        found = self.columns.get(name)
        if found is None:
            found = self.columns[name] = CachedColumn(_flat(self.images.rows, name))
        return found

    def matching(self, asked: Asked) -> Offsets:
        if asked.probe is not None:
            column = self.column(asked.probe.column)
            offsets = column.find(asked.probe.array(column.values.type))
            offsets = offsets[self.alive[offsets]]
        else:
            offsets = np.flatnonzero(self.alive).astype(np.int64)
        return narrowed(offsets, lambda name: self.column(name).values, (*asked.tests, *asked.risky))

    def living(self) -> Images:
        return self.images.chosen(self.alive)


class Overlay:
    """The last image of every id a write has changed, indexed as images are added."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._tail: list[Images] = []
        self._alive: list[bool] = []
        self._places: dict[str, int] = {}

    def add(self, images: Images) -> None:
        """Take in images, which replace earlier ones of the same ids."""
        latest = images.last_of_each()
        count = latest.rows.num_rows
        if not count:
            return
        ids = _flat(latest.rows, "id")
        for run in self._runs:
            run.alive[run.column("id").find(ids)] = False
        if count >= TAIL_ROWS:
            self._hide_in_tail(ids)
            self._flush()
            self._push(latest)
            return
        for position, text in enumerate(ids.to_pylist(), start=len(self._alive)):
            before = self._places.get(text)
            if before is not None:
                self._alive[before] = False
            self._places[text] = position
        self._alive.extend([True] * count)
        self._tail.append(latest)
        if len(self._alive) >= TAIL_ROWS:
            self._flush()
        elif len(self._tail) >= TAIL_PIECES:
            self._tail = [Images.joined(self._tail)]

    def matching(self, asked: Asked) -> Images | None:
        """The images that are meant now, in the order written; None when there are none."""
        parts = []
        for run in self._runs:
            offsets = run.matching(asked)
            if len(offsets):
                parts.append(_at(run.images, offsets))
        places = self._matching_tail(asked)
        if len(places):
            parts.append(_at(Images.joined(self._tail), places))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else Images.joined(parts)

    def has(self, ids: pa.Array) -> Mask:
        """For each id, whether this write has made an image of it."""
        found = np.zeros(len(ids), dtype=np.bool_)
        if not len(ids):
            return found
        for run in self._runs:
            held = run.column("id")
            offsets = held.find(ids)
            if len(offsets):
                found |= np.asarray(pc.is_in(ids, value_set=wide.take(held.values, offsets)))
        if self._places and len(ids) <= LIST_IDS:
            found |= np.fromiter((text in self._places for text in ids.to_pylist()), np.bool_, len(ids))
        elif self._places:
            found |= np.asarray(pc.is_in(ids, value_set=pa.array(list(self._places), pa.string())))
        return found

    def _matching_tail(self, asked: Asked) -> Offsets:
        if not self._tail:
            return np.empty(0, dtype=np.int64)

        def columns(name: str) -> pa.Array:
            return wide.concat([_flat(piece.rows, name) for piece in self._tail])

        alive = np.array(self._alive, dtype=np.bool_)
        probe = asked.probe
        if probe is None:
            offsets = np.flatnonzero(alive).astype(np.int64)
        elif probe.column == "id" and len(probe.values) <= LIST_IDS:
            places = {self._places[text] for text in probe.values.to_pylist() if text in self._places}
            offsets = np.array(sorted(places), dtype=np.int64)
        else:
            held = columns(probe.column)
            hits = pc.is_in(held, value_set=probe.array(held.type), skip_nulls=True)
            offsets = np.flatnonzero(np.asarray(hits) & alive).astype(np.int64)
        return narrowed(offsets, columns, (*asked.tests, *asked.risky))

    def _hide_in_tail(self, ids: pa.Array) -> None:
        if not self._places:
            return
        kept = list(self._places)
        hidden = np.asarray(pc.is_in(pa.array(kept, pa.string()), value_set=ids))
        for place in np.flatnonzero(hidden).tolist():
            self._alive[self._places[kept[place]]] = False

    def _flush(self) -> None:
        """Make a run of the latest images."""
        if not self._tail:
            return
        images = Images.joined(self._tail).chosen(np.array(self._alive, dtype=np.bool_))
        self._tail, self._alive, self._places = [], [], {}
        if images.rows.num_rows:
            self._push(images)

    def _push(self, images: Images) -> None:
        self._runs.append(_Run(images, np.ones(images.rows.num_rows, dtype=np.bool_)))
        while len(self._runs) > 1 and self._runs[-2].size <= self._runs[-1].size:
            later, earlier = self._runs.pop(), self._runs.pop()
            joined = Images.joined([earlier.living(), later.living()])
            self._runs.append(_Run(joined, np.ones(joined.rows.num_rows, dtype=np.bool_)))


def _at(images: Images, offsets: Offsets) -> Images:
    rows = wide.take_rows(images.rows, offsets)
    return Images(rows, images.under[offsets], images.addresses[offsets], True)


def _flat(rows: pa.Table, name: str) -> pa.Array:
    return wide.one_array(rows.column(name))
