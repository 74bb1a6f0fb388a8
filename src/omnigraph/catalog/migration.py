"""What it takes to get from an accepted schema to a desired one. Start at `plan_migration`.

A plan is a list of steps in a fixed order. What cannot be done becomes an `UnsupportedChange` step, so that one plan
reports every problem at once; a plan with such a step is not applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from omnigraph.catalog.constraints import COLUMN_CONSTRAINTS
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
    AddIndex,
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationPlan,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.dataclass import dataclass

__all__ = ["MigrationPlan", "carry_key_order", "key_orders", "plan_migration", "with_key_orders"]

REQUIRED_PROPERTY_ADDED = "OG-MF-103"
PROPERTY_TYPE_CHANGED = "OG-MF-106"
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


@dataclass
class _Types:
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
            yield UnsupportedChange(target, "its annotations other than descriptions and instructions change")
        yield from self._shape_steps(target, before, after)
        properties = _Properties(self.kind, after.name, before.properties, after.properties, self.mode)
        guarded = {column: what for what, column in _constrained(before)}
        yield from properties.steps(guarded)
        yield from _constraint_steps(self.kind, before, after, properties)

    def _shape_steps(self, target: str, before: EntityType, after: EntityType) -> Iterator[Step]:
        if isinstance(before, EdgeType) and isinstance(after, EdgeType):
            follow = self.node_renames or {}
            ends = follow.get(before.source, before.source), follow.get(before.target, before.target)
            if ends != (after.source, after.target):
                yield UnsupportedChange(target, "its endpoints change")
            if before.cardinality != after.cardinality:
                yield UnsupportedChange(target, "its @card changes")
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
    properties = _Properties("interface", after.name, before.properties, after.properties, mode)
    guarded = {
        name: note.name
        for name, prop in before.properties.items()
        for note in prop.annotations
        if note.name in COLUMN_CONSTRAINTS
    }
    yield from properties.steps(guarded)
    for name in sorted(after.properties):
        old = before.properties.get(properties.old_name(name))
        had = _column_constraints(old) if old is not None else set()
        has = _column_constraints(after.properties[name])
        for constraint in sorted(has - had):
            if constraint == "index":
                yield AddIndex("interface", after.name, (name,))
            else:
                yield UnsupportedChange(f"interface:{after.name}.{name}", f"@{constraint} is added")
        for constraint in sorted(had - has):
            yield UnsupportedChange(f"interface:{after.name}.{name}", f"@{constraint} is removed")


# --- properties ------------------------------------------------------------------------------------------------------


@dataclass
class _Properties:
    """The properties of one type in both schemas."""

    kind: str
    owner: str
    accepted: Mapping[str, Property]
    desired: Mapping[str, Property]
    mode: str

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

    def steps(self, guarded: Mapping[str, str]) -> Iterator[Step]:
        """Renames, additions, drops, wider enums and new descriptions, each by name; then what cannot be done.

        `guarded` names the accepted properties that carry a constraint, and which.
        """
        refusals = {name: UnsupportedChange(self._entity(name), reason) for name, reason in self.refused.items()}
        kept = [name for name in sorted(self.desired) if self.old_name(name) in self.accepted]
        added = [name for name in sorted(self.desired) if name not in kept and name not in self.refused]
        for old, new in sorted(self.renames.items(), key=lambda pair: pair[1]):
            yield RenameProperty(self.kind, self.owner, old, new)
        for name in added:
            kind = self.desired[name].type
            if kind.nullable:
                yield AddProperty(self.kind, self.owner, name, kind)
            else:
                reason = "a required property cannot be added: existing rows would have no value; make it nullable"
                refusals[name] = UnsupportedChange(self._entity(name), reason, REQUIRED_PROPERTY_ADDED)
        for name in self.dropped:
            if name in guarded:
                reason = f"it carries @{guarded[name]}, and a constraint cannot be removed"
                refusals[name] = UnsupportedChange(self._entity(name), reason)
            else:
                yield DropProperty(self.kind, self.owner, name, self.mode)
        yield from self._changes(kept, refusals)
        yield from (refusals[name] for name in sorted(refusals))

    def _changes(self, kept: list[str], refusals: dict[str, UnsupportedChange]) -> Iterator[Step]:
        metadata: list[Step] = []
        for name in kept:
            before, after = self.accepted[self.old_name(name)], self.desired[name]
            wider = _added_values(before, after)
            if wider:
                yield ExtendEnum(self.kind, self.owner, name, wider)
            elif before.type != after.type:
                reason = f"its type changes from {before.type} to {after.type}"
                refusals[name] = UnsupportedChange(self._entity(name), reason, PROPERTY_TYPE_CHANGED)
            if self._embedding(before) != self._embedding(after, desired=True):
                refusals.setdefault(name, UnsupportedChange(self._entity(name), "its @embed changes"))
            if _fixed(before.annotations) != _fixed(after.annotations):
                refusals.setdefault(name, UnsupportedChange(self._entity(name), "its annotations change"))
            if _free(before.annotations) != _free(after.annotations):
                metadata.append(UpdatePropertyMetadata(self.kind, self.owner, name, _free(after.annotations)))
        yield from metadata

    def _embedding(self, prop: Property, *, desired: bool = False) -> tuple[str, str | None] | None:
        if prop.embedding is None:
            return None
        source = prop.embedding.source
        return source if desired else self.renames.get(source, source), prop.embedding.model

    def _entity(self, name: str) -> str:
        return f"{self.kind}:{self.owner}.{name}"


def _added_values(before: Property, after: Property) -> tuple[str, ...]:
    """What an enum gains when nothing else about the property's type changes, and it loses nothing."""
    old, new = before.type.enum_values, after.type.enum_values
    if old is None or new is None or replace(before.type, enum_values=new) != after.type or not set(old) < set(new):
        return ()
    return tuple(sorted(set(new) - set(old)))


