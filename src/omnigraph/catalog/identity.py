"""What makes two schemas the same: the canonical IR and its hash.

The IR is plain JSON. Declaration order, formatting, comments and the order of enum values do not show in it, nor does
`@rename_from`, which tells how a schema came about and not what it means.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.catalog.model import Annotation, Catalog, EdgeType, EntityType, InterfaceType, NodeType, Property
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.errors import SchemaError

IR_VERSION = 1
STATE_FORMAT_VERSION = 1
IDENTITY_VERSION = 1
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


def schema_ir(catalog: Catalog) -> dict[str, Any]:
    """The canonical form of a catalog, as JSON-ready values.

    Raises:
        SchemaError: two names have the same identifier, which FNV-1a makes possible but rare.
    """
    ir = {
        "ir_version": IR_VERSION,
        "interfaces": [_interface(catalog.interfaces[name]) for name in sorted(catalog.interfaces)],
        "nodes": [_node(catalog.nodes[name]) for name in sorted(catalog.nodes)],
        "edges": [_edge(catalog.edges[name]) for name in sorted(catalog.edges)],
    }
    _check_collisions(ir)
    return ir


def ir_json(ir: Mapping[str, Any], *, compact: bool = False) -> str:
    """The IR as text: pretty for the schema file, compact (no spaces, keys sorted) for the hash."""
    if compact:
        return json.dumps(ir, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return json.dumps(ir, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def hash_ir(ir: Mapping[str, Any]) -> str:
    """`sha256:<hex>` over the compact text of an IR."""
    text = ir_json(ir, compact=True).encode("utf-8", "surrogatepass")
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def schema_hash(catalog: Catalog) -> str:
    """The hash that `Catalog.schema_hash` holds."""
    return hash_ir(schema_ir(catalog))


def schema_state(catalog: Catalog) -> dict[str, Any]:
    """What the state file beside the IR holds, to tell whether text and IR still belong together."""
    return {
        "format_version": STATE_FORMAT_VERSION,
        "schema_ir_hash": catalog.schema_hash,
        "schema_identity_version": IDENTITY_VERSION,
    }


def type_id(kind: str, name: str) -> int:
    """The stable number of a type.

    >>> type_id("node", "Person") == type_id("edge", "Person")
    False
    """
    return _fnv32(f"{kind}:{name}")


def property_id(kind: str, owner: str, name: str) -> int:
    """The stable number of a property of a type."""
    return _fnv32(f"{kind}:{owner}:{name}")


def type_json(kind: PropertyType) -> dict[str, Any]:
    """A property type as the IR and migration steps spell it."""
    scalar: Any = {"Vector": kind.dimension} if kind.scalar is Scalar.VECTOR else str(kind.scalar)
    return {
        "scalar": scalar,
        "nullable": kind.nullable,
        "list": kind.is_list,
        "enum_values": None if kind.enum_values is None else list(kind.enum_values),
    }


def annotation_json(annotation: Annotation) -> dict[str, Any]:
    """An annotation as the IR and migration steps spell it; empty keywords are left out."""
    body: dict[str, Any] = {"name": annotation.name, "value": annotation.value}
    if annotation.kwargs:
        body["kwargs"] = dict(annotation.kwargs)
    return body


def constraints_json(entity: EntityType) -> list[dict[str, Any]]:
    """The constraints of a type in canonical order, each an object with its kind as the only member."""
    found: list[dict[str, Any]] = []
    if entity.key:
        found.append({"Key": sorted(entity.key)})
    found += [{"Unique": list(columns)} for columns in entity.unique]
    found += [{"Index": list(columns)} for columns in entity.indexes]
    found += [{"Range": {"property": r.property, "min": r.low, "max": r.high}} for r in entity.ranges]
    found += [{"Check": {"property": c.property, "pattern": c.pattern}} for c in entity.checks]
    return sorted(found, key=lambda constraint: json.dumps(constraint, sort_keys=True))


def _interface(interface: InterfaceType) -> dict[str, Any]:
    return {
        "name": interface.name,
        "type_id": type_id("interface", interface.name),
        "properties": _properties("interface", interface.name, interface.properties),
    }


def _node(node: NodeType) -> dict[str, Any]:
    return {**_entity("node", node), "implements": sorted(node.interfaces)}


def _edge(edge: EdgeType) -> dict[str, Any]:
    return {
        **_entity("edge", edge),
        "from": edge.source,
        "to": edge.target,
        "cardinality": {"min": edge.cardinality.low, "max": edge.cardinality.high},
    }


def _entity(kind: str, entity: EntityType) -> dict[str, Any]:
    return {
        "name": entity.name,
        "type_id": type_id(kind, entity.name),
        "properties": _properties(kind, entity.name, entity.properties),
        "constraints": constraints_json(entity),
        "annotations": _annotations(entity.annotations),
    }


def _properties(kind: str, owner: str, properties: Mapping[str, Property]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "prop_id": property_id(kind, owner, name),
            "type": type_json(properties[name].type),
            "annotations": _annotations(properties[name].annotations),
            "embed": _embedding(properties[name]),
        }
        for name in sorted(properties)
    ]


def _embedding(prop: Property) -> dict[str, Any] | None:
    return None if prop.embedding is None else {"source": prop.embedding.source, "model": prop.embedding.model}


def _annotations(annotations: Iterable[Annotation]) -> list[dict[str, Any]]:
    kept = [annotation_json(annotation) for annotation in annotations if annotation.name != "rename_from"]
    return sorted(kept, key=lambda annotation: json.dumps(annotation, sort_keys=True))


def _check_collisions(ir: Mapping[str, Any]) -> None:
    types: dict[int, str] = {}
    properties: dict[int, str] = {}
    for group in ("interfaces", "nodes", "edges"):
        for entity in ir[group]:
            _claim(types, entity["type_id"], f"{group[:-1]} {entity['name']}")
            for prop in entity["properties"]:
                _claim(properties, prop["prop_id"], f"{group[:-1]} {entity['name']}.{prop['name']}")


def _claim(taken: dict[int, str], identifier: int, name: str) -> None:
    other = taken.setdefault(identifier, name)
    if other != name:
        raise SchemaError(f"{other} and {name} have the same identifier {identifier:#x}; rename one of them")


def _fnv32(text: str) -> int:
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value or 1
