"""How results look where people meet them: tables as text at a prompt, and as HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from msgspec import Struct

CELL_WIDTH = 48
ROWS_MAX = 50
"""The rows of a long listing that are shown; the others are counted."""


class Table(Struct, frozen=True):
    """A caption, columns and rows; whole numbers stand at the right of their column, `more` below the last row."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: str = ""

    def to_text(self) -> str:
        """The table as aligned lines.

        >>> print(Table("2 rows", ["name", "n"], [["ann", 1], ["bob", 1200]]).to_text())
        2 rows
        name      n
        ────  ─────
        ann       1
        bob   1,200
        """
        cells = [[_cell(value) for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)]
        right = self._right
        lines = [self.columns, ["─" * width for width in widths], *cells]
        aligned = ("  ".join(map(_aligned, line, widths, right)).rstrip() for line in lines)
        return "\n".join([self.caption, *aligned, *([self.more] if self.more else [])])

    def to_html(self, width_max: int = CELL_WIDTH) -> str:
        """The table as HTML in which nothing of a value is markup; longer values are cut."""
        right = self._right
        head = _row("th", self.columns, right)
        body = "".join(_row("td", [_cell(value, width_max) for value in row], right) for row in self.rows)
        foot = (
            f"<tfoot><tr><td colspan='{len(self.columns)}'>{escape(self.more)}</td></tr></tfoot>" if self.more else ""
        )
        caption = f"<caption style='text-align:left;white-space:nowrap'>{escape(self.caption)}</caption>"
        return f"<table>{caption}<thead>{head}</thead><tbody>{body}</tbody>{foot}</table>"

    @property
    def _right(self) -> list[bool]:
        """Which columns hold nothing but numbers."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.columns)
        return [any(_is_number(value) for value in column) and _all_numbers(column) for column in columns]


class Shown:
    """What is a table at a prompt and in a notebook."""

    __slots__ = ()

    def _table(self) -> Table:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._table().to_text()

    def _repr_html_(self) -> str:
        return self._table().to_html()


def _all_numbers(column: Iterable[Any]) -> bool:
    return all(value in (None, "") or _is_number(value) for value in column)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any, width_max: int = CELL_WIDTH) -> str:
    """A value on one line, cut where it is long."""
    if value is None:
        return "null"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    text = text.replace("\n", " ")
    return text if len(text) <= width_max else text[: width_max - 1] + "…"


def _aligned(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _row(tag: str, cells: Iterable[str], right: Sequence[bool]) -> str:
    # Said of every cell, because notebooks set all of them to the right.
    styled = (f" style='text-align:{'right' if each else 'left'}'" for each in right)
    return (
        "<tr>" + "".join(f"<{tag}{style}>{escape(c)}</{tag}>" for c, style in zip(cells, styled, strict=True)) + "</tr>"
    )
