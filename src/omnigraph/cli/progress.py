"""A live bar for a load: which phase it is in, how far, how many rows and how fast.

On a terminal the bar is drawn on standard error and vanishes when the load is done; in a notebook it is an output of
the cell that changes in place; anywhere else nothing is drawn. The terminal's bar would need `ipywidgets` in a notebook
and show nothing without it, so there it is HTML through IPython's own display handle. The engine knows none of this: it
hands observations to a listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

    from omnigraph.engine.ingest.progress import Progress as LoadProgress
    from omnigraph.engine.operations.merge.progress import MergeProgress

    Observation = LoadProgress | MergeProgress


Listener = Callable[["Observation"], None]


@contextmanager
def load_bar(console: Console | None = None) -> Iterator[Listener | None]:
    """A listener that draws on this console while the block runs; None where nobody would see it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = console or Console(stderr=True)
    if console.is_jupyter:
        with _in_a_cell() as listener:
            yield listener
        return
    if not console.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description:<12}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Drawing(bar)


class _Drawing:
    """Keeps one line per phase, the newest of them alive."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._phase: str | None = None
        self._task = bar.add_task("starting", total=None, detail="")

    def __call__(self, seen: Observation) -> None:
        if seen.note:
            self._bar.console.print(f"[dim]{seen.note}[/dim]", highlight=False)
        elif seen.phase != self._phase:
            self._phase = seen.phase
            self._bar.update(self._task, total=None, description=seen.phase, completed=0)
        detail = f"{seen.rows:,} rows  {seen.rows_per_second:,.0f}/s" if seen.rows else ""
        if seen.fraction is None:
            self._bar.update(self._task, detail=detail)
        else:
            self._bar.update(self._task, total=1.0, completed=seen.fraction, detail=detail)


@contextmanager
def _in_a_cell() -> Iterator[Listener]:
    """One output of a notebook cell that is replaced as the load goes on, and removed when it is done.

    A notebook shows HTML by itself, so no widget package is needed.
    """
    from IPython.display import HTML, display

    handle = display(HTML(cell_html("starting", None, "")), display_id=True)

    def draw(seen: Observation) -> None:
        detail = seen.note or (f"{seen.rows:,} rows  {seen.rows_per_second:,.0f}/s" if seen.rows else "")
        handle.update(HTML(cell_html(seen.phase, seen.fraction, detail)))

    try:
        yield draw
    finally:
        handle.update(HTML(""))


def cell_html(phase: str, fraction: float | None, detail: str) -> str:
    """One line of a notebook: the phase, how far it is, and what there is to say about it."""
    bar = "<progress style='width: 20em'></progress>"
    if fraction is not None:
        bar = f"<progress style='width: 20em' max='1' value='{fraction:.3f}'></progress> {fraction:.0%}"
    return f"<div><b>{escape(phase)}</b> {bar} {escape(detail)}</div>"
