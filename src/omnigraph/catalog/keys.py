"""From key values to the id of a node or an edge.

The id of a keyed entity is text derived from its key alone, so that the same entity gets the same id through every
door: loads, mutations and Spark jobs. One column gives its canonical text, several give a compact JSON array of
theirs. Whole columns are converted at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import wide
from omnigraph.catalog.model import EntityType
from omnigraph.errors import ConstraintError, InputError

_JSON_SPECIAL = r'["\\\x00-\x1f]'


def id_from_key(entity: EntityType, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.StringArray:
    """The ids of a batch of entities, from their key columns; those of an edge begin with its ends.

    Raises:
        ConstraintError: a key value is null or not finite.
        InputError: the type has no key.
    """
    if not entity.key:
        raise InputError(f"{entity.name} has no key to derive ids from")
    texts = [key_text(entity, name, columns[name]) for name in entity.key]
    if len(texts) == 1:
        return texts[0]
    quoted = [json_texts(text) for text in texts]
    inner = pc.binary_join_element_wise(*quoted, ",")
    return pc.binary_join_element_wise("[", inner, "]", "")


def key_text(entity: EntityType, name: str, column: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """The canonical text of one key column."""
    values = wide.one_array(column)
    kind = values.type
    if pa.types.is_dictionary(kind):
        return key_text(entity, name, values.dictionary_decode())
    if values.null_count:
        raise ConstraintError(f"{entity.name}.{name} is part of the key and must not be null")
    if pa.types.is_string(kind):
        return values
    if pa.types.is_large_string(kind):
        return values.cast(pa.string())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.string())
    if pa.types.is_date64(kind):
        return values.cast(pa.int64()).cast(pa.string())
    if pa.types.is_floating(kind):
        return _float_text(entity, name, values)
    return values.cast(pa.string())


def _float_text(entity: EntityType, name: str, values: pa.Array) -> pa.StringArray:
    if not pc.all(pc.is_finite(values), min_count=0).as_py():
        raise ConstraintError(f"{entity.name}.{name} is part of the key and must be a finite number")
    text = values.cast(pa.string())
    whole = pc.match_substring_regex(text, r"^-?[0-9]+$")
    text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    return pc.if_else(pc.equal(values, pa.scalar(0, values.type)), "0", text)


def json_texts(texts: pa.StringArray) -> pa.StringArray:
    """Every text as JSON has it; nulls stay null."""
    special = pc.match_substring_regex(texts, _JSON_SPECIAL)
    if pc.any(special, min_count=0).as_py():
        # Few texts hold quotes or control characters, so only those take the slow way.
        escaped = [json.dumps(text, ensure_ascii=False)[1:-1] for text in texts.filter(special).to_pylist()]
        texts = pc.replace_with_mask(texts, special, pa.array(escaped, pa.string()))
    return pc.binary_join_element_wise('"', texts, '"', "")
