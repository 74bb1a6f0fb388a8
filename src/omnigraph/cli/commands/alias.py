"""`omnigraph alias`: a stored query of a server, with its arguments, under a name of one's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from msgspec import Struct

from omnigraph.cli.config import FORMATS, OperatorConfig
from omnigraph.cli.inputs import parameters
from omnigraph.cli.options import Address, Format, Json, Params, ParamsFile, Quiet
from omnigraph.cli.output import render
from omnigraph.cli.session import Session, changed_lines, configuration, write_lines
from omnigraph.errors import InputError

_FIELDS = ("server", "graph", "query", "args", "params", "format", "mutation")


class Alias(Struct, frozen=True):
    """What a name stands for."""

    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] | None = None
    format: str | None = None
    mutation: bool = False


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("alias")(run_alias)


def run_alias(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An alias of the configuration.")],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="Its arguments in order; JSON, else taken as text.")
    ] = None,
    params: Params = None,
    params_file: ParamsFile = None,
    form: Annotated[Format | None, typer.Option("--format", help="How the rows are printed.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the stored query that an alias of the configuration stands for."""
    if form is not None and as_json:
        raise InputError("--format and --json are mutually exclusive: pass one of them")
    alias = find_alias(configuration(), name)
    given = {**(alias.params or {}), **positionals(name, alias, values or []), **parameters(params, params_file)}
    session = Session("alias", Address(server=alias.server, graph=alias.graph))
    if alias.mutation:
        session.announce(quiet=quiet)
        changed = session.run_stored_mutation(alias.query, given, branch=None)
        write_lines(changed_lines(changed, as_json=as_json))
        return
    view = session.run_stored_query(alias.query, given, branch=None, snapshot=None)
    chosen = "json" if as_json else (form.value if form else alias.format or session.config.defaults.output)
    write_lines(render(view, chosen, session.layout))


def find_alias(config: OperatorConfig, name: str) -> Alias:
    """An alias of the configuration, checked.

    Raises:
        InputError: there is none of this name, or what it says cannot be used.
    """
    if name not in config.aliases:
        known = ", ".join(sorted(str(key) for key in config.aliases)) or "none is defined"
        raise InputError(f"unknown alias '{name}' (aliases: {known})")
    found = config.aliases[name]
    if not isinstance(found, Mapping):
        raise InputError(f"the alias '{name}' must be key and value pairs")
    unknown = next((key for key in found if key not in _FIELDS), None)
    if unknown is not None:
        raise InputError(f"the alias '{name}' has the unknown key '{unknown}' (keys: {', '.join(_FIELDS)})")
    for key in ("server", "query"):
        if not isinstance(found.get(key), str) or not found[key].strip():
            raise InputError(f"the alias '{name}' needs a text as {key}")
    args = found.get("args") or []
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise InputError(f"args of the alias '{name}' must be a list of names")
    if not isinstance(found.get("params") or {}, Mapping):
        raise InputError(f"params of the alias '{name}' must be key and value pairs")
    if found.get("format") not in (None, *FORMATS):
        raise InputError(f"format of the alias '{name}' must be one of {', '.join(FORMATS)}")
    if not isinstance(found.get("mutation", False), bool):
        raise InputError(f"mutation of the alias '{name}' must be true or false")
    return Alias(
        found["server"],
        found["query"],
        found.get("graph"),
        tuple(args),
        found.get("params"),
        found.get("format"),
        found.get("mutation", False),
    )


def positionals(name: str, alias: Alias, values: Sequence[str]) -> dict[str, Any]:
    """The arguments of the line by the names the alias gives them; each is JSON, or else a text.

    Raises:
        InputError: there are too many.
    """
    if len(values) > len(alias.args):
        raise InputError(
            f"the alias '{name}' takes {len(alias.args)} arguments ({', '.join(alias.args)}), not {len(values)}"
        )
    return {argument: _value(text) for argument, text in zip(alias.args, values, strict=False)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
