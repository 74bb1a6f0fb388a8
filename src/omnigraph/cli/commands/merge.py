"""`omnigraph branch merge|conflicts`: bringing the work of a branch into another one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.choices import Engine, MergeStrategy
from omnigraph.cli.inputs import read_text
from omnigraph.cli.options import Actor, Address, Json, Message, Quiet, Uri, UriOption, Yes, addressed
from omnigraph.cli.output import Layout, shown_value, table_lines, to_json
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import InputError, MergeConflictError

if TYPE_CHECKING:
    from omnigraph.engine.changes.images import Image
    from omnigraph.engine.operations.merge import MergeConflict, MergePlan, MergeResult

SHOWN_CONFLICTS = 20

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The branch whose work is brought over.")]
Into = Annotated[str, typer.Option("--into", metavar="NAME", help="The branch that gets it.")]
Strategy = Annotated[
    MergeStrategy | None,
    typer.Option(
        "--strategy",
        help="What counts where both changed one entity: the target, the source, or both by property.",
        show_default=False,
    ),
]
StrategyFor = Annotated[
    list[str] | None,
    typer.Option("--strategy-for", metavar="TYPE=STRATEGY", help="The same for one type.", show_default=False),
]
Base = Annotated[
    str | None, typer.Option("--base", metavar="COMMIT", help="Compare with this commit instead.", show_default=False)
]


def register(group: typer.Typer) -> None:
    """Add the verbs to the group of branches."""
    group.command("merge")(merge_branch)
    group.command("conflicts")(list_conflicts)


@addressed
def merge_branch(
    address: Address,
    source: Source,
    uri: Uri = None,
    uri_option: UriOption = None,
    into: Into = "main",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")] = False,
    strategy: Strategy = None,
    strategy_for: StrategyFor = None,
    resolve: Annotated[
        str | None,
        typer.Option("--resolve", metavar="FILE", help="Conflicts as lines, each with a take.", show_default=False),
    ] = None,
    expect_source: Annotated[
        str | None,
        typer.Option("--expect-source", metavar="COMMIT", help="Refuse if it is not there.", show_default=False),
    ] = None,
    expect_target: Annotated[
        str | None,
        typer.Option("--expect-target", metavar="COMMIT", help="Refuse if it is not there.", show_default=False),
    ] = None,
    base: Base = None,
    delete_branch: Annotated[bool, typer.Option("--delete-branch", help="Delete the source afterwards.")] = False,
    engine: Annotated[Engine, typer.Option("--engine", help="What does the work; auto chooses by size.")] = "auto",
    actor: Actor = None,
    message: Message = None,
    yes: Yes = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Bring what a branch has changed into another one, as one commit, or nothing at all."""
    from omnigraph.cli.progress import load_bar

    wanted: dict[str, Any] = {"strategy": strategy, "strategies": by_type(strategy_for or []), "base": base}
    wanted["engine"] = engine
    wanted["resolve"] = None if resolve is None else read_resolutions(resolve)
    session = Session("branch merge", address, uri=uri, uri_option=uri_option)
    if dry_run:
        with session.open(read_only=True) as graph:
            plan = graph.branches.plan_merge(source, into, **wanted)
        if as_json:
            typer.echo(to_json(plan.to_json()))
        else:
            write_lines(plan_lines(plan))
        return
    author = session.actor(actor)
    session.announce(quiet=quiet)
    if delete_branch:
        session.confirm_destructive(yes=yes, as_json=as_json)
    with session.open(read_only=False) as graph, load_bar() as listener:
        try:
            result = graph.branches.merge(
                source,
                into,
                expect_source=expect_source,
                expect_target=expect_target,
                delete_branch=delete_branch,
                actor=author,
                message=message,
                progress=listener,
                **wanted,
            )
        except MergeConflictError:
            if not as_json:
                refused_plan = graph.branches.plan_merge(source, into, **wanted)
                write_lines(conflict_lines(refused_plan.conflicts[:SHOWN_CONFLICTS], refused_plan.conflicts_total))
            raise
    if as_json:
        typer.echo(to_json(result.to_json()))
        return
    typer.echo(f"merged {source} into {into}: {result.outcome}")
    write_lines(_outcome_lines(source, result))


def _outcome_lines(source: str, result: MergeResult) -> Iterator[str]:
    """What a merge has done, beyond that it is done."""
    yield from _type_lines(result.plan)
    if result.commit_id is not None:
        yield f"commit {result.commit_id}"
    if result.branch_deleted:
        yield f"deleted branch {source}"
    if result.branch_delete_error is not None:
        yield f"branch {source} could not be deleted: {result.branch_delete_error}"


