"""States and commits as people look at them: tables, at a prompt and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.engine.manifest.records import CommitRecord, TableEntry
from omnigraph.ids import MAIN, TableKey
from omnigraph.shown import ROWS_MAX, Shown, Table


class Commits(Shown, list[CommitRecord]):
    """Commits in the order they are listed; a list that shows when each was made, by whom, and what it says."""

    def _table(self) -> Table:
        shown = self[:ROWS_MAX]
        rows = [
            [
                f"{commit.time:%Y-%m-%d %H:%M:%S}",
                commit.graph_commit_id,
                commit.manifest_branch or MAIN,
                commit.actor_id or "",
                commit.message or ("merge" if commit.merged_parent_commit_id else ""),
            ]
            for commit in shown
        ]
        left = len(self) - len(shown)
        caption = f"{len(self):,} commit{'' if len(self) == 1 else 's'}"
        columns = ["time (UTC)", "commit", "branch", "actor", "message"]
        return Table(caption, columns, rows, f"… {left:,} more" if left else "")


def state_table(caption: str, entries: Mapping[TableKey, TableEntry]) -> Table:
    """What a state holds: each type, its rows, and the version of its table."""
    rows: list[list[str | int]] = [
        [*entry.table_key.split(":", 1), entry.row_count, entry.version] for entry in entries.values()
    ]
    rows.sort(key=lambda row: (row[0] != "node", row[1]))
    return Table(caption, ["kind", "type", "rows", "version"], rows)


def counts_table(older: str, newer: str, rows: Sequence[Sequence[object]], steps: int) -> Table:
    """How two states differ: what came, changed and went of each type, and how many steps lie between the schemas."""
    more = f"{steps} step{'' if steps == 1 else 's'} between the schemas" if steps else ""
    columns = ["kind", "type", "+", "~", "-"]
    return Table(f"from {older} to {newer}", columns, rows, more or ("" if rows else "no differences"))
