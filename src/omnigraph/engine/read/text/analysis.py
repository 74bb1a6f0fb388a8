"""Text as the search functions see it: tokens, stems, and which rows hold them.

The analysis is that of the storage engine's English full-text index, so an index and a scan agree: split on characters
that are neither letters nor digits, drop tokens of 40 bytes or more, lower-case, stem, drop stop words, fold accents.
Splitting works on whole columns; the rest works once per distinct token.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.read.kernels import Ints, ranges
from omnigraph.engine.read.text.unicode_tables import ascii_form, is_word_character

TOKEN_BYTES_MAX = 40
FEW_TEXTS = 16
"""So many texts are analysed one by one, as starting on whole columns takes longer."""
SLICE_BYTES = 64 << 20
"""Longer columns are analysed in slices, because the work needs several times the memory of its text."""
PARTS_MAX = 6
"""Indexes a group of small commits has at most."""
_STOP_TEXT = """
a about above after again against all am an and any are as at be because been before being below between both
but by can did do does doing down during each few for from further had has have having he her here hers
herself him himself his how i if in into is it its itself just me more most my myself now of off on once only
or other our ours ourselves out over own re same she should so some such than that the their theirs them
themselves then there these they this those through to too under until up very was we were what when where
which while who whom why will with you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
"""Compared with stems, so a word whose stem is another word (`others`, `owning`) goes with it."""


class _Stemmers(threading.local):
    """One stemmer per thread, because they are not safe to share; what it says is kept by `normalise`."""

    def __init__(self) -> None:
        self.english = Stemmer.Stemmer("english", 0)


_STEMMERS = _Stemmers()
STEMMER = f"english {Stemmer.version()}"
"""Names what gives the stems: an index that was made by another release of it may hold others."""


def stem(word: str) -> str:
    """The stem of a word in small letters, by the Snowball algorithm for English: `queens` and `queen` meet."""
    return str(_STEMMERS.english.stemWord(word))


@lru_cache(maxsize=262_144)
def normalise(token: str) -> str | None:
    """What a raw token is searched as, or None when it is dropped.

    >>> normalise("QUEENS"), normalise("the"), normalise("Café")
    ('queen', None, 'cafe')
    """
    if len(token.encode()) >= TOKEN_BYTES_MAX:
        return None
    # Letter by letter: the word-final form of sigma is not special here.
    lowered = token.lower() if token.isascii() else "".join(letter.lower() for letter in token)
    stemmed = stem(lowered)
    if stemmed in STOP_WORDS:
        return None
    return stemmed if stemmed.isascii() else fold(stemmed)


def fold(text: str) -> str:
    """Letters without their accents, where an ASCII form exists."""
    return "".join(ascii_form(letter) for letter in text)


def split(text: str) -> list[str]:
    """The raw tokens of one text."""
    return "".join(letter if is_word_character(letter) else " " for letter in text).split(" ")


def analyse(text: str | None) -> list[str]:
    """The tokens of a query text, in order, repeats included.

    >>> analyse("The Queen's speeches")
    ['queen', 's', 'speech']
    """
    if not text:
        return []
    found = (normalise(token) for token in split(text) if token)
    return [token for token in found if token is not None]


class Postings(Struct, frozen=True):
    """Where one word is in one index: positions ascending, how often, and the length of each text."""

    positions: Ints
    counts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]


