"""Tables as columns in memory: every physical row has a position, and properties are fetched by position.

Positions run over the fragments in scan order, deleted rows included, so a column read from a data file serves every
version that has the file; which positions are live belongs to the version. Columns come from the shared cache.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.reading.cache import SHARED, ByteCache
from omnigraph.engine.reading.dictionary import Codes, IdDictionary
from omnigraph.engine.reading.persist import load_dictionary, save_dictionary
from omnigraph.engine.storage.handle import FragmentInfo, TableHandle

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


VALUE_CODES_AFTER = 2
"""How often a text column is grouped by before its codes are made for all rows."""
GROUP_ROWS_MAX = 2048
"""Neighbouring small fragments are read as one group up to this size, so that many commits do not mean many arrays."""


@dataclass(frozen=True)
class Group:
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
T = TypeVar("T", bound="Sized")


class Sized(Protocol):
    """What knows its size in bytes."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        ...


def group_fragments(fragments: tuple[FragmentInfo, ...]) -> tuple[Group, ...]:
    """Pack small neighbours; a fragment that is appended changes the last group only."""
    packed: list[list[FragmentInfo]] = []
    held = GROUP_ROWS_MAX
    for fragment in fragments:
        if held + fragment.physical_rows > GROUP_ROWS_MAX:
            packed.append([])
            held = 0
        packed[-1].append(fragment)
        held += fragment.physical_rows
    return tuple(
        Group(tuple(part), tuple(file for f in part for file in f.files), sum(f.physical_rows for f in part))
        for part in packed
    )


