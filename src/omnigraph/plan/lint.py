"""Check a whole query file against a schema and say what is wrong or suspicious, without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.catalog.model import Catalog
from omnigraph.errors import GraphError, ParseError
from omnigraph.language import parse_query_file
from omnigraph.language import query_ast as ast
from omnigraph.plan.check import check
from omnigraph.plan.contract import operation_json
from omnigraph.plan.statements import Plan, UpdateNodes, WritePlan

_SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class QueryResult:
    """What lint found out about one query."""

    name: str
    kind: str
    error: str | None = None
    warnings: tuple[str, ...] = ()
    operation: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The `results` entry; what is empty is left out."""
        body: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind,
            "status": "ok" if self.error is None else "error",
        }
        if self.error is not None:
            body["error"] = self.error
        if self.warnings:
            body["warnings"] = list(self.warnings)
        if self.operation is not None:
            body["operation"] = dict(self.operation)
        return body


@dataclass(frozen=True)
class Finding:
    """Something about the file as a whole."""

    severity: str
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    query_names: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The `findings` entry; what does not apply is left out."""
        body: dict[str, Any] = {"severity": self.severity, "code": self.code, "message": self.message}
        if self.type_name is not None:
            body |= {
                "type_name": self.type_name,
                "property": self.property,
                "query_names": list(self.query_names),
            }
        return body


@dataclass(frozen=True)
class LintReport:
    """The outcome for one file."""

    schema_source: Mapping[str, str]
    query_path: str
    results: tuple[QueryResult, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    @property
    def errors(self) -> int:
        """Failing queries and error findings."""
        return sum(result.error is not None for result in self.results) + self._count("error")

    @property
    def warnings(self) -> int:
        """Warnings of queries and warning findings."""
        return sum(len(result.warnings) for result in self.results) + self._count("warning")

    @property
    def infos(self) -> int:
        """Info findings."""
        return self._count("info")

    @property
    def is_ok(self) -> bool:
        """True unless something is an error; warnings do not fail a lint."""
        return self.errors == 0

    def to_json(self) -> dict[str, Any]:
        """The report in the shape the surfaces promise."""
        return {
            "status": "ok" if self.is_ok else "error",
            "schema_source": dict(self.schema_source),
            "query_path": self.query_path,
            "queries_processed": len(self.results),
            "errors": self.errors,
            "warnings": self.warnings,
            "infos": self.infos,
            "results": [result.to_json() for result in self.results],
            "findings": [finding.to_json() for finding in self.findings],
        }

    def _count(self, severity: str) -> int:
        return sum(finding.severity == severity for finding in self.findings)


def lint(catalog: Catalog, source: str, *, query_path: str, schema_source: Mapping[str, str]) -> LintReport:
    """Check every query of a source; nothing in the source makes this raise.

    `schema_source` says where the catalog came from: `{"kind": "file", "path": …}` or `{"kind": "graph", "uri": …}`.
    """
    try:
        file = parse_query_file(source)
    except ParseError as error:
        finding = Finding("error", "Q000", error.message)
        return LintReport(schema_source, query_path, findings=(finding,))
    plans: list[Plan] = []
    results: list[QueryResult] = []
    for query in file.queries:
        kind = "mutation" if isinstance(query.body, ast.WriteBody) else "read"
        warnings = ("mutation has no parameters",) if kind == "mutation" and not query.parameters else ()
        try:
            plan = check(catalog, query, file.source)
        except GraphError as error:
            results.append(QueryResult(query.name, kind, error.message, warnings))
            continue
        plans.append(plan)
        results.append(QueryResult(query.name, kind, None, warnings, operation_json(catalog, plan)))
    findings = sorted(_never_updated(catalog, plans), key=_finding_order)
    return LintReport(schema_source, query_path, tuple(results), tuple(findings))


def _never_updated(catalog: Catalog, plans: Sequence[Plan]) -> list[Finding]:
    """L201: properties that none of the update queries of their type ever sets."""
    assigned: dict[str, set[str]] = {}
    queries: dict[str, set[str]] = {}
    for plan in plans:
        for statement in plan.statements if isinstance(plan, WritePlan) else ():
            if isinstance(statement, UpdateNodes):
                names = {assignment.property for assignment in statement.assignments}
                assigned.setdefault(statement.type_name, set()).update(names)
                queries.setdefault(statement.type_name, set()).add(plan.name)
    return [
        Finding(
            "warning",
            "L201",
            f"no update query sets {type_name}.{prop.name}",
            type_name,
            prop.name,
            tuple(sorted(queries[type_name])),
        )
        for type_name in assigned
        for prop in catalog.nodes[type_name].properties.values()
        if prop.type.nullable
        and prop.name not in catalog.nodes[type_name].key
        and prop.embedding is None
        and prop.name not in assigned[type_name]
    ]


def _finding_order(finding: Finding) -> tuple[int, str, str, str]:
    severity = _SEVERITIES.index(finding.severity)
    return severity, finding.type_name or "", finding.property or "", finding.message
