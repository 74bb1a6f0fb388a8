"""Which indexes a schema asks for.

One function answers for both the builder and the check whether anything is missing. Indexes never change a result;
they only make some of them faster.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.catalog.types import Scalar


class IndexKind(StrEnum):
    """What an index is good for: equality and ranges, words, or nearness."""

    BTREE = "BTREE"
    TEXT = "INVERTED"
    VECTOR = "IVF_FLAT"


class IndexSpec(Struct, frozen=True):
    """One index of one column."""

    column: str
    kind: IndexKind

    @property
    def name(self) -> str:
        """The name it has in storage."""
        suffix = {IndexKind.BTREE: "btree", IndexKind.TEXT: "text", IndexKind.VECTOR: "vector"}[self.kind]
        return f"{self.column}_{suffix}"


def declared_indexes(entity: NodeType | EdgeType) -> tuple[IndexSpec, ...]:
    """The indexes a type should have, by column then kind.

    Ids and edge endpoints always; of a node's `@index` and `@key` declarations those over one column. A String gets a
    word index, and as a key also one for equality; lists and blobs get none.
    """
    columns = ("id", "src", "dst") if isinstance(entity, EdgeType) else ("id",)
    found = {IndexSpec(column, IndexKind.BTREE) for column in columns}
    if isinstance(entity, NodeType):
        for group in (*entity.indexes, *((entity.key,) if entity.key else ())):
            if len(group) == 1:
                found.update(_for_property(entity, group[0], is_key=group == entity.key))
    return tuple(sorted(found, key=lambda spec: (spec.column, spec.kind)))


def _for_property(entity: NodeType, column: str, *, is_key: bool) -> set[IndexSpec]:
    type_ = entity.properties[column].type
    if type_.is_list or type_.scalar is Scalar.BLOB:
        return set()
    if type_.scalar is Scalar.VECTOR:
        return {IndexSpec(column, IndexKind.VECTOR)}
    if type_.scalar is Scalar.STRING and type_.enum_values is None:
        text = {IndexSpec(column, IndexKind.TEXT)}
        return text | {IndexSpec(column, IndexKind.BTREE)} if is_key else text
    return {IndexSpec(column, IndexKind.BTREE)}