class TableView:
    """One table at one version, read through the shared cache."""

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

    @cached_property
    def key(self) -> str:
        """Names the content of this version for ever: its files and its deletions."""
        names = [self.handle.uri, repr(sorted(self.handle.field_ids.items()))]
        for fragment in self.fragments:
            names.extend(fragment.files)
            names.append(fragment.deletion_key or "")
        # No name contains a line break, and the empty one or a deletion file ends each fragment.
        return hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()

    @property
    def position_count(self) -> int:
        """How many positions there are, deleted rows included."""
        return int(self.starts[-1])

    @cached_property
    def live_count(self) -> int:
        """How many rows a reader sees."""
        return sum(fragment.live_rows for fragment in self.fragments)

    @property
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

    def deleted_offsets(self, fragment: FragmentInfo) -> npt.NDArray[np.int64]:
        """Offsets of the deleted rows of a fragment."""
        return self.cache.get_or_make(
            ("deleted", fragment.files, fragment.deletion_key),
            lambda: self.handle.deleted_offsets(fragment).astype(np.int64),
            lambda made: int(made.nbytes),
        )

    def derived(
        self, part: Part, key_of: Callable[[Part], Any], make: Callable[[Part], T], join: Callable[[T, T], T]
    ) -> T:
        """What follows from the data files of a fragment or group alone, made once.

        A group that has grown by a fragment is what it was before, joined with what is made of the new fragment, so
        that a small commit does not pay for the whole group.
        """
        key = key_of(part)
        found = self.cache.get(key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        held = None
        if isinstance(part, Group) and part.before is not None:
            held = self.cache.get(key_of(part.before))
            part = part if held is None else part.fragments[-1]
        made = make(part) if held is None else join(held, make(part))
        self.cache.put(key, made, int(made.nbytes))
        return made

    def chunk(self, part: Part, column: str) -> pa.Array:
        """One column of one fragment or group as one array, deleted rows included."""

        def make(part: Part) -> pa.Array:
            if isinstance(part, FragmentInfo):
                return self.read(part, (column,))[column]
            if len(part.fragments) == 1:
                return self.read(part.fragments[0], (column,))[column]
            return pa.concat_arrays([self.chunk(fragment, column) for fragment in part.fragments])

        return self.derived(
            part, lambda part: self._column_key(part, column), make, lambda held, more: pa.concat_arrays([held, more])
        )

    def read(self, fragment: FragmentInfo, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Read columns of one fragment together, which costs hardly more than reading one."""
        table = self.handle.read_fragment_columns(fragment, list(columns))
        found = {}
        for column in columns:
            array = found[column] = _one_array(table.column(column))
            self.cache.put(self._column_key(fragment, column), array, array.nbytes)
        return found

    def _column_key(self, part: Part, column: str) -> tuple[Any, ...]:
        return ("column", part.files, self.handle.field_ids.get(column, column))

    def value_codes(self, column: str) -> npt.NDArray[np.int32]:
        """A String column as small integers by position: equal where the texts are, 0 where there is none.

        The integers come from a dictionary all versions share, so after a commit only new files are looked at.
        """
        memo: dict[str, npt.NDArray[np.int32]] = self.handle.memo.setdefault("value codes", {})
        found = memo.get(column)
        if found is None:
            # One dictionary for all groups: the cache may drop it at any moment, and codes of two do not mix.
            dictionary: IdDictionary = self.cache.get_or_make(
                ("values", self.handle.uri, self.handle.field_ids.get(column, column)),
                IdDictionary,
                lambda made: max(made.nbytes, 4096),
            )
            parts = [self._chunk_value_codes(group, column, dictionary) for group in self.groups]
            found = memo[column] = np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
        return found

    def has_value_codes(self, column: str) -> bool:
        """Whether `value_codes` would cost nothing, or the column has been asked for often enough to be worth it."""
        if column in self.handle.memo.get("value codes", ()):
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
            group, lambda part: ("value codes", dictionary.lineage, part.files, field_id), make, _append
        )

    def take(self, column: str, positions: npt.NDArray[Any]) -> pa.Array:
        """The values of a column at the given positions, in their order."""
        if not len(positions) or not self.groups:
            return pa.array([], self.handle.schema.field(column).type)
        if len(positions) == 1:
            # One row is the commonest case of all, and a slice costs nothing.
            place = int(np.searchsorted(self.group_starts, positions[0], side="right")) - 1
            return self.chunk(self.groups[place], column).slice(int(positions[0] - self.group_starts[place]), 1)
        if len(self.groups) == 1:
            return take_rows(self.chunk(self.groups[0], column), positions)
        owner = np.searchsorted(self.group_starts, positions, side="right") - 1
        first = int(owner[0])
        if np.all(owner == first):
            return take_rows(self.chunk(self.groups[first], column), positions - self.group_starts[first])
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
        return pa.concat_arrays(parts).take(pa.array(back))


class NodeView(TableView):
    """A node table whose rows are also addressed by the codes of its id dictionary."""

    @cached_property
    def dictionary(self) -> IdDictionary:
        """The dictionary all snapshots of this table share."""
        return dictionary_of(self.handle, self.cache)

    @cached_property
    def codes(self) -> Codes:
        """The code of the id at each position, deleted rows included."""
        parts = [self.chunk_codes(group) for group in self.groups]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def chunk_codes(self, group: Group) -> Codes:
        """The codes of one group's ids."""
        return file_codes(self, group, "id", self.dictionary)

    def codes_at(self, positions: Ints) -> Ints:
        """The codes at some positions; for one of them the codes of the whole table need not exist."""
        if len(positions) == 1 and "codes" not in self.__dict__:
            place = int(np.searchsorted(self.group_starts, positions[0], side="right")) - 1
            codes = self.chunk_codes(self.groups[place])
            return np.asarray(codes[positions - self.group_starts[place]], dtype=np.int64)
        return np.asarray(self.codes[positions], dtype=np.int64)

    @cached_property
    def code_bound(self) -> int:
        """Above every code of this version: how many the dictionary had given out when all its ids were in it."""
        for group in self.groups:
            self.chunk_codes(group)
        return len(self.dictionary)

    def keep_dictionary(self) -> None:
        """Leave the dictionary on disk for the next process."""
        codes = [self.chunk_codes(group) for group in self.groups]
        save_dictionary(self.handle, self.dictionary, [group.files for group in self.groups], codes)

    @cached_property
    def live_codes(self) -> Ints:
        """The codes of the live rows, in position order."""
        codes = self.codes if self.all_live else self.codes[self.live]
        return codes.astype(np.int64)

    @cached_property
    def positions(self) -> npt.NDArray[np.int32]:
        """For each code the position of its row, or -1 when this version has no such node."""
        codes = self.codes
        where = np.full(self.code_bound, -1, dtype=np.int32)
        key = ("positions", self.handle.uri, self.dictionary.lineage)
        held: tuple[tuple[FragmentInfo, ...], npt.NDArray[np.int32]] | None = self.cache.get(key)
        if held is not None and self._only_adds_to(held[0]):
            where[: len(held[1])] = held[1][: len(where)]
            first = int(self.starts[len(held[0])])
            where[codes[first:]] = np.arange(first, self.position_count, dtype=np.int32)
        elif self.all_live:
            where[codes] = np.arange(self.position_count, dtype=np.int32)
        else:
            where[self.live_codes] = np.flatnonzero(self.live)
        self.cache.put(key, (self.fragments, where), int(where.nbytes))
        return where

    def _only_adds_to(self, older: tuple[FragmentInfo, ...]) -> bool:
        """Whether this version is another one, given by its fragments, and further fragments without deletions."""
        count = len(older)
        return self.fragments[:count] == older and not any(part.deleted_rows for part in self.fragments[count:])

    @cached_property
    def is_complete(self) -> bool:
        """True when every code of the dictionary, as it was when first asked, is a node of this version."""
        return self.live_count == self.code_bound

    def position_of(self, codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Positions of codes known to be present."""
        return np.asarray(self.positions[codes])

    def present(self, codes: npt.NDArray[Any]) -> Bools:
        """Which codes are nodes of this version; codes given out later are not."""
        inside = codes < len(self.positions)
        if bool(inside.all()):
            return np.asarray(self.positions[codes] >= 0)
        return inside & (self.positions[np.where(inside, codes, 0)] >= 0)

    def lookup(self, entity_id: str) -> int:
        """The code of a node of this version, or -1."""
        positions = self.positions
        code = self.dictionary.code(entity_id)
        if code < 0 or code >= len(positions) or positions[code] < 0:
            return -1
        return code


class EdgeView(TableView):
    """An edge table."""

    def end_codes(
        self, fragments: Sequence[FragmentInfo], sources: IdDictionary, targets: IdDictionary
    ) -> tuple[Codes, Codes]:
        """The codes of the edge ends of several fragments, one after the other; what is not known is read together."""
        wanted = [
            (fragment, column, ("codes", dictionary.lineage, fragment.files, column), dictionary)
            for column, dictionary in (("src", sources), ("dst", targets))
            for fragment in fragments
        ]
        found: dict[tuple[Any, ...], Any] = {key: self.cache.get(key) for _, _, key, _ in wanted}
        for dictionary in {id(sources): sources, id(targets): targets}.values():
            missing = [(f, column, key) for f, column, key, d in wanted if d is dictionary and found[key] is None]
            found |= self._encode_ends(missing, dictionary)
        ends = [found[key] for _, _, key, _ in wanted]
        return np.concatenate(ends[: len(fragments)]), np.concatenate(ends[len(fragments) :])

    def _encode_ends(
        self, missing: Sequence[tuple[FragmentInfo, str, tuple[Any, ...]]], dictionary: IdDictionary
    ) -> dict[tuple[Any, ...], Codes]:
        chunks = []
        for fragment, column, _ in missing:
            if self.cache.get(self._column_key(fragment, column)) is None:
                # Both ends will be wanted, and reading two columns costs hardly more than reading one.
                self.read(fragment, ("src", "dst"))
            chunks.append(self.chunk(fragment, column))
        if not chunks:
            return {}
        codes = dictionary.encode(pa.chunked_array(chunks, pa.string()))
        cuts = np.cumsum([len(chunk) for chunk in chunks])[:-1]
        made = {key: part for (_, _, key), part in zip(missing, np.split(codes, cuts), strict=True)}
        for key, part in made.items():
            self.cache.put(key, part, int(part.nbytes))
        return made


def file_codes(view: TableView, part: Part, column: str, dictionary: IdDictionary) -> Codes:
    """An id column of a fragment or group as codes; made once per data file and dictionary."""
    return view.derived(
        part,
        lambda part: ("codes", dictionary.lineage, part.files, column),
        lambda part: dictionary.encode(view.chunk(part, column)),
        _append,
    )


def _append(held: npt.NDArray[np.int32], more: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.concatenate((held, more))


_DICTIONARIES: weakref.WeakValueDictionary[str, IdDictionary] = weakref.WeakValueDictionary()
_DICTIONARIES_LOCK = threading.Lock()


def dictionary_of(handle: TableHandle, cache: ByteCache = SHARED) -> IdDictionary:
    """The process-wide dictionary of a node table; it lives as long as some view of the table does."""
    with _DICTIONARIES_LOCK:
        found = _DICTIONARIES.get(handle.uri)
        if found is None:
            found = _DICTIONARIES[handle.uri] = load_dictionary(handle, cache) or IdDictionary()
        return found


def node_view(handle: TableHandle) -> NodeView:
    """The view of a handle, made once for as long as the handle lives."""
    found = handle.memo.get("nodes")
    if found is None:
        found = handle.memo["nodes"] = NodeView(handle)
    return found


def edge_view(handle: TableHandle) -> EdgeView:
    """The view of a handle, made once for as long as the handle lives."""
    found = handle.memo.get("edges")
    if found is None:
        found = handle.memo["edges"] = EdgeView(handle)
    return found


def take_rows(array: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    """Rows of an array; numbers without nulls go by way of numpy, which is several times quicker for a few rows."""
    if array.null_count == 0 and (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return pa.array(array.to_numpy()[rows], array.type)
    return array.take(pa.array(rows))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        # Text of more than two gigabytes in one fragment needs the wide offsets.
        combined = column.cast(pa.large_string()).combine_chunks()
    return combined
