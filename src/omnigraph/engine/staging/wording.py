"""The sentences for rules that hold across rows, so that both engines say the same about the same input."""

from __future__ import annotations

from omnigraph.catalog.model import EdgeType, EntityType


def place(record: int, line: int) -> str:
    """Where a record stands; line 0 means that its source has no lines."""
    return f"record {record} (line {line})" if line else f"record {record}"


def duplicate_key(entity: EntityType, entity_id: str) -> str:
    """Two records of one key in one input."""
    return f"@unique violation: the input has {entity.name} '{entity_id}' twice"


def duplicate_id(entity: EntityType, entity_id: str) -> str:
    """Two records of one explicit id in one input, where the last does not simply count."""
    return f"@unique violation: the input has the id '{entity_id}' of {entity.name} twice"


def unique(entity: EntityType, group: tuple[str, ...], values: tuple[object, ...]) -> str:
    """A `@unique` tuple that another entity has."""
    names = ", ".join(group)
    shown = ", ".join(repr(value) if isinstance(value, str) else str(value) for value in values)
    return f"@unique violation: another {entity.name} already has ({names}) = ({shown})"


def missing_end(edge: EdgeType, end: str, entity_id: str, type_name: str) -> str:
    """An edge that names a node which does not exist."""
    return f"edge {edge.name}: {end} '{entity_id}' not found in {type_name}"


def orphan(edge: EdgeType, edge_id: str, end: str, entity_id: str, type_name: str) -> str:
    """A kept edge whose node disappears."""
    return (
        f"orphan violation: edge {edge.name} '{edge_id}' would keep {end} '{entity_id}',"
        f" which is not found in {type_name} any more"
    )


def cardinality(edge: EdgeType, source: str, count: int) -> str:
    """A source with too many or too few edges of a type."""
    low, high = edge.cardinality.low, edge.cardinality.high
    bound = f"{low}..{'' if high is None else high}"
    return f"@card violation: {edge.source} '{source}' has {count} {edge.name} edges, outside @card({bound})"