class TextIndex(Struct, frozen=True, dict=True):
    """The tokens of one text column of one fragment, by token; deleted rows included."""

    tokens: pa.Array
    """Distinct tokens, ascending."""
    offsets: Ints
    """Postings of token i are `offsets[i]` up to `offsets[i + 1]`."""
    rows: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    """Number of tokens of each row."""
    valid: npt.NDArray[np.bool_]
    """Rows whose text is not null."""

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        arrays = (self.offsets, self.rows, self.counts, self.lengths, self.valid)
        return int(self.tokens.nbytes + sum(array.nbytes for array in arrays))

    @cached_property
    def totals(self) -> tuple[int, int]:
        """(rows with a text, tokens in all)."""
        return int(np.count_nonzero(self.valid)), int(self.lengths.sum(dtype=np.int64))

    @cached_property
    def _letters(self) -> tuple[npt.NDArray[Any], memoryview]:
        """Where each token begins, and the bytes of all, one after the other."""
        tokens, (_, bounds, letters) = self.tokens, self.tokens.buffers()
        kind = np.int64 if pa.types.is_large_string(tokens.type) else np.int32
        begins = np.frombuffer(bounds, dtype=kind)[tokens.offset : tokens.offset + len(tokens) + 1]
        return begins, memoryview(b"" if letters is None else letters)

    def find(self, token: str) -> int:
        """The number of a token, or -1."""
        count = len(self.offsets) - 1
        if not count:
            return -1
        begins, letters = self._letters
        sought = token.encode()
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            if bytes(letters[begins[middle] : begins[middle + 1]]) < sought:
                low = middle + 1
            else:
                high = middle
        return low if low < count and bytes(letters[begins[low] : begins[low + 1]]) == sought else -1

    def postings(self, token: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """(rows, occurrences) of a token."""
        span = slice(int(self.offsets[token]), int(self.offsets[token + 1]))
        return self.rows[span], self.counts[span]


def joined(parts: Sequence[TextIndex]) -> TextIndex:
    """One index of the rows of several, put one after the other."""
    tokens = pc.unique(wide.concat([part.tokens for part in parts]))
    tokens = tokens.take(pc.sort_indices(tokens))
    numbers = [
        pc.index_in(part.tokens, value_set=tokens).to_numpy(zero_copy_only=False).astype(np.int64) for part in parts
    ]
    sizes = np.zeros(len(tokens), dtype=np.int64)
    for number, part in zip(numbers, parts, strict=True):
        sizes[number] += np.diff(part.offsets)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    rows, counts = (np.empty(int(offsets[-1]), dtype=np.int32) for _ in range(2))
    # The postings of a token follow each other part by part, so its rows stay ascending and nothing is sorted.
    free, begin = offsets[:-1].copy(), 0
    for number, part in zip(numbers, parts, strict=True):
        length = np.diff(part.offsets)
        places, _ = ranges(free[number], length)
        rows[places], counts[places] = part.rows + np.int32(begin), part.counts
        free[number] += length
        begin += len(part.lengths)
    return TextIndex(
        tokens,
        offsets,
        rows,
        counts,
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.valid for part in parts]),
    )


class TextParts(Struct, frozen=True):
    """The indexes of the rows of a group, in their order.

    Each commit that grows the group brings one of its own. From time to time the last ones, as many as are not much
    larger together than those before them, become one: so there are few, and a row is seldom indexed again.
    """

    parts: tuple[TextIndex, ...]

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        return sum(part.nbytes for part in self.parts)

    def numbered(self) -> Iterator[tuple[int, TextIndex]]:
        """Each index with the row of the group that its first row is."""
        begin = 0
        for part in self.parts:
            yield begin, part
            begin += len(part.lengths)

    def followed_by(self, more: TextParts) -> TextParts:
        """With the rows of others put after these."""
        parts = [*self.parts, *more.parts]
        if len(parts) <= PARTS_MAX:
            return TextParts(tuple(parts))
        first, size = len(parts) - 1, len(parts[-1].lengths)
        while first and (len(parts[first - 1].lengths) <= 2 * size or first >= PARTS_MAX):
            first -= 1
            size += len(parts[first].lengths)
        return TextParts((*parts[:first], joined(parts[first:])))


def build_text_index(texts: pa.Array) -> TextIndex:
    """Analyse a whole column."""
    if len(texts) <= FEW_TEXTS:
        return _index_of_few(texts.to_pylist())
    if wide.extent(texts) > SLICE_BYTES:
        return joined([_index_of_many(part) for part in wide.cuts(texts, len(texts), SLICE_BYTES)])
    return _index_of_many(texts)


