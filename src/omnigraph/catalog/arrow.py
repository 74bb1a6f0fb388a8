"""The Arrow form of the catalog: the type of each property and the schema of each table.

A Blob has two forms. The *logical* one is plain bytes, which is what loads and exports pass around; the *stored* one,
which tables have, is the struct that Lance's blob columns take, marked by its extension name so that this layer need
not know Lance.

A DateTime has two forms as well. It is stored as milliseconds under the type date64, which other programs take for a
day; results, exports and frames hand it out as `MOMENT`, the same milliseconds under a name everybody reads alike.
"""

from __future__ import annotations

import pyarrow as pa

from omnigraph.catalog.model import EdgeType, NodeType, Property
from omnigraph.catalog.types import PropertyType, Scalar

PRIMARY_KEY_METADATA = {"lance-schema:unenforced-primary-key": "true"}
BLOB_EXTENSION = "lance.blob.v2"
BLOB_METADATA = {"ARROW:extension:name": BLOB_EXTENSION, "ARROW:extension:metadata": ""}
BLOB_STORAGE = pa.struct(
    [("data", pa.large_binary()), ("uri", pa.string()), ("position", pa.uint64()), ("size", pa.uint64())]
)
MOMENT = pa.timestamp("ms", tz="UTC")
"""A DateTime outside the graph."""
_SCALARS = {
    Scalar.STRING: pa.string(),
    Scalar.BLOB: pa.large_binary(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.date64(),
    Scalar.PATH: pa.struct([("nodes", pa.list_(pa.string())), ("edges", pa.list_(pa.string()))]),
}


def arrow_type(kind: PropertyType) -> pa.DataType:
    """The logical column type of a property.

    >>> arrow_type(PropertyType(Scalar.VECTOR, dimension=2))
    FixedSizeListType(fixed_size_list<item: float>[2])
    """
    if kind.scalar is Scalar.VECTOR:
        return pa.list_(pa.field("item", pa.float32()), kind.dimension)
    scalar = _SCALARS[kind.scalar]
    return pa.list_(pa.field("item", scalar)) if kind.is_list else scalar


def outside_type(kind: pa.DataType) -> pa.DataType:
    """The type a stored column has outside the graph: in results, exports and frames.

    >>> outside_type(pa.list_(pa.date64()))
    ListType(list<item: timestamp[ms, tz=UTC]>)
    """
    if pa.types.is_date64(kind):
        return MOMENT
    for is_such, such in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_such(kind) and pa.types.is_date64(kind.value_type):
            return such(kind.value_field.with_type(MOMENT))
    return kind


def outside_field(field: pa.Field) -> pa.Field:
    """A stored column as it is named and typed outside the graph."""
    return field.with_type(outside_type(field.type))


def outside_table(table: pa.Table) -> pa.Table:
    """Stored columns as they are typed outside the graph.

    >>> moments = pa.array([1_500], pa.int64()).view(pa.date64())
    >>> outside_table(pa.table({"at": moments}))["at"].type
    TimestampType(timestamp[ms, tz=UTC])
    """
    return table.cast(pa.schema([outside_field(field) for field in table.schema]))


def property_field(prop: Property) -> pa.Field:
    """The column of one property."""
    if prop.type.scalar is Scalar.BLOB:
        return pa.field(prop.name, BLOB_STORAGE, nullable=prop.type.nullable, metadata=BLOB_METADATA)
    return pa.field(prop.name, arrow_type(prop.type), nullable=prop.type.nullable)


def table_schema(entity: NodeType | EdgeType) -> pa.Schema:
    """The columns of a type's table: `id`, for edges `src` and `dst`, then the properties by name."""
    fields = [pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA)]
    if isinstance(entity, EdgeType):
        fields += [pa.field(name, pa.string(), nullable=False) for name in ("src", "dst")]
    fields += [property_field(entity.properties[name]) for name in sorted(entity.properties)]
    return pa.schema(fields)


def blob_columns(entity: NodeType | EdgeType) -> tuple[str, ...]:
    """The names of a type's Blob properties, which most tables have none of."""
    return tuple(name for name, prop in entity.properties.items() if prop.type.scalar is Scalar.BLOB)
