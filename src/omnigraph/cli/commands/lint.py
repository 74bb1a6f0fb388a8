"""`omnigraph lint`: check queries against a schema without running them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.exits import FAILURE
from omnigraph.cli.inputs import query_files, read_text
from omnigraph.cli.options import Address, Json, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.catalog.model import Catalog
    from omnigraph.plan.lint import LintReport


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("lint")(lint)


@addressed
def lint(
    address: Address,
    query: Annotated[
        list[str],
        typer.Option("--query", metavar="PATH", help="A query file, or a folder of them; may be repeated."),
    ],
    uri: Uri = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", help="A schema file to check against, instead of a graph's schema."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Parse and type-check every query; warn of what looks forgotten."""
    from omnigraph.plan.lint import lint as check

    paths = list(query_files(query))
    catalog, origin = _schema(schema, uri, address)
    reports = [
        check(catalog, read_text(path, what="query file"), query_path=path, schema_source=origin) for path in paths
    ]
    if not as_json:
        write_lines(line for report in reports for line in report_lines(report))
    elif len(reports) == 1 and query == paths:
        typer.echo(to_json(reports[0].to_json()))
    else:
        typer.echo(to_json(summary(reports)))
    if not all(report.is_ok for report in reports):
        raise typer.Exit(FAILURE)


def _schema(schema: str | None, uri: str | None, address: Address) -> tuple[Catalog, dict[str, str]]:
    """The catalog to check against, and where it came from."""
    from omnigraph.catalog.resolve import compile_schema

    if schema is not None:
        if uri is not None or address.store is not None:
            raise InputError("--schema and the address of a graph are mutually exclusive: pass one of them")
        return compile_schema(read_text(schema, what="schema")), {"kind": "file", "path": schema}
    session = Session("lint", address, uri=uri, capability="direct")
    with session.open(read_only=True) as graph:
        return compile_schema(graph.schema.source, stored=True), {"kind": "graph", "uri": session.uri}


def report_lines(report: LintReport) -> Iterator[str]:
    """A report for people."""
    body = report.to_json()
    counts = f"{body['queries_processed']} queries, {body['errors']} errors, {body['warnings']} warnings"
    yield f"{report.query_path}: {counts}"
    for result in body["results"]:
        yield f"  {result['status']:<7} {result['name']}{_cause(result)}"
        yield from (f"  warning {result['name']}: {warning}" for warning in result.get("warnings", ()))
    for finding in body["findings"]:
        yield f"  {finding['severity']:<7} {finding['code']}: {_indented(finding['message'])}"


def summary(reports: list[LintReport]) -> dict[str, Any]:
    """Several reports as one object."""
    bodies = [report.to_json() for report in reports]
    totals = {key: sum(body[key] for body in bodies) for key in ("queries_processed", "errors", "warnings", "infos")}
    return {"status": "error" if totals["errors"] else "ok", **totals, "reports": bodies}


def _cause(result: Mapping[str, Any]) -> str:
    return f": {_indented(result['error'])}" if "error" in result else ""


def _indented(message: str) -> str:
    return message.replace("\n", "\n          ")
