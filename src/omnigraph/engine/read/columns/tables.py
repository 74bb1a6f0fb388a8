"""Tables as columns in memory: every physical row has a position, and properties are fetched by position.

Positions run over the fragments in scan order, deleted rows included, so a column read from a data file serves every
version that has the file; which positions are live belongs to the version. Columns come from the shared cache.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.read.columns.dictionary import IdDictionary
from omnigraph.engine.read.text.analysis import TextIndex
from omnigraph.engine.storage.cache import DELETED, SHARED, ByteCache, column_key
from omnigraph.engine.storage.handle import FragmentInfo, TableHandle
from omnigraph.engine.storage.packing import packs
from omnigraph.engine.storage.sorted_values import SortedValues

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


VALUE_CODES_AFTER = 2
"""How often a text column is grouped by before its codes are made for all rows."""
FEW_ROWS = 64
"""So many rows are fetched one by one from a column that is not in memory, if the column is long."""
COLD_ROWS_MIN = 200_000
"""Groups below this are read whole, which takes no longer than fetching a few rows."""
FETCH_BYTES = 512 << 10
"""How much of a column could be read whole in the time that fetching from one fragment takes."""
FETCHED_ROW_BYTES = 8 << 10
"""And in the time that each row of it takes. A column is read whole once fetching has cost as much as that would."""
FETCHED_BESIDE_BYTES = 4
"""And in the time that each deleted row of its fragment adds to that, which Lance counts for every row it takes."""
GATHERED_ROWS = 128
"""So many numbers are gathered one by one where they lie in several groups."""
GROWN_MAX = 16
"""A group that has grown by more fragments than this is made anew."""
GROUP_ROWS_MAX = 2048
"""Neighbouring small fragments are read as one group up to this size, so that many commits do not mean many arrays."""


class Group(Struct, frozen=True, dict=True):
    """Fragments that are handled as one array: a large one alone, or small ones that follow each other."""

    fragments: tuple[FragmentInfo, ...]
    files: tuple[str, ...]
    physical_rows: int

    @cached_property
    def before(self) -> Group | None:
        """The group as it was before its last fragment came, None for a single fragment."""
        if len(self.fragments) == 1:
            return None
        *kept, last = self.fragments
        files = self.files[: len(self.files) - len(last.files)]
        return Group(tuple(kept), files, self.physical_rows - last.physical_rows)


Part = FragmentInfo | Group
Derivation = Callable[["TableView", str], object]
T = TypeVar("T", bound="Sized")


class Sized(Protocol):
    """What knows its size in bytes."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        ...


def group_fragments(fragments: tuple[FragmentInfo, ...]) -> tuple[Group, ...]:
    """Pack small neighbours; a fragment that is appended changes the last group only."""
    return tuple(
        Group(tuple(part), tuple(file for f in part for file in f.files), sum(f.physical_rows for f in part))
        for part in packs(fragments, lambda fragment: fragment.physical_rows, GROUP_ROWS_MAX)
    )


class TextCodes(Struct, frozen=True):
    """A String column as small integers by position, and the dictionary they come from."""

    codes: npt.NDArray[np.int32]
    dictionary: IdDictionary


