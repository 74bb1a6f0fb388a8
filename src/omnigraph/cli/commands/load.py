"""`omnigraph load`: bulk data into a graph, in one commit."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.choices import Engine, LoadMode
from omnigraph.cli.inputs import STDIN
from omnigraph.cli.options import (
    Actor,
    Address,
    BlobsFrom,
    Branch,
    CommitDurability,
    Json,
    Message,
    Quiet,
    SparkConf,
    SparkMaster,
    Uri,
    Yes,
    addressed,
)
from omnigraph.cli.output import to_json
from omnigraph.cli.session import Session, write_lines
from omnigraph.errors import BranchNotFoundError, GraphError, InputError, RecoveryRequiredError, StorageError
from omnigraph.ids import demand_base
from omnigraph.scratch import Scratch

if TYPE_CHECKING:
    from omnigraph.engine.operations.outcomes import LoadResult
    from omnigraph.graph import Graph


Data = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="PATH", help="JSON lines: a file, folder or glob; - for stdin; repeatable."),
]
Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]...", help="Data behind the graph, or behind its flag; as with --data.", show_default=False
    ),
]
Nodes = Annotated[
    list[str] | None,
    typer.Option("--nodes", metavar="TYPE=PATH", help="Parquet, CSV or JSON of one node type; repeatable."),
]
Edges = Annotated[
    list[str] | None,
    typer.Option("--edges", metavar="TYPE=PATH", help="Parquet, CSV or JSON of one edge type; repeatable."),
]
TypeName = Annotated[
    str | None,
    typer.Option(
        "--type", metavar="TYPE", help="Of which type all of --data is: Parquet, CSV or JSON.", show_default=False
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="TYPE.PROPERTY=COLUMN", help="Where a column has another name; repeatable."),
]


def register(application: typer.Typer) -> None:
    """Add the verb."""
    application.command("load")(load)


@addressed
def load(
    address: Address,
    uri: Uri = None,
    files: Files = None,
    mode: Annotated[
        LoadMode,
        typer.Option(
            "--mode", help="append (ids must be new), merge (upsert), update (change what is there), overwrite."
        ),
    ] = "append",
    data: Data = None,
    nodes: Nodes = None,
    edges: Edges = None,
    type_name: TypeName = None,
    mapping: Columns = None,
    branch: Branch = "main",
    base: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Create the branch from this one if it is missing.")
    ] = None,
    engine: Annotated[Engine, typer.Option("--engine", help="What does the work; auto chooses by size.")] = "auto",
    durability: CommitDurability = "full",
    errors_to: Annotated[
        str | None, typer.Option("--errors-to", metavar="FILE", help="Write every violation to this file; takes Spark.")
    ] = None,
    master: SparkMaster = None,
    conf: SparkConf = None,
    blobs_from: BlobsFrom = None,
    actor: Actor = None,
    message: Message = None,
    yes: Yes = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Load data lines, or one file per type; it becomes one commit, or nothing."""
    from omnigraph.cli.progress import load_bar
    from omnigraph.wire import load_output

    files = list(files or ())
    if uri is not None and (address.store or address.server) and not (data or nodes or edges):
        # A flag already says which graph, so the first word cannot: it is the first file.
        files.insert(0, uri)
        uri = None
    session = Session("load", address, uri=uri)
    author = session.actor(actor)
    columns = parse_mapping(mapping or [])
    settings = spark_settings(conf)
    with sources([*(data or ()), *files], nodes or [], edges or []) as source:
        session.announce(quiet=quiet)
        if mode == "overwrite":
            session.confirm_destructive(yes=yes, as_json=as_json)
        with (
            session.open(read_only=False, durability=durability, external_blobs=blobs_from or ()) as graph,
            load_bar() as listener,
            branch_of(session, graph, branch, base, author) as (created, further),
        ):
            result = graph.load(
                source,
                mode=mode,
                branch=branch,
                engine=engine,
                actor=author,
                message=message,
                type=type_name,
                columns=columns or None,
                progress=listener,
                errors_to=errors_to,
                master=master,
                conf=settings or None,
                **further,
            )
    result = replace(result, base_branch=base, branch_created=created or result.branch_created)
    if as_json:
        typer.echo(to_json(load_output(result, uri=session.uri)))
    else:
        write_lines(summary_lines(result, uri=session.uri))


