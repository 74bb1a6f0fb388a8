"""What a compiled query promises to its callers: the columns it returns, the types it reads and the types it writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.plan import operators as op
from omnigraph.plan import statements as st

_KINDS = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
    Scalar.PATH: "path",
}
_TypeName = tuple[str, str]


def value_kind(kind: PropertyType) -> dict[str, Any]:
    """A type in the words of the wire: `kind`, `nullable`, and `item_kind` or `vector_dim` where they apply."""
    if kind.is_list:
        return {"kind": "list", "nullable": kind.nullable, "item_kind": _KINDS[kind.scalar]}
    body: dict[str, Any] = {"kind": _KINDS[kind.scalar], "nullable": kind.nullable}
    if kind.scalar is Scalar.VECTOR:
        body["vector_dim"] = kind.dimension
    return body


def parameters_json(plan: st.Plan) -> list[dict[str, Any]]:
    """The parameters of a query as a catalog of queries lists them."""
    return [{"name": parameter.name, **value_kind(parameter.type)} for parameter in plan.parameters]


def operation_json(catalog: Catalog, plan: st.Plan) -> dict[str, Any]:
    """`result`, `reads` and `writes` of a query."""
    return {
        "result": _result(plan),
        "reads": _listed(set(_reads(catalog, plan))),
        "writes": _listed(set(_writes(catalog, plan))),
    }


def _result(plan: st.Plan) -> list[dict[str, Any]]:
    if isinstance(plan, st.WritePlan) and plan.returning is not None:
        return [{"name": each.column, **value_kind(each.type)} for each in plan.returning.projections]
    if isinstance(plan, st.WritePlan):
        counts = ("affected_nodes", "affected_edges")
        return [{"name": name, "kind": "bigint", "nullable": False} for name in counts]
    return [{"name": projection.column, **value_kind(projection.type)} for projection in plan.projections]


def _reads(catalog: Catalog, plan: st.Plan) -> Iterator[_TypeName]:
    if isinstance(plan, op.ReadPlan):
        yield from _pattern_reads(plan.pattern)
        return
    if plan.match is not None:
        yield from _pattern_reads(plan.match.pattern)
    for statement in plan.statements:
        yield _target(statement)
        if isinstance(statement, st.InsertEdge):
            edge = catalog.edges[statement.type_name]
            yield "node", edge.source
            yield "node", edge.target


def _pattern_reads(pattern: op.Pattern) -> Iterator[_TypeName]:
    for scan in pattern.scans:
        yield "node", scan.type_name
    for expand in pattern.expands:
        yield "edge", expand.edge_type
        yield "node", expand.source_type
        yield "node", expand.target_type
    for path in pattern.paths:
        yield "edge", path.edge_type
        yield "node", path.source_type
        yield "node", path.target_type
    for inner in pattern.inner:
        yield from _pattern_reads(inner)


def _writes(catalog: Catalog, plan: st.Plan) -> Iterator[_TypeName]:
    if isinstance(plan, op.ReadPlan):
        return
    for statement in plan.statements:
        yield _target(statement)
        if isinstance(statement, st.DeleteNodes):
            for edge in catalog.edges_touching(statement.type_name):
                yield "edge", edge.name


def _target(statement: st.Statement) -> _TypeName:
    return "edge" if isinstance(statement, st.EDGE_STATEMENTS) else "node", statement.type_name


def _listed(names: set[_TypeName]) -> list[dict[str, str]]:
    return [{"kind": kind, "type_name": name} for kind, name in sorted(names)]
