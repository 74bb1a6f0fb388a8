"""The story that `make quickstart` tells: create, load through Spark, ask, search, change, branch, merge, look back.

Everything here uses the public names of the package alone, so it is also an example of how to use them. Run again, it
keeps the graph and tells the rest of the story anew; the newcomer adopts another project each time.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

import omnigraph
from omnigraph import MergeConflict
from omnigraph.choices import Engine
from omnigraph.cli.progress import load_bar
from omnigraph.engine.ingest.progress import Progress
from omnigraph.examples import community

NEWCOMER = "newcomer"
LOAD_ACTOR = "quickstart"
BRANCH = "tidy-up"
REVIEW, REVIEWER = "review", "reviewer"


def main(words: Sequence[str] | None = None) -> int:
    """Tell the story and return the exit code of the process."""
    parser = argparse.ArgumentParser(prog="omnigraph.examples.quickstart", description=__doc__.splitlines()[0])
    parser.add_argument("--root", default="quickstart.omni", help="where the graph lives")
    parser.add_argument("--data", default="quickstart-data", help="where the generated files go")
    parser.add_argument("--engine", default="spark", choices=["spark", "local"], help="what loads the data")
    parser.add_argument("--small", action="store_true", help="a hundredth of the data")
    options = parser.parse_args(words)
    console = Console()
    # Spark's start-up notices would interrupt the story; errors still come through.
    logging.getLogger("py4j").setLevel(logging.ERROR)
    try:
        story = Story(console, Path(options.root), Path(options.data))
        story.tell(engine=options.engine, size=community.SMALL if options.small else community.Size())
    except omnigraph.GraphError as error:
        Console(stderr=True).print(f"error: {error}", style="red", highlight=False, markup=False)
        return 1
    return 0


class Story:
    """One telling, on one console."""

    def __init__(self, console: Console, root: Path, data: Path) -> None:
        self.console = console
        self.root = root
        self.data = data
        self.step = 0

    def tell(self, *, engine: Engine, size: community.Size) -> None:
        """From an empty folder to a graph with a past."""
        self.console.print()
        self.console.rule("[bold]Omnigraph[/bold] · a graph database in a folder")
        with self._graph(engine, size) as graph:
            self._ask(graph)
            self._search(graph)
            commit_id, slug = self._change(graph)
            self._branch(graph)
            self._merge(graph)
            self._history(graph)
            self._past(graph, slug, commit_id)
        self._farewell()

    @contextmanager
    def _graph(self, engine: Engine, size: community.Size) -> Iterator[omnigraph.Graph]:
        """The graph of an earlier telling, or a new one with its data loaded."""
        try:
            graph = omnigraph.connect(self.root)
        except omnigraph.GraphNotFoundError:
            graph = self._create()
        with graph:
            nodes, edges = _counts(graph)
            if nodes:
                self._heading("Open the graph of an earlier run")
                self.console.print(f"{self.root} holds {nodes:,} nodes and {edges:,} edges; they stay as they are.")
            else:
                self._load(graph, engine, size)
            yield graph

    def _create(self) -> omnigraph.Graph:
        self._heading("Create a graph from a schema")
        schema = community.schema()
        self.console.print(Syntax(schema.strip(), "graphql", background_color="default", word_wrap=True))
        began = time.perf_counter()
        graph = omnigraph.create(self.root, schema=schema)
        self.console.print(f"[green]created[/green] {self.root} in {_seconds(began)}")
        return graph

    def _load(self, graph: omnigraph.Graph, engine: Engine, size: community.Size) -> None:
        self._heading(f"Load {size.nodes:,} nodes and {size.edges:,} edges in one commit")
        began = time.perf_counter()
        files = community.write_files(self.data, size=size)
        megabytes = sum(file.stat().st_size for file in files) / 1e6
        self.console.print(f"generated {len(files)} files, {megabytes:,.0f} MB of JSON lines, in {_seconds(began)}")
        began = time.perf_counter()
        with load_bar(self.console) as listener:
            hears = listener or self._say
            result = graph.load(files, mode="append", engine=engine, actor=LOAD_ACTOR, progress=hears)
        elapsed = time.perf_counter() - began
        self.console.print(_table(["type", "rows"], [{"type": key, "rows": rows} for key, rows in result.rows.items()]))
        phases = " · ".join(f"{name} {seconds:.1f} s" for name, seconds in result.phases.items())
        self.console.print(f"[dim]{phases}[/dim]", highlight=False)
        total = sum(result.rows.values())
        self.console.print(
            f"[green]loaded[/green] {total:,} rows through {result.engine} in {elapsed:.1f} s"
            f" ({total / elapsed:,.0f} rows/s), visible all at once as commit {result.commit_id}"
        )

    def _say(self, seen: Progress) -> None:
        """Print the notes of a load where no bar is drawn."""
        if seen.note:
            self.console.print(seen.note, highlight=False)

    def _ask(self, graph: omnigraph.Graph) -> None:
        self._heading("Ask questions")
        star = graph.query(
            "query star() { match { $p: Person } return { $p.handle as handle } order { $p.reputation desc } limit 1 }"
        ).to_pylist()[0]["handle"]
        self._query(graph, "person", {"handle": star}, "One node, by its key")
        self._query(graph, "two_hops", {"handle": star}, "Two hops out, the most reputable first")
        self._query(graph, "most_depended_on", {}, "Top ten over every dependency")
        self._query(graph, "languages", {}, "An aggregate over all projects")

    def _search(self, graph: omnigraph.Graph) -> None:
        self._heading("Search by words and by meaning")
        self._query(
            graph, "find", {"words": "lanterns for robotics, tested"}, "Full text, ranked; archived ones left out"
        )
        self._query(graph, "meaning", {"text": "teaching machines"}, "Nearest in meaning, and on along the edges")

    def _change(self, graph: omnigraph.Graph) -> tuple[str, str]:
        self._heading("Change something")
        lonely = self._query(graph, "lonely_stars", {"stars": 1_000}, "Well known, and nobody maintains them")
        if not lonely:
            raise omnigraph.NotFoundError(
                "every well known project has a maintainer by now: remove the graph, start anew"
            )
        slug = lonely[0]["project"]
        began = time.perf_counter()
        result = graph.mutate(
            community.queries(),
            {"handle": NEWCOMER, "name": "Nova Comer", "slug": slug, "joined": "2026-01-01"},
            name="adopt",
            actor=NEWCOMER,
        )
        self.console.print(
            f"[green]committed[/green] {NEWCOMER} adopts {slug}: {result.affected_nodes} node and"
            f" {result.affected_edges} edge, two tables, one commit, in {_seconds(began)}"
        )
        self._query(graph, "maintainers", {"slug": slug}, "It has a maintainer now")
        assert result.commit_id is not None
        return result.commit_id, slug

    def _branch(self, graph: omnigraph.Graph) -> None:
        self._heading("Try something on a branch")
        if BRANCH in graph.branches.list():
            graph.branches.delete(BRANCH)
        began = time.perf_counter()
        graph.branches.create(BRANCH)
        self.console.print(f"[green]branched[/green] {BRANCH} from main in {_seconds(began)}: nothing is copied")
        result = graph.mutate(community.queries(), {}, name="forget_archived", branch=BRANCH, actor=NEWCOMER)
        self.console.print(
            f"[green]committed[/green] on {BRANCH}: {result.affected_nodes:,} archived projects deleted with their"
            f" {result.affected_edges:,} edges; main does not see it"
        )
        for branch in ("main", BRANCH):
            self._query(graph, "archived", {}, f"Archived projects on {branch}", branch=branch)

    def _merge(self, graph: omnigraph.Graph) -> None:
        self._heading("Bring the work of a branch back")
        if REVIEW in graph.branches.list():
            graph.branches.delete(REVIEW)
        graph.branches.create(REVIEW)
        for branch, reputation in ((REVIEW, 7), ("main", 3)):
            params = {"handle": NEWCOMER, "reputation": reputation}
            graph.mutate(community.queries(), params, name="rate", branch=branch, actor=REVIEWER)
        for change in graph.branches.diff(REVIEW):
            before, after = (image.properties if image else {} for image in (change.before, change.after))
            self.console.print(f"{REVIEW} would {change.op} {change.type_name} {change.id}: {before} -> {after}")
        for conflict in graph.branches.conflicts(REVIEW):
            self.console.print(f"[yellow]conflict[/yellow] {conflict.message}")
        began = time.perf_counter()
        result = graph.branches.merge(REVIEW, resolve=_higher_reputation, delete_branch=True, actor=REVIEWER)
        self.console.print(
            f"[green]{result.outcome}[/green] {REVIEW} into main in {_seconds(began)}, the higher reputation counts:"
            f" commit {result.commit_id} has two parents"
        )
        self._query(graph, "person", {"handle": NEWCOMER}, "What main has now")

    def _history(self, graph: omnigraph.Graph) -> None:
        self._heading("Look at the history")
        commits = [
            {
                "commit": commit.graph_commit_id,
                "when (UTC)": datetime.fromtimestamp(commit.created_at / 1e6, tz=UTC).strftime("%Y-%m-%d %H:%M:%S"),
                "actor": commit.actor_id or "–",
                "version": commit.manifest_version,
            }
            for commit in graph.history.list(limit=5)
        ]
        self.console.print(_table(list(commits[0]), commits))

    def _past(self, graph: omnigraph.Graph, slug: str, commit_id: str) -> None:
        self._heading("Read the past")
        before = graph.history.show(commit_id).parent_commit_id
        self._query(
            graph, "maintainers", {"slug": slug}, f"The same question, one commit earlier ({before})", at=before
        )

    def _farewell(self) -> None:
        self._heading("Go on")
        source = "src/omnigraph/examples/community.gq"
        for line in (
            ". .venv/bin/activate",
            f"omnigraph snapshot {self.root}",
            f"omnigraph query most_depended_on --query {source} --store {self.root}",
            f"omnigraph query archived --query {source} --store {self.root} --branch {BRANCH}",
            f"omnigraph commit list {self.root} --filter actor={NEWCOMER}",
        ):
            self.console.print(f"  [cyan]{line}[/cyan]", highlight=False, soft_wrap=True)
        self.console.print(f"\nThe graph stays in [bold]{self.root}[/bold]; docs/quickstart.md goes on from here.\n")

    def _query(
        self,
        graph: omnigraph.Graph,
        name: str,
        params: dict[str, Any],
        caption: str,
        *,
        branch: str = "main",
        at: str | None = None,
    ) -> list[dict[str, Any]]:
        began = time.perf_counter()
        result = graph.query(community.queries(), params, name=name, branch=branch, at=at)
        rows = result.to_pylist()
        took = _seconds(began)
        self.console.print(f"[bold]{caption}[/bold] [dim]· {name} · {took}[/dim]", highlight=False)
        if rows:
            self.console.print(_table(result.columns, rows))
        else:
            self.console.print("  (no rows)\n")
        return rows

    def _heading(self, text: str) -> None:
        self.step += 1
        self.console.print(f"\n[bold blue]{self.step}. {text}[/bold blue]")


def _higher_reputation(conflict: MergeConflict) -> str | None:
    """Of two reputations the higher one counts; anything else stays a conflict."""
    if conflict.columns != ("reputation",) or conflict.ours is None or conflict.theirs is None:
        return None
    ours, theirs = conflict.ours.properties["reputation"], conflict.theirs.properties["reputation"]
    return "theirs" if theirs > ours else "ours"


def _counts(graph: omnigraph.Graph) -> tuple[int, int]:
    """Nodes and edges, from the snapshot alone."""
    entries = graph.snapshot().entries
    nodes = sum(entry.row_count for key, entry in entries.items() if key.startswith("node:"))
    return nodes, sum(entry.row_count for entry in entries.values()) - nodes


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    """Rows as a table, numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        number = isinstance(rows[0][column], int | float)
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_shown(row[column]) for column in columns))
    return table


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _seconds(began: float) -> str:
    elapsed = time.perf_counter() - began
    return f"{elapsed * 1_000:.1f} ms" if elapsed < 1 else f"{elapsed:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