@contextmanager
def branch_of(
    session: Session, graph: Graph, branch: str, base: str | None, author: str | None
) -> Iterator[tuple[bool, dict[str, Any]]]:
    """The branch of a load: whether it was made for it, and what the load itself has to be told about that.

    A server makes the branch in the request that loads. Here it is made before, and goes again if nothing was loaded.

    Raises:
        BranchNotFoundError: it is missing and no base is named, or the base is missing.
    """
    if base is None:
        try:
            yield False, {}
        except BranchNotFoundError:
            raise BranchNotFoundError(
                f"there is no branch '{branch}': pass --from <base> to create it for the load"
            ) from None
    elif session.is_served:
        yield False, {"base": base}
    else:
        there = graph.branches.list()
        if branch in there:
            demand_base(there, base)
            yield False, {}
            return
        began_at = graph.branches.create(branch, base, actor=author).head
        try:
            yield True, {}
        except (RecoveryRequiredError, StorageError):
            raise  # Whether something was loaded is not known.
        except GraphError:
            with suppress(GraphError):
                if graph.snapshot(branch).head == began_at:
                    graph.branches.delete(branch, actor=author)
            raise


@contextmanager
def sources(data: Sequence[str], nodes: Sequence[str], edges: Sequence[str]) -> Iterator[Any]:
    """What a load reads: paths of data lines, or paths by type; standard input is kept in a file meanwhile.

    Raises:
        InputError: neither or both kinds are given.
    """
    by_type = [("node", text) for text in nodes] + [("edge", text) for text in edges]
    if not data and not by_type:
        raise InputError(
            "there is nothing to load: name the files behind the graph (omnigraph load graph.omni people.csv --type"
            " Person), or pass --data, or --nodes and --edges with a file per type"
        )
    if data and by_type:
        raise InputError("pass either --data, or --nodes and --edges with a file per type")
    if by_type:
        found: dict[str, list[str]] = {}
        for kind, text in by_type:
            name, path = _pair(text, f"--{kind}s", "TYPE=PATH")
            found.setdefault(f"{kind}:{name}", []).append(path)
        yield found
    elif STDIN not in data:
        yield list(data)
    else:
        with Scratch("stdin") as folder:
            kept = folder / "stdin.jsonl"
            with kept.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            yield [str(kept) if path == STDIN else path for path in data]


def spark_settings(texts: Sequence[str] | None) -> dict[str, str]:
    """Spark's settings by name.

    Raises:
        InputError: a text is not `KEY=VALUE`.
    """
    return dict(_pair(text, "--spark-conf", "KEY=VALUE") for text in texts or ())


def parse_mapping(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Column names by type and property.

    Raises:
        InputError: a text is not `Type.property=column`.
    """
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        left, column = _pair(text, "--map", "TYPE.PROPERTY=COLUMN")
        name, dot, prop = left.rpartition(".")
        if not dot or not name or not prop:
            raise InputError(f"'{text}' is not a mapping: write --map TYPE.PROPERTY=COLUMN")
        found.setdefault(name, {})[prop] = column
    return found


def summary_lines(result: LoadResult, *, uri: str) -> Iterator[str]:
    """What a load did, for people."""
    from omnigraph.wire import load_counts

    counts = load_counts(result.rows)
    yield (
        f"loaded {uri} on branch {result.branch} with {result.mode}: {counts['nodes_loaded']} nodes across"
        f" {counts['node_types_loaded']} node types, {counts['edges_loaded']} edges across"
        f" {counts['edge_types_loaded']} edge types"
    )
    width = max((len(key) for key in result.rows), default=0)
    yield from (f"  {key:<{width}}  {count:,}" for key, count in sorted(result.rows.items()))
    phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in result.phases.items())
    written = f", {result.bytes_written / 2**20:,.1f} MB written" if result.bytes_written else ""
    yield f"  {result.seconds:.2f} s through {result.engine}{f' ({phases})' if phases else ''}{written}"
    if result.reason:
        yield f"  {result.engine} because {result.reason}"
    yield f"  commit {result.commit_id}" if result.commit_id else "  nothing changed, no commit"


def _pair(text: str, option: str, shape: str) -> tuple[str, str]:
    left, separator, right = text.partition("=")
    if not separator or not left.strip() or not right.strip():
        raise InputError(f"'{text}' does not fit {option}: write {option} {shape}")
    return left.strip(), right.strip()
