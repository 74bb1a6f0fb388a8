"""The steps of a migration and the plan they form.

Every step knows its JSON form, which the surfaces show and which stays the same for good. Only `UnsupportedChange`
stands for something that cannot be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from omnigraph.catalog.identity import annotation_json, type_json
from omnigraph.catalog.model import Annotation
from omnigraph.catalog.types import PropertyType
from omnigraph.errors import SchemaError


@dataclass(frozen=True)
class AddType:
    """A new type; nodes and edges get an empty table."""

    kind: ClassVar[str] = "add_type"
    type_kind: str
    name: str

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {"kind": self.kind, "type_kind": self.type_kind, "name": self.name}


@dataclass(frozen=True)
class RenameType:
    """A type under a new name; rows and ids stay."""

    kind: ClassVar[str] = "rename_type"
    type_kind: str
    from_name: str
    to_name: str

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {"kind": self.kind, "type_kind": self.type_kind, "from": self.from_name, "to": self.to_name}


@dataclass(frozen=True)
class AddProperty:
    """A new nullable property; existing rows read null."""

    kind: ClassVar[str] = "add_property"
    type_kind: str
    type_name: str
    property_name: str
    property_type: PropertyType

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {**_property_step(self), "property_type": type_json(self.property_type)}


@dataclass(frozen=True)
class RenameProperty:
    """A property under a new name; values and constraints follow."""

    kind: ClassVar[str] = "rename_property"
    type_kind: str
    type_name: str
    from_name: str
    to_name: str

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {
            "kind": self.kind,
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "from": self.from_name,
            "to": self.to_name,
        }


@dataclass(frozen=True)
class AddIndex:
    """A declared index, the only constraint that can be added to existing data; nothing is built yet."""

    kind: ClassVar[str] = "add_constraint"
    type_kind: str
    type_name: str
    columns: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {
            "kind": self.kind,
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "constraint": {"Index": list(self.columns)},
        }


@dataclass(frozen=True)
class UpdateTypeMetadata:
    """The descriptions and instructions of a type, all of them as they are now to be."""

    kind: ClassVar[str] = "update_type_metadata"
    type_kind: str
    name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {
            "kind": self.kind,
            "type_kind": self.type_kind,
            "name": self.name,
            "annotations": [annotation_json(annotation) for annotation in self.annotations],
        }


@dataclass(frozen=True)
class UpdatePropertyMetadata:
    """The description of a property as it is now to be."""

    kind: ClassVar[str] = "update_property_metadata"
    type_kind: str
    type_name: str
    property_name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {**_property_step(self), "annotations": [annotation_json(note) for note in self.annotations]}


@dataclass(frozen=True)
class DropType:
    """A type leaves the schema; `hard` also removes the older versions of its table."""

    kind: ClassVar[str] = "drop_type"
    type_kind: str
    name: str
    mode: str = "soft"

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {"kind": self.kind, "type_kind": self.type_kind, "name": self.name, "mode": self.mode}


@dataclass(frozen=True)
class DropProperty:
    """A property leaves the schema; `hard` also removes the older versions of its table."""

    kind: ClassVar[str] = "drop_property"
    type_kind: str
    type_name: str
    property_name: str
    mode: str = "soft"

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {**_property_step(self), "mode": self.mode}


@dataclass(frozen=True)
class ExtendEnum:
    """More values for an enum; no row changes."""

    kind: ClassVar[str] = "extend_enum"
    type_kind: str
    type_name: str
    property_name: str
    added_values: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return {**_property_step(self), "added_values": list(self.added_values)}


@dataclass(frozen=True)
class UnsupportedChange:
    """What stands in the way, with a stable code where one exists."""

    kind: ClassVar[str] = "unsupported_change"
    entity: str
    reason: str
    code: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        body = {"kind": self.kind, "entity": self.entity, "reason": self.reason}
        return body if self.code is None else {**body, "code": self.code}


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


def _property_step(step: AddProperty | UpdatePropertyMetadata | DropProperty | ExtendEnum) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "type_kind": step.type_kind,
        "type_name": step.type_name,
        "property_name": step.property_name,
    }


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
