"""Texts of Arrow columns that a caller or a file hands over: they say that they are UTF-8, and need not be.

Neither Arrow nor Parquet looks at the bytes of a text, and what is not UTF-8 can be stored and then neither read nor
compacted. So they are looked at once, where they enter; a valid column costs a fraction of what writing it does.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FAULTS_MAX = 100
NOT_UTF8 = "the text is not valid Unicode: its bytes are not UTF-8"


def text_faults(column: pa.Array) -> list[tuple[int, str]]:
    """The first rows of texts, of lists of texts or of blobs' references that are no UTF-8, and what to say of them."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if not _is_text(kind.value_type):
            return []
        found = _invalid_rows(column.flatten())
        if not found:
            return []
        parents = np.asarray(pc.list_parent_indices(column))
        return [(int(parents[row]), f"item: {NOT_UTF8}") for row in found]
    if pa.types.is_struct(kind) and kind.get_field_index("uri") >= 0:
        column = column.field("uri")
    return [(row, NOT_UTF8) for row in _invalid_rows(column)] if _is_text(column.type) else []


def id_texts(column: pa.Array) -> pa.Array | None:
    """A column of ids as text: numbers without a fraction in digits, as a key of that number is; None for others."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count == len(column):
        # An empty frame has no texts that would tell its type.
        return pa.nulls(len(column), pa.string())
    if pa.types.is_floating(column.type):
        # Frame libraries make floats of integers where they have no other way to say that some are missing.
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
    if pa.types.is_integer(column.type) or _is_text(column.type):
        return column.cast(pa.string())
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_valid(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _invalid_rows(texts: pa.Array) -> list[int]:
    """The first invalid rows, found by halving what holds one, so that a good column is looked at once."""
    rows: list[int] = []
    parts = [(0, len(texts))]
    while parts and len(rows) < FAULTS_MAX:
        start, stop = parts.pop()
        if _is_valid(texts[start:stop]):
            continue
        if stop - start == 1:
            rows.append(start)
            continue
        middle = (start + stop) // 2
        parts += [(middle, stop), (start, middle)]
    return rows