# --- constraints -----------------------------------------------------------------------------------------------------


def _constraint_steps(kind: str, before: EntityType, after: EntityType, properties: _Properties) -> Iterator[Step]:
    gone = set(properties.dropped)
    old = {_shown(rule) for rule in _renamed_rules(before, properties.renames) if not gone & _columns(rule)}
    new = {_shown(rule) for rule in constraints_json(after)}
    for name, columns in sorted(new - old):
        if name == "Index":
            yield AddIndex(kind, after.name, tuple(columns))
        else:
            yield UnsupportedChange(f"{kind}:{after.name}", f"{_constraint(name, columns)} is added")
    for name, columns in sorted(old - new):
        yield UnsupportedChange(f"{kind}:{after.name}", f"{_constraint(name, columns)} is removed or changed")


_Rule = Mapping[str, object]


def _renamed_rules(entity: EntityType, renames: Mapping[str, str]) -> list[_Rule]:
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
    if isinstance(renamed, NodeType):
        renamed = replace(renamed, key=tuple(map(new, renamed.key)))
    return list(constraints_json(renamed))


def _columns(rule: _Rule) -> set[str]:
    ((_, body),) = rule.items()
    if isinstance(body, dict):
        return {str(body["property"])}
    assert isinstance(body, list)
    return set(body)


def _shown(rule: _Rule) -> tuple[str, tuple[str, ...]]:
    """A constraint as a value that can be compared and sorted."""
    ((name, body),) = rule.items()
    if isinstance(body, dict):
        return name, tuple(str(body[part]) for part in sorted(body, reverse=True))
    assert isinstance(body, list)
    return name, tuple(body)


def _constraint(name: str, columns: tuple[str, ...]) -> str:
    return f"@{name.lower()}({', '.join(columns)})"


def _constrained(entity: EntityType) -> Iterator[tuple[str, str]]:
    """Every constraint of a type with each column it mentions."""
    for rule in constraints_json(entity):
        (name,) = rule
        for column in sorted(_columns(rule)):
            yield name.lower(), column


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

    An annotation left in place after its rename, when the new name is accepted already, says nothing.
    """
    renames: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name in sorted(desired):
        old = renamed_from(desired[name].annotations)
        if old is None or name in accepted:
            continue
        if old in desired:
            refused[name] = f"@rename_from names '{old}', which is still declared"
        elif old not in accepted:
            refused[name] = f"@rename_from names '{old}', which does not exist"
        elif old in renames:
            refused[name] = f"@rename_from names '{old}', which '{renames[old]}' takes already"
        else:
            renames[old] = name
    return renames, refused


def _free(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    return tuple(note for note in annotations if note.name in _FREE)


def _fixed(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    movable = {*_FREE, "rename_from", *COLUMN_CONSTRAINTS}
    return tuple(note for note in annotations if note.name not in movable)


# --- key order -------------------------------------------------------------------------------------------------------


def carry_key_order(accepted: Catalog, desired: Catalog, plan: MigrationPlan) -> Catalog:
    """The desired catalog with key columns in the order they had when their types were created.

    Renaming a key property must not change any id, so its place in a composite key stays although its name sorts
    elsewhere now.
    """
    old_names = {new: old for old, new in plan.type_renames("node").items()}
    orders: dict[str, tuple[str, ...]] = {}
    for name in desired.nodes:
        before = accepted.nodes.get(old_names.get(name, name))
        if before is not None:
            renames = plan.property_renames("node", name)
            orders[name] = tuple(renames.get(column, column) for column in before.key)
    return with_key_orders(desired, orders)


def with_key_orders(catalog: Catalog, orders: Mapping[str, tuple[str, ...]]) -> Catalog:
    """A catalog compiled from text, with the key orders that were recorded beside its tables."""
    nodes = dict(catalog.nodes)
    for name, order in orders.items():
        node = nodes.get(name)
        if node is not None and sorted(order) == sorted(node.key):
            nodes[name] = replace(node, key=tuple(order))
    return replace(catalog, nodes=nodes)


def key_orders(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The key orders worth recording: those that the names alone no longer tell."""
    return {name: node.key for name, node in catalog.nodes.items() if node.key != tuple(sorted(node.key))}
