"""The bar of a load."""

import io

from rich.console import Console

from omnigraph.cli.progress import load_bar
from omnigraph.pipeline.progress import Progress


def test_a_terminal_sees_phase_rows_and_rate() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with load_bar(console) as listener:
        assert listener is not None
        listener(Progress("starting", 0.1, note="Spark is starting"))
        listener(Progress("reading", 2.0, tasks_done=1, tasks_total=4, rows=1_000))
        listener(Progress("writing", 4.0, rows=8_000))
    text = screen.getvalue()
    assert "Spark is starting" in text
    assert "writing" in text
    assert "8,000 rows" in text
    assert "2,000/s" in text


def test_nothing_is_drawn_where_nobody_looks() -> None:
    screen = io.StringIO()
    with load_bar(Console(file=screen, force_terminal=False)) as listener:
        assert listener is None
    assert screen.getvalue() == ""
