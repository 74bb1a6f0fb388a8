"""What it takes to get from an accepted schema to a desired one. Start at `plan_migration`.

A plan is a list of steps in a fixed order. What cannot be done becomes an `UnsupportedChange` step, so that one plan
reports every problem at once; a plan with such a step is not applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.catalog.constraints import ANNOTATIONS, COLUMN_CONSTRAINTS
from omnigraph.catalog.identity import constraints_json
from omnigraph.catalog.model import (
    Annotation,
    Catalog,
    EdgeType,
    EntityType,
    InterfaceType,
    NodeType,
    Property,
)
from omnigraph.catalog.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeCardinality,
    Constraint,
    DropConstraint,
    DropProperty,
    DropType,
    ExtendEnum,
    MakeNullable,
    MakeRequired,
    MigrationPlan,
    RenameProperty,
    RenameType,
    SetDefault,
    SetEnum,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
)
from omnigraph.catalog.types import PropertyType, Scalar

__all__ = ["MigrationPlan", "carry_key_order", "key_orders", "plan_migration", "with_key_orders"]

REQUIRED_PROPERTY_ADDED = "OG-MF-103"
NULLABLE_MADE_REQUIRED = "OG-MF-104"
PROPERTY_TYPE_CHANGED = "OG-MF-106"
EXISTING_ROWS_BREAK_RULE = "OG-MF-107"
DROPS_DATA = {"node": "OG-DS-102", "edge": "OG-DS-103", "property": "OG-DS-104"}
WIDER = {
    Scalar.I32: frozenset({Scalar.I64}),
    Scalar.U32: frozenset({Scalar.U64, Scalar.I64}),
    Scalar.F32: frozenset({Scalar.F64}),
}
"""The numbers that a number can become, because each of its values is one of theirs."""
_FREE = ("description", "instruction")
_Named = EntityType | Property


def plan_migration(accepted: Catalog, desired: Catalog, *, allow_data_loss: bool = False) -> MigrationPlan:
    """Compare two schemas: interfaces, then nodes, then edges; within a kind desired types by name, then drops.

    With `allow_data_loss` every drop is `hard`: the older versions of the affected tables go with it.
    """
    mode = "hard" if allow_data_loss else "soft"
    steps = [*_interface_steps(accepted, desired, mode)]
    nodes = _Types("node", accepted.nodes, desired.nodes, mode)
    edges = _Types("edge", accepted.edges, desired.edges, mode, nodes.renames)
    return MigrationPlan((*steps, *nodes.steps(), *edges.steps()))


# --- types -----------------------------------------------------------------------------------------------------------


class _Types(Struct, dict=True):
    """All node types or all edge types of both schemas."""

    kind: str
    accepted: Mapping[str, EntityType]
    desired: Mapping[str, EntityType]
    mode: str
    node_renames: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        self.renames, self.refused = _match_renames(self.accepted, self.desired)

    def steps(self) -> Iterator[Step]:
        old_names = {new: old for old, new in self.renames.items()}
        for name in sorted(self.desired):
            before = self.accepted.get(old_names.get(name, name))
            if name in self.refused:
                yield UnsupportedChange(f"{self.kind}:{name}", self.refused[name])
            elif before is None:
                yield AddType(self.kind, name)
            else:
                if name in old_names:
                    yield RenameType(self.kind, old_names[name], name)
                yield from self._type_steps(before, self.desired[name])
        for name in sorted(self.accepted):
            if name not in self.desired and name not in self.renames:
                yield DropType(self.kind, name, self.mode)

    def _type_steps(self, before: EntityType, after: EntityType) -> Iterator[Step]:
        target = f"{self.kind}:{after.name}"
        if _free(before.annotations) != _free(after.annotations):
            yield UpdateTypeMetadata(self.kind, after.name, _free(after.annotations))
        if _fixed(before.annotations) != _fixed(after.annotations):
            yield UnsupportedChange(target, "its annotations change")
        yield from self._shape_steps(target, before, after)
        key = before.key if isinstance(before, NodeType) else ()
        properties = _Properties(self.kind, after.name, before.properties, after.properties, self.mode, key)
        yield from properties.steps()
        yield from _constraint_steps(self.kind, before, after, properties)

    def _shape_steps(self, target: str, before: EntityType, after: EntityType) -> Iterator[Step]:
        if isinstance(before, EdgeType) and isinstance(after, EdgeType):
            follow = self.node_renames or {}
            ends = follow.get(before.source, before.source), follow.get(before.target, before.target)
            if ends != (after.source, after.target):
                yield UnsupportedChange(target, "its endpoints change")
            if before.cardinality != after.cardinality:
                yield ChangeCardinality(self.kind, after.name, before.cardinality, after.cardinality)
        if isinstance(before, NodeType) and isinstance(after, NodeType) and before.interfaces != after.interfaces:
            yield UnsupportedChange(target, "the interfaces it implements change")


def _interface_steps(accepted: Catalog, desired: Catalog, mode: str) -> Iterator[Step]:
    for name in sorted(desired.interfaces):
        before = accepted.interfaces.get(name)
        if before is None:
            yield AddType("interface", name)
        else:
            yield from _interface_property_steps(before, desired.interfaces[name], mode)
    for name in sorted(accepted.interfaces):
        if name not in desired.interfaces:
            yield UnsupportedChange(f"interface:{name}", "an interface cannot be removed")


def _interface_property_steps(before: InterfaceType, after: InterfaceType, mode: str) -> Iterator[Step]:
    key = tuple(name for name, prop in before.properties.items() if "key" in _column_constraints(prop))
    properties = _Properties("interface", after.name, before.properties, after.properties, mode, key)
    yield from properties.steps()
    for name in sorted(after.properties):
        old = before.properties.get(properties.old_name(name))
        had = _column_constraints(old) if old is not None else set()
        has = _column_constraints(after.properties[name])
        for word, names, step in (("added", has - had, AddConstraint), ("removed", had - has, DropConstraint)):
            for constraint in sorted(names):
                if constraint == "key":
                    yield UnsupportedChange(f"interface:{after.name}.{name}", f"@key is {word}")
                else:
                    yield step("interface", after.name, Constraint(constraint.capitalize(), (name,)))


# --- properties ------------------------------------------------------------------------------------------------------


class _Properties(Struct, dict=True):
    """The properties of one type in both schemas."""

    kind: str
    owner: str
    accepted: Mapping[str, Property]
    desired: Mapping[str, Property]
    mode: str
    key: tuple[str, ...] = ()
    """The accepted properties that ids are made of."""

    def __post_init__(self) -> None:
        self.renames, self.refused = _match_renames(self.accepted, self.desired)
        self._old_names = {new: old for old, new in self.renames.items()}

    @property
    def dropped(self) -> list[str]:
        """Accepted properties that are gone, by name."""
        return [name for name in sorted(self.accepted) if name not in self.desired and name not in self.renames]

    def old_name(self, name: str) -> str:
        """What a desired property was called."""
        return self._old_names.get(name, name)

    def steps(self) -> Iterator[Step]:
        """Renames, additions, drops, other types and new descriptions, each by name; then what cannot be done."""
        refusals = {name: UnsupportedChange(self._entity(name), reason) for name, reason in self.refused.items()}
        kept = [name for name in sorted(self.desired) if self.old_name(name) in self.accepted]
        added = [name for name in sorted(self.desired) if name not in kept and name not in self.refused]
        for old, new in sorted(self.renames.items(), key=lambda pair: pair[1]):
            yield RenameProperty(self.kind, self.owner, old, new)
        for name in added:
            kind, default = self.desired[name].type, self.desired[name].default
            if kind.nullable or default is not None:
                yield AddProperty(self.kind, self.owner, name, kind, None if default is None else default.text)
            else:
                reason = (
                    "a required property cannot be added: existing rows would have no value; make it nullable, or give"
                    " it a @default"
                )
                refusals[name] = UnsupportedChange(self._entity(name), reason, REQUIRED_PROPERTY_ADDED)
        for name in self.dropped:
            if name in self.key:
                refusals[name] = UnsupportedChange(self._entity(name), "it is part of the key")
            else:
                yield DropProperty(self.kind, self.owner, name, self.mode)
        yield from self._changes(kept, refusals)
        yield from (refusals[name] for name in sorted(refusals))

    def _changes(self, kept: list[str], refusals: dict[str, UnsupportedChange]) -> Iterator[Step]:
        metadata: list[Step] = []
        for name in kept:
            before, after = self.accepted[self.old_name(name)], self.desired[name]
            if self._can_become(before, after):
                yield from self._retyped(before, after)
            else:
                way = "add a property of the new type, fill it and drop this one"
                if name in self.key:
                    way = "a key keeps its type"
                reason = f"its type changes from {before.type} to {after.type}: {way}"
                refusals[name] = UnsupportedChange(self._entity(name), reason, PROPERTY_TYPE_CHANGED)
            if _text(before) != _text(after):
                yield SetDefault(self.kind, self.owner, name, _text(after))
            if self._embedding(before) != self._embedding(after, desired=True):
                refusals.setdefault(name, UnsupportedChange(self._entity(name), "its @embed changes"))
            if _fixed(before.annotations) != _fixed(after.annotations):
                refusals.setdefault(name, UnsupportedChange(self._entity(name), "its annotations change"))
            if _free(before.annotations) != _free(after.annotations):
                metadata.append(UpdatePropertyMetadata(self.kind, self.owner, name, _free(after.annotations)))
        yield from metadata

    def _can_become(self, before: Property, after: Property) -> bool:
        """Whether rows can be carried from one type to another: a wider number, another enum, other nullability."""
        old, new = before.type, after.type
        if old.scalar is new.scalar or (not old.is_list and new.scalar in WIDER.get(old.scalar, ())):
            # The id of a float key is its shortest text, which is another one in a wider type.
            keeps_ids = old.scalar is new.scalar or before.name not in self.key or old.scalar is not Scalar.F32
            return keeps_ids and (old.is_list, old.dimension) == (new.is_list, new.dimension)
        return False

    def _retyped(self, before: Property, after: Property) -> Iterator[Step]:
        """What changes of a type, a step each."""
        place = (self.kind, self.owner, after.name)
        old, new = before.type, after.type
        if old.scalar is not new.scalar:
            yield WidenProperty(*place, new)
        added = _added_values(old, new)
        if added:
            yield ExtendEnum(*place, added)
        elif old.enum_values != new.enum_values:
            yield SetEnum(*place, new.enum_values)
        if new.nullable and not old.nullable:
            yield MakeNullable(*place)
        elif old.nullable and not new.nullable:
            yield MakeRequired(*place, _text(after))

    def _embedding(self, prop: Property, *, desired: bool = False) -> tuple[str, str | None] | None:
        if prop.embedding is None:
            return None
        source = prop.embedding.source
        return source if desired else self.renames.get(source, source), prop.embedding.model

    def _entity(self, name: str) -> str:
        return f"{self.kind}:{self.owner}.{name}"


def _text(prop: Property) -> str | None:
    return None if prop.default is None else prop.default.text


def _added_values(before: PropertyType, after: PropertyType) -> tuple[str, ...]:
    """What an enum gains when it loses nothing."""
    old, new = before.enum_values, after.enum_values
    if old is None or new is None or not set(old) < set(new):
        return ()
    return tuple(sorted(set(new) - set(old)))


# --- constraints -----------------------------------------------------------------------------------------------------


def _constraint_steps(kind: str, before: EntityType, after: EntityType, properties: _Properties) -> Iterator[Step]:
    old = {Constraint.of(rule) for rule in _renamed_rules(before, properties.renames)}
    new = {Constraint.of(rule) for rule in constraints_json(after)}
    for constraint in _sorted(old - new):
        if constraint.name != "Key":
            yield DropConstraint(kind, after.name, constraint)
        elif not set(properties.dropped) & set(constraint.columns):
            yield UnsupportedChange(f"{kind}:{after.name}", f"{constraint} is removed or changed")
    for constraint in _sorted(new - old):
        if constraint.name != "Key":
            yield AddConstraint(kind, after.name, constraint)
        elif not set(properties.dropped) & set(before.key if isinstance(before, NodeType) else ()):
            yield UnsupportedChange(f"{kind}:{after.name}", f"{constraint} is added")


def _sorted(constraints: set[Constraint]) -> list[Constraint]:
    return sorted(constraints, key=repr)


def _renamed_rules(entity: EntityType, renames: Mapping[str, str]) -> list[dict[str, Any]]:
    """The constraints of an accepted type in the property names of the desired one."""

    def new(name: str) -> str:
        return renames.get(name, name)

    renamed = replace(
        entity,
        unique=tuple(tuple(sorted(map(new, columns))) for columns in entity.unique),
        indexes=tuple(tuple(map(new, columns)) for columns in entity.indexes),
        ranges=tuple(replace(rule, property=new(rule.property)) for rule in entity.ranges),
        checks=tuple(replace(rule, property=new(rule.property)) for rule in entity.checks),
    )
    renamed = replace(renamed, key=tuple(map(new, renamed.key)))
    return list(constraints_json(renamed))


def _column_constraints(prop: Property) -> set[str]:
    return {note.name for note in prop.annotations if note.name in COLUMN_CONSTRAINTS}


# --- names and annotations -------------------------------------------------------------------------------------------


def renamed_from(annotations: tuple[Annotation, ...]) -> str | None:
    """The previous name that `@rename_from` gives, if any."""
    return next((note.value for note in annotations if note.name == "rename_from"), None)


def _match_renames(
    accepted: Mapping[str, _Named], desired: Mapping[str, _Named]
) -> tuple[dict[str, str], dict[str, str]]:
    """Old to new name of what `@rename_from` renames, and why the other ones of them cannot be followed.

    An annotation left in place after its rename, when the new name is accepted already, says nothing. One that is new
    asks for something, which cannot be done while both names are taken: two names cannot be exchanged.
    """
    renames: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name in sorted(desired):
        old = renamed_from(desired[name].annotations)
        if old is None or (
            name in accepted and (old not in accepted or old == renamed_from(accepted[name].annotations))
        ):
            continue
        if name in accepted:
            refused[name] = f"@rename_from names '{old}', but there is a '{name}' already: rename that one first"
        elif old in desired:
            refused[name] = f"@rename_from names '{old}', which is still declared"
        elif old not in accepted:
            refused[name] = f"@rename_from names '{old}', which does not exist"
        elif old in renames:
            refused[name] = f"@rename_from names '{old}', which '{renames[old]}' takes already"
        else:
            renames[old] = name
    return renames, refused


def _free(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    return tuple(note for note in annotations if _is_free(note))


def _fixed(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    movable = {"rename_from", "default", *COLUMN_CONSTRAINTS}
    return tuple(note for note in annotations if not _is_free(note) and note.name not in movable)


def _is_free(note: Annotation) -> bool:
    """Words for people, annotations of users, and those an earlier release kept without knowing them."""
    return note.name in _FREE or note.name not in ANNOTATIONS


# --- key order -------------------------------------------------------------------------------------------------------


def carry_key_order(accepted: Catalog, desired: Catalog, plan: MigrationPlan) -> Catalog:
    """The desired catalog with key columns in the order they had when their types were created.

    Renaming a key property must not change any id, so its place in a composite key stays although its name sorts
    elsewhere now.
    """
    orders: dict[str, tuple[str, ...]] = {}
    for kind, now, then in (("node", desired.nodes, accepted.nodes), ("edge", desired.edges, accepted.edges)):
        old_names = {new: old for old, new in plan.type_renames(kind).items()}
        for name in now:
            before = then.get(old_names.get(name, name))
            if before is not None:
                renames = plan.property_renames(kind, name)
                orders[_recorded(kind, name)] = tuple(renames.get(column, column) for column in before.key)
    return with_key_orders(desired, orders)


_EDGE = "edge:"


def _recorded(kind: str, name: str) -> str:
    """The name a key order is recorded under: a node type's own, an edge type's with its kind before it."""
    return f"{_EDGE}{name}" if kind == "edge" else name


def with_key_orders(catalog: Catalog, orders: Mapping[str, tuple[str, ...]]) -> Catalog:
    """A catalog compiled from text, with the key orders that were recorded beside its tables."""
    nodes, edges = dict(catalog.nodes), dict(catalog.edges)
    for name, order in orders.items():
        node, edge = nodes.get(name), edges.get(name.removeprefix(_EDGE)) if name.startswith(_EDGE) else None
        if node is not None and sorted(order) == sorted(node.key):
            nodes[name] = replace(node, key=tuple(order))
        if edge is not None and sorted(order) == sorted(edge.key):
            edges[edge.name] = replace(edge, key=tuple(order))
    return replace(catalog, nodes=nodes, edges=edges)


def key_orders(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The key orders worth recording: those that the names alone no longer tell."""
    found = {name: node.key for name, node in catalog.nodes.items() if node.key != tuple(sorted(node.key))}
    for name, edge in catalog.edges.items():
        if edge.key[2:] != tuple(sorted(edge.key[2:])):
            found[_recorded("edge", name)] = edge.key
    return found
