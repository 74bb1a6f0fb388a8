"""`omnigraph blob get|stat`: the bytes of a Blob property."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from omnigraph.cli.options import GraphId, Json, Profile, Server, Store, Uri
from omnigraph.cli.session import Session
from omnigraph.errors import InputError


class Entity(StrEnum):
    """What has the property."""

    NODE = "node"
    EDGE = "edge"


EntityKind = Annotated[Entity, typer.Argument(metavar="node|edge", help="What has the property.")]
TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="Its type.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Its id.")]
PropertyName = Annotated[str, typer.Argument(metavar="PROPERTY", help="The Blob property.")]
BranchName = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="The branch; main by default.")]
Snapshot = Annotated[
    str | None, typer.Option("--at", "--snapshot", metavar="MOMENT", help="A commit to read instead of a branch.")
]


def register(application: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Read blobs.", no_args_is_help=False)
    group.command("get")(get_blob)
    group.command("stat")(stat_blob)
    application.add_typer(group, name="blob")


def get_blob(
    entity: EntityKind,
    type_name: TypeName,
    entity_id: Id,
    property_name: PropertyName,
    uri: Uri = None,
    branch: BranchName = None,
    snapshot: Snapshot = None,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Where to begin.")] = 0,
    length: Annotated[int | None, typer.Option("--length", min=1, help="How many bytes, or to the end.")] = None,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE", help="Write to this file, not to stdout.")] = None,
    store: Store = None,
    server: Server = None,
    graph_id: GraphId = None,
    profile: Profile = None,
) -> None:
    """Write the bytes of a blob, raw."""
    _one_state(branch, snapshot)
    session = Session("blob get", uri=uri, store=store, server=server, graph=graph_id, profile=profile)
    with session.open(read_only=True) as graph:
        data = graph.read_blob(
            type_name,
            entity_id,
            property_name,
            branch or "main",
            snapshot,
            entity=entity.value,
            offset=offset,
            length=length,
        )
    if out is None:
        sys.stdout.buffer.write(data)
        return
    from omnigraph.engine.storage.outlet import outlet

    with outlet(out) as stream:
        stream.write(data)


def stat_blob(
    entity: EntityKind,
    type_name: TypeName,
    entity_id: Id,
    property_name: PropertyName,
    uri: Uri = None,
    branch: BranchName = None,
    snapshot: Snapshot = None,
    as_json: Json = False,
    store: Store = None,
    server: Server = None,
    graph_id: GraphId = None,
    profile: Profile = None,
) -> None:
    """Tell how large a blob is, or where it lies."""
    _one_state(branch, snapshot)
    session = Session("blob stat", uri=uri, store=store, server=server, graph=graph_id, profile=profile)
    with session.open(read_only=True) as graph:
        info = graph.stat_blob(type_name, entity_id, property_name, branch or "main", snapshot, entity=entity.value)
    selector = {"entity": entity.value, "type": type_name, "id": entity_id, "property": property_name}
    facts = {"size": info.size} if info.kind == "managed" else {"uri": info.uri}
    if as_json:
        from omnigraph.cli.output import to_json

        typer.echo(to_json({"selector": selector, "kind": info.kind, **facts}))
    else:
        typer.echo(f"{info.kind}: {info.size:,} bytes" if info.size is not None else f"{info.kind}: {info.uri}")


def _one_state(branch: str | None, snapshot: str | None) -> None:
    if branch is not None and snapshot is not None:
        raise InputError("--branch and --at are mutually exclusive: pass one of them")