@addressed
def list_conflicts(
    address: Address,
    source: Source,
    uri: Uri = None,
    uri_option: UriOption = None,
    into: Into = "main",
    strategy: Strategy = None,
    strategy_for: StrategyFor = None,
    base: Base = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write them as lines that --resolve reads.", show_default=False),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="At most so many.", show_default=False)] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="TOKEN", help="Go on after the conflict with this token.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """List what keeps a branch from being merged, with what the three states have."""
    session = Session("branch conflicts", address, uri=uri, uri_option=uri_option)
    wanted: dict[str, Any] = {"strategy": strategy, "strategies": by_type(strategy_for or []), "base": base}
    with session.open(read_only=True) as graph:
        found = islice(graph.branches.conflicts(source, into, after=after, **wanted), limit)
        if out is not None:
            from omnigraph.engine.operations.export import write_lines as write_file

            number = write_file(out, (json.dumps(conflict.to_json(), ensure_ascii=False) for conflict in found))
            told = f'{number} conflicts written to {out}: add a "take" to each line, then merge with --resolve'
            typer.echo(to_json({"conflicts_written": number, "out": out}) if as_json else told)
            return
        total = graph.branches.plan_merge(source, into, **wanted).conflicts_total
        if as_json:
            typer.echo(to_json({"conflicts_total": total, "merge_conflicts": [each.to_json() for each in found]}))
        else:
            write_lines(conflict_lines(found, total))


def by_type(texts: Sequence[str]) -> dict[str, str]:
    """Strategies by type.

    Raises:
        InputError: one is not `TYPE=STRATEGY`.
    """
    found = {}
    for text in texts:
        name, separator, strategy = text.partition("=")
        if not separator or not name or not strategy:
            raise InputError(f"'{text}' is not a strategy for a type: write Person=theirs")
        found[name] = strategy
    return found


def read_resolutions(path: str) -> list[dict[str, Any]]:
    """The lines of a file of resolutions; a line without a `take` is not decided yet and left out.

    Raises:
        InputError: the file cannot be read, or a line is not an object or takes what nothing is called.
    """
    from omnigraph.engine.operations.merge.resolutions import parse_take

    found = []
    # Values may hold what else counts as the end of a line, such as U+2028, which JSON leaves as it is.
    for number, line in enumerate(read_text(path, what="resolutions").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            read = json.loads(line)
        except ValueError as exc:
            raise InputError(f"{path}, line {number}: not JSON ({exc})") from exc
        if not isinstance(read, dict):
            raise InputError(f"{path}, line {number}: not an object")
        if "take" in read:
            try:
                parse_take(read["take"])
            except InputError as exc:
                raise InputError(f"{path}, line {number}: {exc}") from exc
            found.append(read)
    return found


def plan_lines(plan: MergePlan) -> Iterator[str]:
    """What a merge would do."""
    outcome = "refused" if plan.conflicts_total else plan.outcome
    yield f"merging {plan.source} into {plan.target} would be: {outcome}"
    yield from _type_lines(plan)
    if plan.conflicts_total:
        yield ""
        yield from conflict_lines(plan.conflicts[:SHOWN_CONFLICTS], plan.conflicts_total)


def _type_lines(plan: MergePlan) -> Iterator[str]:
    rows = [
        {
            "type": found.name,
            "kind": found.kind,
            "+": found.inserted,
            "~": found.updated,
            "-": found.deleted,
            "how": str(found.how),
        }
        for found in plan.types
    ]
    if rows:
        yield from table_lines(["type", "kind", "+", "~", "-", "how"], rows, Layout())
    for found in plan.types:
        if found.reason is not None:
            yield f"{found.rows_written:,} rows of {found.name} are written anew: {found.reason}"
    if plan.parallel_edges:
        yield f"{plan.parallel_edges:,} edges of both sides lie between the same nodes, and all of them stay"
    for how, number in sorted(plan.resolved.items()):
        yield f"{number} settled by {how}"
    if plan.engine != "local":
        yield f"{plan.engine} because {plan.engine_reason}"


def conflict_lines(conflicts: Iterable[MergeConflict], total: int) -> Iterator[str]:
    """Conflicts for people: what does not fit, and what base, ours and theirs have, a `*` where both sides differ."""
    if not total:
        yield "no conflicts"
        return
    shown = 0
    for conflict in conflicts:
        shown += 1
        yield f"{conflict.kind} {conflict.table_key} {conflict.row_id or conflict.related}: {conflict.message}"
        if conflict.kind.is_of_rows:
            yield from (f"    {line}" for line in _sides(conflict))
    if total > shown:
        yield f"… {total - shown:,} more; omnigraph branch conflicts lists all"


def _sides(conflict: MergeConflict) -> Iterator[str]:
    sides = {"base": conflict.base, "ours": conflict.ours, "theirs": conflict.theirs}
    there = [image for image in sides.values() if image is not None]
    ends = ["from", "to"] if any(image.ends is not None for image in there) else []
    names = dict.fromkeys([*ends, *(name for image in there for name in image.properties)])
    rows = [
        {
            "": f"* {name}" if name in conflict.columns else f"  {name}",
            **{side: shown_value(_value(side, image, name), 24) for side, image in sides.items()},
        }
        for name in names
    ]
    yield from table_lines(["", *sides], rows, Layout())


def _value(side: str, image: Image | None, name: str) -> Any:
    if image is None:
        # The states that branches parted from either had no such entity, or do not agree about it.
        return "(none)" if side == "base" else "(deleted)"
    if image.ends is not None and name in ("from", "to"):
        return image.ends[name == "to"]
    return image.properties.get(name)
