"""How the differences between two states look to people: counts by type, then a line per entity and changed value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.choices import ToldValues
from omnigraph.cli.output import Layout, shown_value, table_lines
from omnigraph.cli.schema_steps import describe_step

if TYPE_CHECKING:
    from omnigraph.engine.changes import Change, Diff

SHOWN_CHANGES = 100
_SIGNS = {"insert": "+", "update": "~", "delete": "-"}

Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="Only this type; may be repeated.", show_default=False),
]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", metavar="KIND", help="Only node or edge.", show_default=False)
]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="OP", help="Only insert, update or delete; may be repeated.", show_default=False),
]
Told = Annotated[ToldValues, typer.Option("--values", help="How much of each entity is told.")]
Stat = Annotated[bool, typer.Option("--stat", help="Only the counts by type.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Entities shown at most; --json shows all.")]


def diff_lines(diff: Diff, *, stat: bool, limit: int) -> Iterator[str]:
    """The lines of a diff."""
    for step in diff.schema_steps:
        yield f"schema: {describe_step(step.to_json())}"
    if not len(diff):
        yield "no entity differs"
        return
    rows = [
        {"type": found.name, "kind": found.kind, "+": found.inserted, "~": found.updated, "-": found.deleted}
        for found in diff.types
    ]
    yield from table_lines(["type", "kind", "+", "~", "-"], rows, Layout())
    if stat:
        return
    yield ""
    for change in islice(diff, limit):
        yield from change_lines(change)
    if len(diff) > limit:
        yield f"… {len(diff) - limit:,} more; --limit shows more of them, --json all"


def change_lines(change: Change) -> Iterator[str]:
    """One entity, and what of it changed."""
    image = change.after or change.before
    ends = "" if image is None or image.ends is None else f" {image.ends[0]} -> {image.ends[1]}"
    yield f"{_SIGNS[change.op]} {change.type_name} {change.id}{ends}"
    if change.op == "update":
        yield from _updated_lines(change)
    elif image is not None:
        for name, value in image.properties.items():
            if value is not None:
                yield f"    {name}: {shown_value(value)}"


def _updated_lines(change: Change) -> Iterator[str]:
    before = _with_ends(change.before)
    after = _with_ends(change.after)
    for name in change.columns:
        if name in before and name in after:
            yield f"    {name}: {shown_value(before[name])} -> {shown_value(after[name])}"
        else:
            yield f"    {name}: changed"


def _with_ends(image: Any) -> Mapping[str, Any]:
    if image is None:
        return {}
    ends = {} if image.ends is None else {"from": image.ends[0], "to": image.ends[1]}
    return {**image.properties, **ends}
