"""`omnigraph query`: run a read and print its rows."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.inputs import name_and_uri, parameters, query_text
from omnigraph.cli.options import Address, Format, Inline, Json, Params, ParamsFile, Query, QueryName, Uri, addressed
from omnigraph.cli.output import metadata_line, render
from omnigraph.cli.session import Session, read_view, write_lines
from omnigraph.errors import InputError


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("query")(query)


@addressed
def query(
    address: Address,
    name: QueryName = None,
    uri: Uri = None,
    query_file: Query = None,
    inline: Inline = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="NAME", help="The branch to read; main by default.")
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--at",
            "--snapshot",
            metavar="MOMENT",
            help="The past: a commit, a tag, a time or a snapshot; not a branch.",
        ),
    ] = None,
    form: Annotated[Format | None, typer.Option("--format", help="How the rows are printed.")] = None,
    as_json: Json = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Say on standard error what was read, and how many rows there are.")
    ] = False,
) -> None:
    """Run a read query and print its rows."""
    if branch is not None and snapshot is not None:
        raise InputError("--branch and --at are mutually exclusive: pass one of them")
    if form is not None and as_json:
        raise InputError("--format and --json are mutually exclusive: pass one of them")
    name, uri = name_and_uri(name, uri)
    values = parameters(params, params_file)
    session = Session("query", address, uri=uri)
    if query_file is None and inline is None and name is not None:
        view = session.run_stored_query(name, values, branch=branch, snapshot=snapshot)
    else:
        source = query_text(query_file, inline)
        with session.open(read_only=True) as graph:
            result = graph.query(source, values, name=name, branch=branch or "main", at=snapshot)
            view = read_view(result, branch=branch, snapshot=snapshot)
    chosen = "json" if as_json else (form.value if form else session.config.defaults.output)
    if verbose:
        typer.echo(metadata_line(view), err=True)
    write_lines(render(view, chosen, session.layout))
