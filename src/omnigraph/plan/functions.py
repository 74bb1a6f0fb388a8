"""The table of functions: one entry says everything about a function.

An entry names a function and what it takes. A *scalar* function also says what it gives and how whole columns of it are
computed, and that is all there is to adding one. Search functions and aggregates have their own operators in a plan;
their entries say how a call becomes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct

from omnigraph.catalog.types import INTEGERS, NUMERIC, PropertyType, Scalar
from omnigraph.language import query_ast as ast

Kernel = Callable[..., Any]
"""Computes a column from columns: Arrow arrays, or Arrow scalars for arguments that are the same on every row."""
ResultType = Callable[[Sequence[PropertyType]], PropertyType]
Lower = Callable[[Any, ast.ExpressionSyntax, Any], Any]
"""From a written expression, with the scope and the place it stands in, to an operator."""
Lowering = Callable[[Any, ast.Call, Any, Lower], Any]
"""The same for a call; what lowers its arguments comes along."""


class Takes(Enum):
    """What an argument may be."""

    STRING = "a String"
    NUMBER = "a number"
    INTEGER = "an integer"
    MOMENT = "a Date or DateTime"
    DATETIME = "a DateTime"
    LIST = "a list"
    PLAIN = "a plain value"
    PATH = "a path"
    STRING_OR_PATH = "a String or a path"
    NUMBER_OR_STRING = "a number or a String"

    def fits(self, kind: PropertyType) -> bool:
        """Whether a value of this type may be given."""
        if self is Takes.LIST:
            return kind.is_list
        if kind.is_list:
            return False
        return kind.is_plain if self is Takes.PLAIN else kind.scalar in _TAKES[self]


_TAKES: Mapping[Takes, frozenset[Scalar]] = {
    Takes.STRING: frozenset({Scalar.STRING}),
    Takes.NUMBER: NUMERIC,
    Takes.INTEGER: INTEGERS,
    Takes.MOMENT: frozenset({Scalar.DATE, Scalar.DATETIME}),
    Takes.DATETIME: frozenset({Scalar.DATETIME}),
    Takes.PATH: frozenset({Scalar.PATH}),
    Takes.STRING_OR_PATH: frozenset({Scalar.STRING, Scalar.PATH}),
    Takes.NUMBER_OR_STRING: NUMERIC | {Scalar.STRING},
}


class Family(Enum):
    """Where a function may stand."""

    SCALAR = "anywhere"
    TEXT = "conditions and results"
    RANK = "results and orders"
    AGGREGATE = "results"


class Function(Struct, frozen=True):
    """One entry of the table."""

    name: str
    takes: tuple[Takes, ...] = ()
    gives: ResultType | None = None
    kernel: Kernel | None = None
    family: Family = Family.SCALAR
    lowering: Lowering | None = None
    """How a call becomes an operator of its own; None makes it a `FunctionCall`."""
    optional: int = 0
    """How many of the last arguments may be left out."""
    repeats: bool = False
    """Whether the last argument may be given any number of times."""
    may_fail: bool = False
    """Whether some values make it fail; then it is never asked about rows that are gone."""
    check: Callable[[Sequence[Any]], str | None] | None = None
    """What is wrong with the constants among the arguments, if anything; seen before anything runs."""
    summary: str = ""

    @property
    def least(self) -> int:
        """How many arguments a call has at least."""
        return len(self.takes) - self.optional

    def accepts_count(self, count: int) -> bool:
        """Whether a call may have so many arguments."""
        return self.least <= count and (self.repeats or count <= len(self.takes))

    def taken(self, place: int) -> Takes:
        """What the argument at a place may be."""
        return self.takes[min(place, len(self.takes) - 1)]


TABLE: dict[str, Function] = {}
"""Every function by name."""


def register(*functions: Function) -> None:
    """Add entries to the table."""
    for function in functions:
        TABLE[function.name] = function


def names(families: Iterable[Family] = tuple(Family)) -> list[str]:
    """The names of the functions of some families, in order."""
    wanted = frozenset(families)
    return sorted(name for name, function in TABLE.items() if function.family in wanted)


def strict(scalar: Scalar, *, is_list: bool = False) -> ResultType:
    """A type that is null exactly where an argument is."""

    def gives(kinds: Sequence[PropertyType]) -> PropertyType:
        return PropertyType(scalar, nullable=any(kind.nullable for kind in kinds), is_list=is_list)

    return gives


def never_null(scalar: Scalar) -> ResultType:
    """A type that is never null."""
    return lambda kinds: PropertyType(scalar)


def maybe_null(scalar: Scalar) -> ResultType:
    """A type that may be null whatever the arguments are."""
    return lambda kinds: PropertyType(scalar, nullable=True)


def number_of(kinds: Sequence[PropertyType]) -> PropertyType:
    """I64 for integers, F64 for floats."""
    kind = kinds[0]
    return PropertyType(Scalar.I64 if kind.scalar in INTEGERS else Scalar.F64, nullable=any(k.nullable for k in kinds))
