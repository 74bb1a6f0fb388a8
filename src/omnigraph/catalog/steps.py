"""The steps of a migration and the plan they form.

Every step knows its JSON form, which the surfaces show and which stays the same for good. Only `UnsupportedChange`
stands for something that cannot be done.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from omnigraph.catalog.identity import annotation_json, type_json
from omnigraph.catalog.model import Annotation
from omnigraph.catalog.types import PropertyType
from omnigraph.dataclass import dataclass
from omnigraph.errors import SchemaError

_SPELLING = {"from_name": "from", "to_name": "to"}


@dataclass(frozen=True)
class _Step:
    """One step; its JSON form is its fields in order, after its kind."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        parts = {_SPELLING.get(part.name, part.name): getattr(self, part.name) for part in fields(self)}
        return {"kind": self.kind, **{name: _value_json(value) for name, value in parts.items()}}


def _value_json(value: Any) -> Any:
    if isinstance(value, PropertyType):
        return type_json(value)
    if isinstance(value, tuple):
        return [annotation_json(item) if isinstance(item, Annotation) else item for item in value]
    return value


@dataclass(frozen=True)
class AddType(_Step):
    """A new type; nodes and edges get an empty table."""

    kind = "add_type"
    type_kind: str
    name: str


@dataclass(frozen=True)
class RenameType(_Step):
    """A type under a new name; rows and ids stay."""

    kind = "rename_type"
    type_kind: str
    from_name: str
    to_name: str


@dataclass(frozen=True)
class AddProperty(_Step):
    """A new nullable property; existing rows read null."""

    kind = "add_property"
    type_kind: str
    type_name: str
    property_name: str
    property_type: PropertyType


@dataclass(frozen=True)
class RenameProperty(_Step):
    """A property under a new name; values and constraints follow."""

    kind = "rename_property"
    type_kind: str
    type_name: str
    from_name: str
    to_name: str


@dataclass(frozen=True)
class AddIndex(_Step):
    """A declared index, the only constraint that can be added to existing data; nothing is built yet."""

    kind = "add_constraint"
    type_kind: str
    type_name: str
    columns: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it, where an index is one of many constraints."""
        body = super().to_json()
        columns = body.pop("columns")
        return {**body, "constraint": {"Index": columns}}


@dataclass(frozen=True)
class UpdateTypeMetadata(_Step):
    """The descriptions and instructions of a type, all of them as they are now to be."""

    kind = "update_type_metadata"
    type_kind: str
    name: str
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True)
class UpdatePropertyMetadata(_Step):
    """The description of a property as it is now to be."""

    kind = "update_property_metadata"
    type_kind: str
    type_name: str
    property_name: str
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True)
class DropType(_Step):
    """A type leaves the schema; `hard` also removes the older versions of its table."""

    kind = "drop_type"
    type_kind: str
    name: str
    mode: str = "soft"


@dataclass(frozen=True)
class DropProperty(_Step):
    """A property leaves the schema; `hard` also removes the older versions of its table."""

    kind = "drop_property"
    type_kind: str
    type_name: str
    property_name: str
    mode: str = "soft"


@dataclass(frozen=True)
class ExtendEnum(_Step):
    """More values for an enum; no row changes."""

    kind = "extend_enum"
    type_kind: str
    type_name: str
    property_name: str
    added_values: tuple[str, ...]


@dataclass(frozen=True)
class UnsupportedChange(_Step):
    """What stands in the way, with a stable code where one exists."""

    kind = "unsupported_change"
    entity: str
    reason: str
    code: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it, without a code when it has none."""
        return {name: value for name, value in super().to_json().items() if value is not None}


Step = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | AddIndex
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | DropType
    | DropProperty
    | ExtendEnum
    | UnsupportedChange
)


@dataclass(frozen=True)
class MigrationPlan:
    """The steps between two schemas; no steps means they say the same."""

    steps: tuple[Step, ...]

    @property
    def is_supported(self) -> bool:
        """True when every step can be done."""
        return not any(isinstance(step, UnsupportedChange) for step in self.steps)

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to do."""
        return not self.steps

    def to_json(self) -> dict[str, Any]:
        """`supported`, `step_count` and `steps`."""
        return {
            "supported": self.is_supported,
            "step_count": len(self.steps),
            "steps": [step.to_json() for step in self.steps],
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
