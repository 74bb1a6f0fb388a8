"""What differs between two states of the graph, at the cost of the difference. Start at `diff`.

`delta` finds the rows two versions of a table do not share, `equality` says when two rows are the same, `rows` pairs
them by id, `images` reads what they hold, and `diff` puts the tables of two snapshots together.
"""

from omnigraph.engine.changes.diff import Diff, diff
from omnigraph.engine.changes.images import Change, Op, Values

__all__ = ["Change", "Diff", "Op", "Values", "diff"]