def _index_of_many(texts: pa.Array) -> TextIndex:
    """Analyse texts together."""
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    owners, raw = _raw_tokens(texts)
    encoded = pc.dictionary_encode(raw)
    known = [normalise(token) for token in encoded.dictionary.to_pylist()]
    kept = pa.array(known, pa.string())
    tokens = pc.unique(kept.drop_null())
    tokens = tokens.take(pc.sort_indices(tokens))
    number = pc.fill_null(pc.index_in(kept, value_set=tokens), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    ids = number[encoded.indices.to_numpy(zero_copy_only=False)] if len(raw) else np.empty(0, dtype=np.int64)
    held = ids >= 0
    ids, owners = ids[held], owners[held]
    lengths = np.bincount(owners, minlength=len(texts)).astype(np.int32)
    pairs, counts = np.unique(ids * max(len(texts), 1) + owners, return_counts=True)
    offsets = np.searchsorted(pairs, np.arange(len(tokens) + 1, dtype=np.int64) * max(len(texts), 1))
    rows = (pairs % max(len(texts), 1)).astype(np.int32)
    return TextIndex(tokens, offsets.astype(np.int64), rows, counts.astype(np.int32), lengths, valid)


def _index_of_few(texts: list[str | None]) -> TextIndex:
    """Analyse texts one by one."""
    found: dict[bytes, list[tuple[int, int]]] = {}
    lengths = np.zeros(len(texts), dtype=np.int32)
    for row, text in enumerate(texts):
        words = analyse(text)
        lengths[row] = len(words)
        for word, count in Counter(words).items():
            found.setdefault(word.encode(), []).append((row, count))
    tokens = sorted(found)
    pairs = np.array([pair for token in tokens for pair in found[token]], dtype=np.int32).reshape(-1, 2)
    return TextIndex(
        pa.array([token.decode() for token in tokens], pa.string()),
        np.cumsum([0, *(len(found[token]) for token in tokens)], dtype=np.int64),
        np.ascontiguousarray(pairs[:, 0]),
        np.ascontiguousarray(pairs[:, 1]),
        lengths,
        np.array([text is not None for text in texts], dtype=np.bool_),
    )


def _raw_tokens(texts: pa.Array) -> tuple[Ints, pa.Array]:
    """(row, token) for every token of a column, before any normalisation."""
    texts = pc.fill_null(texts, "").cast(pa.large_string())
    bounds = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = texts.buffers()[2]
    letters = np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]] if data is not None else _NO_BYTES
    begins = bounds - bounds[0]
    foreign = np.flatnonzero(letters >= 128)
    others = np.unique(np.searchsorted(begins, foreign, side="right") - 1) if len(foreign) else _NO_ROWS
    owners, tokens = _ascii_tokens(letters, begins)
    if not len(others):
        return owners, tokens
    # Rows with letters beyond ASCII are split by the Unicode rules, as few as they usually are.
    plain = ~np.isin(owners, others)
    lists = pa.array([[t for t in split(text) if t] for text in texts.take(pa.array(others)).to_pylist()])
    lists = lists.cast(pa.list_(pa.large_string()))
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    joined = pa.concat_arrays([tokens.filter(pa.array(plain)), lists.flatten()])
    return np.concatenate((owners[plain], np.repeat(others, sizes))), joined


_NO_BYTES: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
_NO_ROWS: Ints = np.empty(0, dtype=np.int64)
_IS_WORD = np.zeros(256, dtype=np.bool_)
_IS_WORD[[*range(48, 58), *range(65, 91), *range(97, 123)]] = True


def _ascii_tokens(letters: npt.NDArray[np.uint8], begins: Ints) -> tuple[Ints, pa.Array]:
    """Split bytes at everything that is no ASCII letter or digit, and at the ends of rows."""
    if not len(letters):
        return _NO_ROWS, pa.array([], pa.large_string())
    word = _IS_WORD[letters]
    opens = word.copy()
    opens[1:] &= ~word[:-1]
    edges = begins[1:-1]
    edges = edges[edges < len(letters)]
    opens[edges] |= word[edges]
    starts = np.flatnonzero(opens)
    closes = word.copy()
    closes[:-1] &= ~word[1:]
    inner = edges[edges > 0] - 1
    closes[inner] |= word[inner]
    ends = np.flatnonzero(closes) + 1
    sizes = ends - starts
    places, _ = ranges(starts, sizes)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    owners = np.searchsorted(begins, starts, side="right") - 1
    tokens = pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(letters[places]))
    return owners.astype(np.int64), tokens


def within_distance(tokens: pa.Array, word: str, most: int) -> Ints:
    """Which tokens become `word` by at most `most` insertions, deletions and replacements of letters."""
    sizes = pc.utf8_length(tokens).to_numpy(zero_copy_only=False).astype(np.int64)
    found = [_NO_ROWS]
    for size in range(max(0, len(word) - most), len(word) + most + 1):
        which = np.flatnonzero(sizes == size)
        if len(which):
            found.append(which[_distances(tokens.take(pa.array(which)).to_pylist(), size, word) <= most])
    return np.sort(np.concatenate(found))


def _distances(tokens: list[str], size: int, word: str) -> npt.NDArray[Any]:
    """Levenshtein distance from each of several tokens of one size, one table cell of all of them at a time."""
    letters = np.frombuffer("".join(tokens).encode("utf-32-le"), dtype=np.uint32).reshape(len(tokens), size)
    above = [np.full(len(tokens), column, dtype=np.int16) for column in range(len(word) + 1)]
    for row in range(size):
        current = [np.full(len(tokens), row + 1, dtype=np.int16)]
        for column, letter in enumerate(word):
            replaced = above[column] + (letters[:, row] != ord(letter))
            current.append(np.minimum(np.minimum(replaced, above[column + 1] + 1), current[-1] + 1))
        above = current
    return above[-1]
