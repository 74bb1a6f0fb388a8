"""The steps of a migration and the plan they form.

Every step knows its JSON form, which the surfaces show and which stays the same for good. Only `UnsupportedChange`
stands for something that cannot be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import asdict

from omnigraph.catalog.identity import annotation_json, type_json
from omnigraph.catalog.model import Annotation, Cardinality
from omnigraph.catalog.types import PropertyType
from omnigraph.errors import SchemaError

_SPELLING = {"from_name": "from", "to_name": "to"}
ROWS_SHOWN_MAX = 20
"""How many of the rows that stand in the way of a step a plan names."""


class Constraint(Struct, frozen=True):
    """`@unique`, `@index`, `@range`, `@check` or `@key` as a value that can be compared and sorted."""

    name: str
    columns: tuple[str, ...]
    facts: tuple[tuple[str, str | float | None], ...] = ()

    @classmethod
    def of(cls, rule: Mapping[str, Any]) -> Constraint:
        """A constraint of the canonical form of a type: one member, named after its kind."""
        ((name, body),) = rule.items()
        if isinstance(body, Mapping):
            facts = tuple((fact, value) for fact, value in sorted(body.items()) if fact != "property")
            return cls(name, (str(body["property"]),), facts)
        return cls(name, tuple(body))

    def to_json(self) -> dict[str, Any]:
        """The same, as the surfaces show it."""
        body: Any = {"property": self.columns[0], **dict(self.facts)} if self.facts else list(self.columns)
        return {self.name: body}

    def __str__(self) -> str:
        facts = dict(self.facts)
        if self.name == "Range":
            low, high = ("" if facts[bound] is None else f"{facts[bound]:g}" for bound in ("min", "max"))
            return f"@range({self.columns[0]}, {low}..{high})"
        if self.name == "Check":
            return f'@check({self.columns[0]}, "{facts["pattern"]}")'
        return f"@{self.name.lower()}({', '.join(self.columns)})"


class BrokenRow(Struct, frozen=True):
    """A row that stands in the way of a step: the id of its entity, and what is wrong with it."""

    id: str
    problem: str


class _Step(Struct, frozen=True):
    """One step; its JSON form is its fields in order, after its kind."""

    kind: ClassVar[str]
    unsaid: ClassVar[frozenset[str]] = frozenset()
    """Fields that the JSON form leaves out where they say nothing."""

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        parts = asdict(self)
        said = {name: value for name, value in parts.items() if value or name not in self.unsaid}
        return {"kind": self.kind, **{_SPELLING.get(name, name): _value_json(value) for name, value in said.items()}}


class _OfType(_Step, frozen=True):
    """A step that concerns a type, which keeps its name."""

    type_kind: str
    type_name: str


class _OfProperty(_OfType, frozen=True):
    """A step that concerns one property, which keeps its name."""

    property_name: str


def _value_json(value: Any) -> Any:
    match value:
        case PropertyType():
            return type_json(value)
        case Annotation():
            return annotation_json(value)
        case Constraint():
            return value.to_json()
        case Cardinality():
            return {"min": value.low, "max": value.high}
        case BrokenRow():
            return {"id": value.id, "problem": value.problem}
        case tuple():
            return [_value_json(item) for item in value]
    return value


class AddType(_Step, frozen=True):
    """A new type; nodes and edges get an empty table."""

    kind = "add_type"
    type_kind: str
    name: str


class RenameType(_Step, frozen=True):
    """A type under a new name; rows and ids stay."""

    kind = "rename_type"
    type_kind: str
    from_name: str
    to_name: str


class AddProperty(_OfProperty, frozen=True):
    """A new property. Existing rows read null, or where it is required the default, which they are given."""

    kind = "add_property"
    unsaid = frozenset({"default"})
    property_type: PropertyType
    default: str | None = None


class RenameProperty(_OfType, frozen=True):
    """A property under a new name; values and constraints follow."""

    kind = "rename_property"
    from_name: str
    to_name: str


class WidenProperty(_OfProperty, frozen=True):
    """A number of a wider type; every value stays what it is."""

    kind = "widen_property"
    property_type: PropertyType


class MakeNullable(_OfProperty, frozen=True):
    """A property that may be null from now on."""

    kind = "make_nullable"


class MakeRequired(_OfProperty, frozen=True):
    """A property that may no longer be null; `rows` that are null are given the default."""

    kind = "make_required"
    unsaid = frozenset({"default", "rows"})
    default: str | None = None
    rows: int = 0


class SetDefault(_OfProperty, frozen=True):
    """Another default, or none (null), for what is written from now on; no row changes."""

    kind = "set_default"
    default: str | None


class AddConstraint(_OfType, frozen=True):
    """A rule that existing rows have to keep already; of an index nothing is built yet."""

    kind = "add_constraint"
    constraint: Constraint


class DropConstraint(_OfType, frozen=True):
    """A rule that no longer holds."""

    kind = "drop_constraint"
    constraint: Constraint


class ChangeCardinality(_OfType, frozen=True):
    """Another `@card`; existing edges have to keep a narrower one already."""

    kind = "change_cardinality"
    from_name: Cardinality
    to_name: Cardinality


class UpdateTypeMetadata(_Step, frozen=True):
    """The descriptions and instructions of a type, all of them as they are now to be."""

    kind = "update_type_metadata"
    type_kind: str
    name: str
    annotations: tuple[Annotation, ...]


class UpdatePropertyMetadata(_OfProperty, frozen=True):
    """The description of a property as it is now to be."""

    kind = "update_property_metadata"
    annotations: tuple[Annotation, ...]


class DropType(_Step, frozen=True):
    """A type leaves the schema with its `rows`; `hard` also removes the older versions of its table."""

    kind = "drop_type"
    unsaid = frozenset({"rows"})
    type_kind: str
    name: str
    mode: str = "soft"
    rows: int = 0


class DropProperty(_OfProperty, frozen=True):
    """A property leaves the schema, and `rows` lose a value; `hard` also removes the older versions of its table."""

    kind = "drop_property"
    unsaid = frozenset({"rows"})
    mode: str = "soft"
    rows: int = 0


class ExtendEnum(_OfProperty, frozen=True):
    """More values for an enum; no row changes."""

    kind = "extend_enum"
    added_values: tuple[str, ...]


class SetEnum(_OfProperty, frozen=True):
    """Other values for an enum, or from text to enum and back (null); existing rows have to be among them already."""

    kind = "set_enum"
    enum_values: tuple[str, ...] | None


class UnsupportedChange(_Step, frozen=True):
    """What stands in the way, with a stable code where one exists.

    Where it is rows, `row_count` says how many there are and `rows` which, the first of them.
    """

    kind = "unsupported_change"
    unsaid = frozenset({"code", "row_count", "rows"})
    entity: str
    reason: str
    code: str | None = None
    row_count: int = 0
    rows: tuple[BrokenRow, ...] = ()


Step = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | WidenProperty
    | MakeNullable
    | MakeRequired
    | SetDefault
    | AddConstraint
    | DropConstraint
    | ChangeCardinality
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | DropType
    | DropProperty
    | ExtendEnum
    | SetEnum
    | UnsupportedChange
)


@dataclass(frozen=True)
class MigrationPlan:
    """The steps between two schemas; no steps means they say the same."""

    steps: tuple[Step, ...]
    other_branches: tuple[str, ...] = ()
    """The branches that have to be deleted before the plan can be applied, whatever its steps."""

    @property
    def is_supported(self) -> bool:
        """True when every step can be done."""
        return not any(isinstance(step, UnsupportedChange) for step in self.steps)

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to do."""
        return not self.steps

    def to_json(self) -> dict[str, Any]:
        """`supported`, which is about the steps alone, `step_count`, `steps` and `other_branches`."""
        return {
            "supported": self.is_supported,
            "step_count": len(self.steps),
            "steps": [step.to_json() for step in self.steps],
            "other_branches": list(self.other_branches),
        }

    def require_supported(self) -> None:
        """Refuse a plan that cannot be applied.

        Raises:
            SchemaError: the first reason, led by its code in brackets where it has one.
        """
        for step in self.steps:
            if isinstance(step, UnsupportedChange):
                prefix = f"[{step.code}] " if step.code else ""
                raise SchemaError(f"{prefix}{step.entity}: {step.reason}")

    def type_renames(self, type_kind: str) -> dict[str, str]:
        """Old name to new name of the renamed types of a kind."""
        return {
            step.from_name: step.to_name
            for step in self.steps
            if isinstance(step, RenameType) and step.type_kind == type_kind
        }

    def property_renames(self, type_kind: str, type_name: str) -> dict[str, str]:
        """Old name to new name of the renamed properties of a type, which is named as desired."""
        return {
            step.from_name: step.to_name
            for step in self.steps
            if isinstance(step, RenameProperty) and (step.type_kind, step.type_name) == (type_kind, type_name)
        }
