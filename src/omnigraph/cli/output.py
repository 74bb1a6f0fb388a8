"""How the rows of a read look on standard output.

Five formats of one result: `table` and `kv` for people, `csv`, `jsonl` and `json` for programs. The functions are pure
and yield lines, so that a long result streams. Values arrive as the wire has them (`omnigraph.plan.results`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

Row = Mapping[str, Any]


class Layout(Struct, frozen=True):
    """The limits of a table cell."""

    max_width: int = 80
    wrap: bool = False


class ReadView(Struct, frozen=True):
    """A result as the formats need it: what was asked, of which state, and the rows that came back."""

    query_name: str
    branch: str | None
    snapshot: str | None
    columns: Sequence[str]
    rows: Sequence[Row]

    @property
    def target(self) -> dict[str, str | None]:
        """The state that was read, one of a branch and a snapshot."""
        return {"branch": self.branch, "snapshot": self.snapshot}

    @property
    def headline(self) -> str:
        """The line above a result meant for people."""
        source = f"snapshot {self.snapshot}" if self.snapshot else f"branch {self.branch}"
        return f"{counted(len(self.rows), 'row')} from {source} via {self.query_name}"


def render(view: ReadView, form: str, layout: Layout) -> Iterator[str]:
    """The lines of a result in one of the five formats."""
    if form == "json":
        yield to_json(
            {
                "query_name": view.query_name,
                "target": view.target,
                "row_count": len(view.rows),
                **({"columns": list(view.columns)} if view.columns else {}),
                "rows": list(view.rows),
            }
        )
    elif form == "jsonl":
        yield from (_compact({name: row.get(name) for name in view.columns}) for row in view.rows)
    elif form == "csv":
        yield from csv_lines(view.columns, view.rows)
    elif form == "kv":
        yield from _kv(view)
    else:
        yield view.headline
        yield from table_lines(view.columns, view.rows, layout)


def to_json(value: Any) -> str:
    """One pretty JSON value, the way every `--json` prints."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(2, "row")
    ('1 row', '2 rows')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def table_lines(columns: Sequence[str], rows: Sequence[Row], layout: Layout) -> Iterator[str]:
    """An aligned table; a cell beyond the limit ends in `…` or goes on below, as the layout says."""
    if not rows:
        yield "(no rows)"
        return
    body = [[_cell(row.get(name)) for name in columns] for row in rows]
    head = [_visible(name) for name in columns]
    widths = [
        min(layout.max_width, max(_width(head[i]), *(_width(cells[i]) for cells in body))) for i in range(len(columns))
    ]
    yield from _table_row(head, widths, layout)
    yield "-+-".join("-" * width for width in widths)
    for cells in body:
        yield from _table_row(cells, widths, layout)


def csv_lines(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """RFC 4180 lines: a header, then the rows; null is `null` and what is not scalar is compact JSON."""
    yield ",".join(_quoted(name) for name in columns)
    for row in rows:
        yield ",".join(_quoted(_text(row.get(name))) for name in columns)


def metadata_line(view: ReadView) -> str:
    """What was asked, of which state, and how many rows came back, as one JSON object."""
    return _compact({"query_name": view.query_name, "target": view.target, "row_count": len(view.rows)})


def _kv(view: ReadView) -> Iterator[str]:
    yield view.headline
    if not view.rows:
        yield "(no rows)"
    for number, row in enumerate(view.rows, start=1):
        if number > 1:
            yield ""
        yield f"row {number}"
        for name in view.columns:
            yield f"{_visible(name)}: {_cell(row.get(name))}"


def _table_row(cells: Sequence[str], widths: Sequence[int], layout: Layout) -> Iterator[str]:
    pieces = [_fit(cell, width, layout) for cell, width in zip(cells, widths, strict=True)]
    for line in range(max((len(piece) for piece in pieces), default=1)):
        parts = [
            _pad(piece[line] if line < len(piece) else "", width) for piece, width in zip(pieces, widths, strict=True)
        ]
        yield " | ".join(parts).rstrip()


def _fit(cell: str, width: int, layout: Layout) -> list[str]:
    """The cell as lines that are no wider than its column."""
    if _width(cell) <= width:
        return [cell]
    if not layout.wrap:
        return [_cut(cell, width - 1) + "…"]
    lines: list[str] = []
    while cell:
        head = _cut(cell, width) or cell[0]
        lines.append(head)
        cell = cell[len(head) :]
    return lines


def _cut(text: str, width: int) -> str:
    """The longest beginning of the text that is no wider than `width` terminal cells."""
    if text.isascii():
        return text[:width]
    used = 0
    for position, character in enumerate(text):
        used += _width(character)
        if used > width:
            return text[:position]
    return text


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _width(text: str) -> int:
    """How many terminal cells the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cell(value: Any) -> str:
    return _visible(_text(value))


def shown_value(value: Any, width: int = 80) -> str:
    """One value on one line, cut where it is wider than that."""
    [line] = _fit(_cell(value), width, Layout(max_width=width))
    return line


def _visible(text: str) -> str:
    """The text on one line with control characters written out, so that data cannot steer the terminal."""
    if text.isprintable():
        return text
    written = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(
        written.get(c) or (c if c.isprintable() or c == "\u00a0" else c.encode("unicode_escape").decode("ascii"))
        for c in text
    )


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _quoted(text: str) -> str:
    if any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
