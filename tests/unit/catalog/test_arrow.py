"""Arrow schemas of tables."""

import lance
import pyarrow as pa

from omnigraph.catalog.arrow import (
    BLOB_METADATA,
    BLOB_STORAGE,
    MOMENT,
    arrow_type,
    blob_columns,
    outside_table,
    table_schema,
)
from omnigraph.catalog.resolve import compile_schema

ALL = (
    "node A { s: String b: Bool i: I32 l: I64 u: U32 w: U64 f: F32 d: F64 day: Date at: DateTime? raw: Blob?"
    " e: enum(x, y) v: Vector(3)? many: [DateTime]? }"
)


def test_every_type_has_its_column_type() -> None:
    schema = table_schema(compile_schema(ALL).nodes["A"])
    assert {field.name: str(field.type) for field in schema} == {
        "id": "string",
        "at": "date64[ms]",
        "b": "bool",
        "d": "double",
        "day": "date32[day]",
        "e": "string",
        "f": "float",
        "i": "int32",
        "l": "int64",
        "many": "list<item: date64[ms]>",
        "raw": str(BLOB_STORAGE),
        "s": "string",
        "u": "uint32",
        "v": "fixed_size_list<item: float>[3]",
        "w": "uint64",
    }
    assert {field.name for field in schema if field.nullable} == {"at", "raw", "v", "many"}


def test_only_id_is_marked_as_primary_key_and_edges_have_ends() -> None:
    schema = table_schema(compile_schema("node A { } edge E: A -> A { w: I32? }").edges["E"])
    assert schema.names == ["id", "src", "dst", "w"]
    assert schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    assert schema.field("src").metadata is None
    assert not schema.field("src").nullable


def test_items_of_lists_and_vectors_are_nullable() -> None:
    properties = compile_schema(ALL).nodes["A"].properties
    assert arrow_type(properties["many"].type).value_field == pa.field("item", pa.date64())
    assert arrow_type(properties["v"].type).value_field == pa.field("item", pa.float32())


def test_a_stored_blob_is_what_lance_calls_a_blob_field(tmp_path: object) -> None:
    entity = compile_schema(ALL).nodes["A"]
    field = table_schema(entity).field("raw")
    ours = lance.blob_field("raw")
    assert field.type == ours.type.storage_type
    assert BLOB_METADATA["ARROW:extension:name"] == ours.type.extension_name
    assert blob_columns(entity) == ("raw",)
    schema = pa.schema([table_schema(entity).field("id"), field])
    dataset = lance.write_dataset(
        pa.table([pa.array(["x"]), pa.array([{"data": b"abc"}], field.type)], schema=schema),
        str(tmp_path),
        data_storage_version="2.2",
    )
    assert dataset.schema.field("raw").type == ours.type
    (blob,) = dataset.take_blobs("raw", indices=[0])
    assert blob.read() == b"abc"


def test_times_are_timestamps_outside_however_they_are_stored() -> None:
    moments = pa.array([1_500, None], pa.int64()).view(pa.date64())
    lists = {"list": pa.ListArray, "large": pa.LargeListArray}
    stored = {"one": moments} | {name: kind.from_arrays([0, 1, 2], moments) for name, kind in lists.items()}
    found = outside_table(pa.table({**stored, "text": ["a", "b"]}))
    assert found.schema.types == [MOMENT, pa.list_(MOMENT), pa.large_list(MOMENT), pa.string()]
    assert found["one"].cast(pa.int64()).to_pylist() == [1_500, None]
    assert found["large"].to_pylist() == found["list"].to_pylist() == [[each] for each in found["one"].to_pylist()]
