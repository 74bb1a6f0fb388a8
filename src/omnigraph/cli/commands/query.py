"""`omnigraph query`: run a read and print its rows."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.inputs import parameters, query_text
from omnigraph.cli.options import Format, Inline, Json, Params, ParamsFile, Profile, Query, QueryName, Store
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("query")(query)


def query(
    name: QueryName = None,
    query_file: Query = None,
    inline: Inline = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="NAME", help="The branch to read; main by default.")
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", metavar="ID", help="A commit or snapshot to read instead of a branch.")
    ] = None,
    form: Annotated[Format | None, typer.Option("--format", help="How the rows are printed.")] = None,
    as_json: Json = False,
    store: Store = None,
    profile: Profile = None,
) -> None:
    """Run a read query and print its rows."""
    from omnigraph.cli.output import Layout, ReadView, render

    if branch is not None and snapshot is not None:
        raise InputError("--branch and --snapshot are mutually exclusive: pass one of them")
    if form is not None and as_json:
        raise InputError("--format and --json are mutually exclusive: pass one of them")
    source = query_text(query_file, inline)
    values = parameters(params, params_file)
    session = Session("query", store=store, profile=profile)
    with session.open(read_only=True) as graph:
        result = graph.query(source, values, name=name, branch=branch or "main", at=snapshot)
        view = ReadView(
            query_name=result.query_name,
            branch=None if snapshot else (branch or "main"),
            snapshot=snapshot,
            columns=result.columns,
            rows=result.to_pylist(),
        )
    defaults = session.config.defaults
    layout = Layout(defaults.table_max_column_width, wrap=defaults.table_cell_layout == "wrap")
    chosen = "json" if as_json else (form.value if form else defaults.output)
    write_lines(render(view, chosen, layout))
