"""`omnigraph blob get|put|stat`: the bytes of a Blob property."""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli.options import Actor, Address, Branch, Json, Message, Quiet, Uri, addressed
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, changed_lines, write_lines
from omnigraph.errors import InputError, NotFoundError


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
    group = typer.Typer(help="Read and store blobs.", no_args_is_help=False)
    group.command("get")(get_blob)
    group.command("put")(put_blob)
    group.command("stat")(stat_blob)
    application.add_typer(group, name="blob")


@addressed
def get_blob(
    address: Address,
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
) -> None:
    """Write the bytes of a blob, raw."""
    _one_state(branch, snapshot)
    session = Session("blob get", address, uri=uri)
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


@addressed
def put_blob(
    address: Address,
    entity: EntityKind,
    type_name: TypeName,
    entity_id: Id,
    property_name: PropertyName,
    given: Annotated[str, typer.Option("--in", metavar="FILE", help="The file to store; - is standard input.")],
    uri: Uri = None,
    branch: Branch = "main",
    actor: Actor = None,
    message: Message = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Store the bytes of a file as the blob of an entity that exists: one mutation, one commit."""
    text = _storing(type_name, property_name)
    content = _read(given)
    session = Session("blob put", address, uri=uri)
    author = session.actor(actor)
    session.announce(quiet=quiet)
    with session.open(read_only=False) as graph:
        result = graph.mutate(text, {"id": entity_id, "content": content}, branch=branch, actor=author, message=message)
    touched = result.affected_edges if entity is Entity.EDGE else result.affected_nodes
    if not touched:
        raise NotFoundError(f"there is no {entity.value} {type_name} '{entity_id}': nothing was stored")
    write_lines(changed_lines(result, as_json=as_json))


def _storing(type_name: str, property_name: str) -> str:
    """The mutation that sets one property of one entity."""
    for name in (type_name, property_name):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InputError(f"'{name}' is not a name of the schema")
    setting = f"update {type_name} set {{ {property_name}: $content }} where id = $id"
    return f"query put($id: String, $content: Blob) {{ {setting} }}"


def _read(given: str) -> bytes:
    if given == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(given).read_bytes()
    except (OSError, ValueError) as exc:
        raise InputError(f"'{given}' cannot be read: {exc}") from exc


@addressed
def stat_blob(
    address: Address,
    entity: EntityKind,
    type_name: TypeName,
    entity_id: Id,
    property_name: PropertyName,
    uri: Uri = None,
    branch: BranchName = None,
    snapshot: Snapshot = None,
    as_json: Json = False,
) -> None:
    """Tell how large a blob is, or where it lies."""
    _one_state(branch, snapshot)
    session = Session("blob stat", address, uri=uri)
    with session.open(read_only=True) as graph:
        info = graph.stat_blob(type_name, entity_id, property_name, branch or "main", snapshot, entity=entity.value)
    selector = {"entity": entity.value, "type": type_name, "id": entity_id, "property": property_name}
    facts: dict[str, Any] = {"uri": info.uri}
    if info.kind == "managed":
        facts = {"size": info.size, "etag": info.etag}
    if as_json:
        asked = {"branch": branch or "main"} if snapshot is None else {"snapshot": snapshot}
        target = {**asked, "resolved_snapshot": info.commit_id}
        typer.echo(to_json({"selector": selector, "kind": info.kind, **facts, "target": target}))
    else:
        typer.echo(f"{info.kind}: {info.size:,} bytes" if info.size is not None else f"{info.kind}: {info.uri}")


def _one_state(branch: str | None, snapshot: str | None) -> None:
    if branch is not None and snapshot is not None:
        raise InputError("--branch and --at are mutually exclusive: pass one of them")
