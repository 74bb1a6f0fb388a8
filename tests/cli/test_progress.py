"""The bar of a load."""

import io

from rich.console import Console

from omnigraph.cli.progress import load_bar
from omnigraph.engine.ingest.progress import Progress


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


def test_a_notebook_cell_shows_one_line_that_changes_in_place() -> None:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    try:
        with capture_output() as captured, load_bar(Console(force_jupyter=True)) as listener:
            assert listener is not None
            listener(Progress("starting", 0.1, note="starting Spark with <Java 17>"))
            listener(Progress("stage", 2.0, tasks_done=1, tasks_total=4, rows=1_000))
    finally:
        InteractiveShell.clear_instance()
    first, *later = captured.outputs
    shown = [output.data["text/html"] for output in captured.outputs]
    assert "starting Spark with &lt;Java 17&gt;" in shown[1]
    assert "<b>stage</b>" in shown[2]
    assert "value='0.250'" in shown[2]
    assert "1,000 rows  500/s" in shown[2]
    assert shown[-1] == ""
    cell = first.transient["display_id"]
    assert all(output.update and output.transient["display_id"] == cell for output in later)
