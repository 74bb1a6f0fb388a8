"""Columns come and go without a row being rewritten.

A table's columns are numbered, and files name columns by number. So a column that is renamed keeps its number, one
that is dropped is merely no longer named, and a new one gets a number that no file has and reads as null. All of it
is one transaction that changes the list of columns alone.

A column whose values change, because its type is wider or because rows without a value are given one, becomes a new
column of the old name: each fragment gets a file with that column and keeps its others, so no other value is written
again, row ids stay, and earlier versions read the old column. The table notes which column a new one continues.

Lance commits such transactions on top of whatever happened since, so their writer first takes the table by a strict
commit. How columns are described and numbered is Lance's own business, and stands in `lance_internals.columns`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation, batch_udf
from lance.fragment import FragmentMetadata
from lance.schema import LanceSchema
from msgspec import Struct

from omnigraph.engine.storage.handle import GIVEN, HIGHEST_FIELD, ORIGINS, TableHandle
from omnigraph.engine.storage.lance_internals.columns import Column, columns_of, schema_of
from omnigraph.engine.storage.lance_internals.files import data_file, file_name
from omnigraph.engine.storage.staged import StagedWrite
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.translate import translated
from omnigraph.errors import InternalError

_READ_FOR_LENGTH = "id"
"""The column that is read where a new one follows from none: every table has it, and it tells the number of rows."""


_COUNTED = {pa.date32(): pa.int32(), pa.date64(): pa.int64()}
"""What days and milliseconds are counted in."""


def as_stored(value: pa.Scalar) -> Any:
    """A value as the facts of a schema have it."""
    counted = _COUNTED.get(value.type)
    return value.as_py() if counted is None else pa.array([value]).view(counted)[0].as_py()


def from_stored(value: Any, type: pa.DataType) -> pa.Scalar:
    """The value that facts of a schema have, as a column of a type has it, which may be wider than it was then."""
    counted = _COUNTED.get(type)
    return pa.scalar(value, type) if counted is None else pa.array([value], counted).view(type)[0]


class Fill(Struct, frozen=True):
    """Where the values of a column come from: from an old one, cast, and a default where there is none."""

    name: str
    source: str | None
    type: pa.DataType
    default: pa.Scalar | None = None

    @property
    def column(self) -> str:
        """The column of the table that has to be read."""
        return _READ_FOR_LENGTH if self.source is None else self.source

    def values(self, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        """The column for some rows of the table as it is."""
        if self.source is None:
            return pa.repeat(self.default, rows.num_rows)
        found = rows.column(self.source)
        found = found if found.type == self.type else found.cast(self.type)
        return found if self.default is None else pc.fill_null(found, self.default)


def stage_columns(
    base: TableHandle, target: pa.Schema, renames: Mapping[str, str], fills: Sequence[Fill] = ()
) -> StagedWrite:
    """Stage the columns a table is to have, in their order; `renames` maps old names to new ones.

    A column of `target` that the table does not have is new, and null in every row unless `fills` gives it values. One
    that stays keeps its type unless it is filled anew, and takes the nullability that `target` says.

    Raises:
        InternalError: a new column without values cannot be null.
    """
    with translated(f"changing the columns of {base.path}"):
        metadata, columns = columns_of(base.dataset.lance_schema)
        facts = json.loads(metadata) if metadata else {}
        # Lance writes the facts of a schema as lists of bytes.
        highest = max(int(bytes(facts.get(HIGHEST_FIELD, b"0"))), int(base.dataset.max_field_id))
        chosen = _Chosen({renames.get(column.name, column.name): column for column in columns}, highest)
        filled = {fill.name: fill for fill in fills}
        has_rows = bool(base.fragments())
        for field in target:
            chosen.add(field, filled.get(field.name), base, may_be_required=not has_rows)
        facts[HIGHEST_FIELD] = list(str(chosen.highest).encode())
        origins = {**base.column_origins, **{new: base.field_ids[old] for new, old in chosen.origins.items()}}
        if origins:
            facts[ORIGINS] = list(json.dumps({str(new): old for new, old in sorted(origins.items())}).encode())
        given = _given(base, fills, chosen.numbers)
        if given:
            facts[GIVEN] = list(json.dumps({str(number): value for number, value in sorted(given.items())}).encode())
        schema = schema_of(json.dumps(facts), chosen.messages)
        if not fills or not has_rows:
            return StagedWrite(base.version, LanceOperation.Project(schema), 0, 0)
        fragments = _filled_fragments(base, [(fill, chosen.numbers[fill.name]) for fill in fills])
    files = tuple(data_file(file_name(fragment.files[-1])) for fragment in fragments)
    return StagedWrite(base.version, LanceOperation.Merge(fragments, schema), 0, 0, files)


def _given(base: TableHandle, fills: Sequence[Fill], numbers: Mapping[str, int]) -> dict[int, Any]:
    """What rows were given, with these fills; what they were given first stays, because a default may change."""
    found = {}
    for fill in fills:
        if fill.default is not None:
            first = numbers[fill.name] if fill.source is None else base.first_numbers[fill.source]
            found[first] = as_stored(fill.default)
    return found | base.column_given


class _Chosen:
    """The columns a table is to have, as far as they are chosen."""

    def __init__(self, known: Mapping[str, Column], highest: int) -> None:
        self._known, self.highest = known, highest
        self.messages: list[bytes] = []
        self.numbers: dict[str, int] = {}
        self.origins: dict[int, str] = {}

    def add(self, field: pa.Field, fill: Fill | None, base: TableHandle, *, may_be_required: bool) -> None:
        """Choose the next column: one there is, or a new one that continues another or none."""
        if field.name in self._known and fill is None:
            self.messages.extend(self._known[field.name].named(field.name, nullable=field.nullable))
            return
        if fill is None and not (field.nullable or may_be_required):
            raise InternalError(f"column '{field.name}' of {base.path} is new and cannot be required")
        (column,) = columns_of(LanceSchema.from_pyarrow(pa.schema([field])))[1]
        self.numbers[field.name] = self.highest + 1
        if fill is not None and fill.source is not None:
            self.origins[self.highest + 1] = fill.source
        self.messages.extend(column.numbered(self.highest + 1))
        self.highest += len(column.messages)


def _filled_fragments(base: TableHandle, fills: Sequence[tuple[Fill, int]]) -> list[FragmentMetadata]:
    """Every fragment with one more file, which holds the filled columns under the numbers they are given."""
    schema = pa.schema([(f"@{number}", fill.type) for fill, number in fills])

    @batch_udf(output_schema=schema)  # type: ignore[untyped-decorator]
    def fill_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([fill.values(rows) for fill, _ in fills], schema=schema)

    read = sorted({fill.column for fill, _ in fills})
    found = []
    for fragment in base.dataset.get_fragments():
        with step("fill_columns", base.path):
            filled, _ = fragment.merge_columns(fill_batch, columns=read)
        # Lance numbers the new columns itself, and may give numbers that columns before them had.
        filled.files[-1].fields = [number for _, number in fills]
        found.append(filled)
    return found
