"""The types a property can have.

One frozen value, `PropertyType`, stands for everything written after the colon of a property. It knows nothing of
Arrow or JSON; those translations live next to it in `arrow` and `values`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Scalar(StrEnum):
    """The element types of the schema language; `VECTOR` takes its dimension from `PropertyType.dimension`."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    VECTOR = "Vector"
    PATH = "Path"
    """What a query binds with `path`; no property has it."""


INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMERIC = INTEGERS | FLOATS

INTEGER_RANGES: dict[Scalar, tuple[int, int]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}


class PropertyType(Struct, frozen=True):
    """A scalar with its modifiers.

    `enum_values` is sorted and only set on `String`; `dimension` is only set on `Vector`; `is_list` never combines
    with `Blob`, `Vector` or an enum.
    """

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None

    @property
    def is_numeric(self) -> bool:
        """True for one number, false for lists and vectors of them."""
        return self.scalar in NUMERIC and not self.is_list

    @property
    def is_plain(self) -> bool:
        """True for a single comparable value: not a list, vector, blob or path."""
        return not self.is_list and self.scalar not in (Scalar.VECTOR, Scalar.BLOB, Scalar.PATH)

    def with_nullable(self, nullable: bool) -> PropertyType:
        """The same type with other nullability."""
        return PropertyType(self.scalar, nullable, self.is_list, self.enum_values, self.dimension)

    def __str__(self) -> str:
        if self.enum_values is not None:
            core = f"enum({', '.join(self.enum_values)})"
        elif self.scalar is Scalar.VECTOR:
            core = f"Vector({self.dimension})"
        else:
            core = str(self.scalar)
        return f"{'[' + core + ']' if self.is_list else core}{'?' if self.nullable else ''}"
