"""Reads the text tables of the language: rows of a number, a level and a sentence, each with steps that prove it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_HEAD = re.compile(r"([DA]?\d+)([a-z]?) ([BND])  (.+)")
_VERBS = (
    "schema|nodes|edges|interfaces|columns|column|type|key|same as|annotations|accepted|error|write|affected|commits"
    "|add|change|drop|supported|steps|data loss|refused|broken|past|then|apply|applied|branch|ids|returned"
    "|match|query|mutate|return|order|limit|params|with|rows|row count|ulids|call|bind|value|result|wire|sdk"
    "|empty|provider|load|loaded|export|round trip|blob|bytes|exported|lint|report"
)
_STEP = re.compile(rf"    ({_VERBS})(?: +(.*))?")
_MORE = " " * 16


@dataclass(frozen=True)
class Step:
    """One line of a row: a verb and its text, which may go on over deeper lines."""

    verb: str
    text: str


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    number: str
    part: str
    level: str
    title: str
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        return f"{self.number}{self.part}"


def read_rows(path: Path) -> list[Row]:
    """Every row of a table file; a line that is none of the known forms is an error of the table."""
    rows: list[Row] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        head = _HEAD.fullmatch(line)
        if head:
            rows.append(Row(head[1], head[2], head[3], head[4], ()))
            continue
        row = rows[-1]
        if line.startswith(_MORE):
            last = row.steps[-1]
            text = f"{last.text}\n{line[len(_MORE) :]}".removeprefix("\n")
            steps = (*row.steps[:-1], Step(last.verb, text))
        else:
            step = _STEP.fullmatch(line)
            if step is None:
                raise ValueError(f"{path.name}, line {number}: not a row, a step or a continuation: {line!r}")
            steps = (*row.steps, Step(step[1], (step[2] or "").strip()))
        rows[-1] = Row(row.number, row.part, row.level, row.title, steps)
    return rows