class TableView:
    """One table at one version, read through the shared cache, and what queries have derived from this version.

    What is kept here follows from one handle, which never changes; what follows from data files alone, and so serves
    other versions as well, is in the cache.
    """

    def __init__(self, handle: TableHandle, cache: ByteCache = SHARED) -> None:
        self.handle = handle
        self.cache = cache
        self.fragments: tuple[FragmentInfo, ...] = handle.fragments()
        sizes = np.array([fragment.physical_rows for fragment in self.fragments], dtype=np.int64)
        self.starts: Ints = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        """Position of each fragment's first row, and the number of positions at the end."""
        self.groups = group_fragments(self.fragments)
        totals = np.array([group.physical_rows for group in self.groups], dtype=np.int64)
        self.group_starts: Ints = np.concatenate(([0], np.cumsum(totals))).astype(np.int64)
        """Position of each group's first row, and the number of positions at the end."""
        self.text_codes: dict[str, TextCodes] = {}
        """By column, what `value_codes` has made."""
        self.sorted_values: dict[str, list[SortedValues]] = {}
        """By column, the values of each group in order."""
        self.text_indexes: dict[str, list[tuple[int, TextIndex]]] = {}
        """By column, its text indexes, each with the position of its first row."""
        self.text_statistics: dict[str, tuple[int, float]] = {}
        """By column, how many live rows have a text, and the mean number of tokens."""
        self._numbers: dict[str, dict[int, npt.NDArray[Any] | None]] = {}
        self._remade: dict[tuple[Derivation, str], None] = {}

    def remake(self, derive: Derivation, column: str) -> None:
        """Have something that was derived from a column derived again for the next version, too."""
        self._remade[derive, column] = None

    def follow(self, before: TableView) -> None:
        """Derive what had been derived from the version before, so that the first query finds it made."""
        for derive, column in list(before._remade):
            derive(self, column)

    @cached_property
    def indexed_columns(self) -> frozenset[str]:
        """The columns that the table itself has an index of, for looking up one value."""
        found = [index.columns for index in self.handle.indexes() if index.kind.upper() == "BTREE"]
        return frozenset(columns[0] for columns in found if len(columns) == 1)

    def rows_changed_since(self, before: TableView) -> int:
        """How many rows were written, deleted or moved between two versions, at most."""
        then = {fragment.files: fragment for fragment in before.fragments}
        changed = 0
        for fragment in self.fragments:
            old = then.pop(fragment.files, None)
            changed += fragment.physical_rows if old is None else abs(fragment.deleted_rows - old.deleted_rows)
        return changed + sum(fragment.physical_rows for fragment in then.values())

    @cached_property
    def key(self) -> str:
        """Names the content of this version for ever: its files and its deletions."""
        names = [self.handle.uri, repr(sorted(self.handle.field_ids.items()))]
        for fragment in self.fragments:
            names.extend(fragment.files)
            names.append(fragment.deletion_key or "")
        # No name contains a line break, and the empty one or a deletion file ends each fragment.
        return hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()

    @cached_property
    def position_count(self) -> int:
        """How many positions there are, deleted rows included."""
        return int(self.starts[-1])

    @cached_property
    def live_count(self) -> int:
        """How many rows a reader sees."""
        return sum(fragment.live_rows for fragment in self.fragments)

    @cached_property
    def all_live(self) -> bool:
        """True when no row is deleted."""
        return self.live_count == self.position_count

    @cached_property
    def live(self) -> Bools:
        """Which positions hold a row of this version."""
        mask = np.ones(self.position_count, dtype=np.bool_)
        for start, fragment in zip(self.starts, self.fragments, strict=False):
            if fragment.deleted_rows:
                mask[start + self.deleted_offsets(fragment)] = False
        return mask

    @cached_property
    def deleted_positions(self) -> Ints:
        """The positions that hold no row of this version, ascending."""
        parts = [
            start + self.deleted_offsets(fragment)
            for start, fragment in zip(self.starts, self.fragments, strict=False)
            if fragment.deleted_rows
        ]
        return np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)

    def is_live(self, positions: npt.NDArray[Any]) -> Bools:
        """Which of some positions hold a row of this version; for a few of them only their fragments are looked at."""
        if "live" in self.__dict__ or len(positions) > FEW_ROWS:
            return np.asarray(self.live[positions])
        owner = (np.searchsorted(self.starts, positions, side="right") - 1).tolist()
        found = [
            not fragment.deleted_rows or offset not in self.deleted_offsets(fragment)
            for fragment, offset in (
                (self.fragments[place], position - self.starts[place])
                for place, position in zip(owner, positions.tolist(), strict=True)
            )
        ]
        return np.array(found, dtype=np.bool_)

    def deleted_offsets(self, fragment: FragmentInfo) -> npt.NDArray[np.int64]:
        """Offsets of the deleted rows of a fragment of this version."""
        if not fragment.deleted_rows:
            return np.empty(0, dtype=np.int64)
        return self.cache.get_or_make(
            _deleted_key(fragment),
            lambda: self.handle.deleted_offsets(fragment).astype(np.int64),
            lambda made: int(made.nbytes),
        )

    def deleted_then(self, fragment: FragmentInfo) -> npt.NDArray[np.int64] | None:
        """The same of a fragment as another version has it, while that is remembered: only that version can tell."""
        if not fragment.deleted_rows:
            return np.empty(0, dtype=np.int64)
        found: npt.NDArray[np.int64] | None = self.cache.get(_deleted_key(fragment))
        return found

    def derived(
        self, part: Part, key_of: Callable[[Part], Any], make: Callable[[Part], T], join: Callable[[T, T, int], T]
    ) -> T:
        """What follows from the data files of a fragment or group alone, made once.

        A group that has grown by some fragments is what it was before, joined with what is made of each new one, so
        that a small commit does not pay for the whole group; nor does one that takes a fragment out of it. `join`
        hears how many rows it is adding to, because only here is it known which fragments are joined already.
        """
        key = key_of(part)
        found = self.cache.get(key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        held, earlier, grown = None, part, 0
        while held is None and grown < GROWN_MAX and isinstance(earlier, Group) and earlier.before is not None:
            earlier, grown = earlier.before, grown + 1
            held = self.cache.get(key_of(earlier))
        if held is None or not isinstance(part, Group):
            made = make(part)
        else:
            made, start = held, earlier.physical_rows
            for fragment in part.fragments[-grown:]:
                made = join(made, make(fragment), start)
                start += fragment.physical_rows
        self.cache.put(key, made, int(made.nbytes))
        return made

    def chunk(self, part: Part, column: str) -> pa.Array:
        """One column of one fragment or group as one array, deleted rows included."""

        def make(part: Part) -> pa.Array:
            if isinstance(part, FragmentInfo):
                return self.read(part, (column,))[column]
            if len(part.fragments) == 1:
                return self.read(part.fragments[0], (column,))[column]
            return wide.concat([self.chunk(fragment, column) for fragment in part.fragments])

        return self.derived(
            part,
            lambda part: self._column_key(part, column),
            make,
            lambda held, more, _: wide.concat([held, more]),
        )

    def held(self, part: Part, column: str) -> pa.Array | None:
        """What `chunk` would give without reading anything, or None."""
        return self.cache.get(self._column_key(part, column))

    def read(self, fragment: FragmentInfo, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Read columns of one fragment together, which costs hardly more than reading one."""
        table = self.handle.read_fragment_columns(fragment, list(columns))
        found = {}
        for column in columns:
            array = found[column] = wide.one_array(table.column(column))
            self.cache.put(self._column_key(fragment, column), array, array.nbytes)
        return found

    def _take_stored(self, column: str, positions: npt.NDArray[Any]) -> pa.Array | None:
        """A few values straight from the store, while the column is not in memory and not worth reading whole.

        How wide the column is, and so how much reading it would take, is told by the values fetched so far.
        """
        if not self.is_cold(column, positions):
            return None
        key = ("fetched", self.handle.uri, self.handle.field_ids.get(column, column))
        spent, rows, size = self.cache.get(key) or (0, 0, 0)
        if spent and spent * rows >= size * self.position_count:
            return None
        owner = np.searchsorted(self.starts, positions, side="right") - 1
        ids = np.array([self.fragments[place].id for place in owner.tolist()], dtype=np.uint64)
        addresses = (ids << np.uint64(32)) | (positions - self.starts[owner]).astype(np.uint64)
        found = wide.one_array(self.handle.take_addresses(addresses, [column]).column(column))
        beside = sum([self.fragments[place].deleted_rows for place in owner.tolist()])
        spent += len(set(owner.tolist())) * FETCH_BYTES + len(positions) * FETCHED_ROW_BYTES
        spent += beside * FETCHED_BESIDE_BYTES
        self.cache.put(key, (spent, rows + len(positions), size + found.nbytes), 64)
        return found

    def is_cold(self, column: str, positions: npt.NDArray[Any]) -> bool:
        """Whether getting these rows of a column would mean reading a large part of the table."""
        places = np.searchsorted(self.group_starts, positions, side="right") - 1
        return any(
            self.groups[place].physical_rows >= COLD_ROWS_MIN
            and self.cache.get(self._column_key(self.groups[place], column)) is None
            for place in set(places.tolist())
        )

    def _column_key(self, part: Part, column: str) -> tuple[Any, ...]:
        return column_key(part.files, self.handle.field_ids.get(column, column))

    def value_codes(self, column: str) -> npt.NDArray[np.int32]:
        """A String column as small integers by position: equal where the texts are, 0 where there is none.

        The integers come from a dictionary all versions share, so after a commit only new files are looked at.
        """
        found = self.text_codes.get(column)
        if found is None:
            # One dictionary for all groups: the cache may drop it at any moment, and codes of two do not mix.
            dictionary: IdDictionary = self.cache.get_or_make(
                ("values", self.handle.uri, self.handle.field_ids.get(column, column)),
                IdDictionary,
                lambda made: max(made.nbytes, 4096),
            )
            parts = [self._chunk_value_codes(group, column, dictionary) for group in self.groups]
            codes = np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
            # Whichever thread comes first: whoever asks for the order afterwards must get that of these codes.
            found = self.text_codes.setdefault(column, TextCodes(codes, dictionary))
            self.remake(TableView.value_codes, column)
        return found.codes

    def value_order(self, column: str) -> npt.NDArray[np.int64] | None:
        """For each integer of `value_codes` one that orders as the texts do; None while these are not known."""
        found = self.text_codes.get(column)
        return None if found is None else found.dictionary.order()

    def known_texts(self, column: str, positions: npt.NDArray[Any]) -> list[str] | None:
        """The texts at some positions, by `value_codes` that were made before; None while there are none."""
        found = self.text_codes.get(column)
        if found is None:
            return None
        chosen = found.codes[positions]
        if not chosen.all():
            return None  # Code 0 is no text at all.
        return found.dictionary.texts_of((chosen - 1).tolist())

    def has_value_codes(self, column: str) -> bool:
        """Whether `value_codes` would cost nothing, or the column has been asked for often enough to be worth it."""
        if column in self.text_codes:
            return True
        key = ("value codes asked", self.handle.uri, self.handle.field_ids.get(column, column))
        asked = (self.cache.get(key) or 0) + 1
        self.cache.put(key, asked, 64)
        return asked > VALUE_CODES_AFTER

    def _chunk_value_codes(self, group: Group, column: str, dictionary: IdDictionary) -> npt.NDArray[np.int32]:
        field_id = self.handle.field_ids.get(column, column)

        def make(part: Part) -> npt.NDArray[np.int32]:
            texts = self.chunk(part, column)
            codes = np.zeros(len(texts), dtype=np.int32)
            if texts.null_count:
                codes[texts.is_valid().to_numpy(zero_copy_only=False)] = dictionary.encode(texts.drop_null()) + 1
            else:
                codes[:] = dictionary.encode(texts) + 1
            return codes

        return self.derived(
            group, lambda part: ("value codes", dictionary.lineage, part.files, field_id), make, append_codes
        )

    def take(self, column: str, positions: npt.NDArray[Any]) -> pa.Array:
        """The values of a column at the given positions, in their order."""
        if not len(positions) or not self.groups:
            return pa.array([], self.handle.schema.field(column).type)
        if len(positions) <= FEW_ROWS and self.position_count >= COLD_ROWS_MIN:
            stored = self._take_stored(column, positions)
            if stored is not None:
                return stored
        if len(positions) == 1:
            # One row is the commonest case of all, and a slice costs nothing.
            position = int(positions[0])
            place = 0 if len(self.groups) == 1 else int(self.group_starts.searchsorted(position, side="right")) - 1
            group = self.groups[place]
            chunk = self.cache.get(self._column_key(group, column))
            chunk = self.chunk(group, column) if chunk is None else chunk
            return chunk.slice(position - int(self.group_starts[place]), 1)
        if len(self.groups) == 1:
            return take_rows(self.chunk(self.groups[0], column), positions)
        owner = np.searchsorted(self.group_starts, positions, side="right") - 1
        first = int(owner[0])
        if np.all(owner == first):
            return take_rows(self.chunk(self.groups[first], column), positions - self.group_starts[first])
        if len(positions) <= GATHERED_ROWS:
            gathered = self._gathered(column, owner, positions - self.group_starts[owner])
            if gathered is not None:
                return gathered
        order = np.argsort(owner, kind="stable")
        sorted_owner = owner[order]
        cuts = np.concatenate(([0], np.flatnonzero(np.diff(sorted_owner)) + 1, [len(order)]))
        parts = []
        for begin, end in itertools.pairwise(cuts):
            which = int(sorted_owner[begin])
            offsets = positions[order[begin:end]] - self.group_starts[which]
            parts.append(take_rows(self.chunk(self.groups[which], column), offsets))
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return wide.take(wide.concat(parts), back)

    def _gathered(self, column: str, owner: Ints, offsets: Ints) -> pa.Array | None:
        """Numbers of a few rows from several groups, one by one; None when one of the groups has nulls.

        Going through the groups takes a few calls for each, which for a few rows is more than the rows are worth.
        """
        kind = self.handle.schema.field(column).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return None
        held = self._numbers.setdefault(column, {})
        places = owner.tolist()
        for place in set(places):
            if place not in held:
                chunk = self.chunk(self.groups[place], column)
                held[place] = None if chunk.null_count else chunk.to_numpy(zero_copy_only=False)
            if held[place] is None:
                return None
        values = [held[place][offset] for place, offset in zip(places, offsets.tolist(), strict=True)]  # type: ignore[index]
        return pa.array(np.array(values), kind)


def _deleted_key(fragment: FragmentInfo) -> tuple[Any, ...]:
    return (DELETED, fragment.files, fragment.deletion_key)


def append_codes(held: npt.NDArray[np.int32], more: npt.NDArray[np.int32], _: int) -> npt.NDArray[np.int32]:
    """The codes of a group that has grown."""
    return np.concatenate((held, more))


def take_rows(array: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    """Rows of an array; numbers without nulls go by way of numpy, which is several times quicker for a few rows."""
    if array.null_count == 0 and (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return pa.array(array.to_numpy(zero_copy_only=False)[rows], array.type)
    return wide.take(array, rows)
