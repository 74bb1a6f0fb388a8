"""From a broken rule back to the record that broke it.

While a load goes well nobody needs line numbers, so none are kept: a staged row knows which row of its type of which
piece it is. When an error must be shown, the piece is read again and the lines before it are counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from omnigraph.catalog.model import Catalog
from omnigraph.engine.ingest.csvs import records_before
from omnigraph.engine.ingest.files import FileFormat, is_uri, position_of
from omnigraph.engine.ingest.shape import shape_feed
from omnigraph.engine.ingest.sources import Inputs
from omnigraph.engine.ingest.stage import InputProblem, StagedFragment, StageOutcome
from omnigraph.engine.ingest.staged import split_position
from omnigraph.engine.rules.questions import SHOWN_MAX, Findings
from omnigraph.engine.storage.outlet import outlet
from omnigraph.engine.values.entities import LINE, RECORD
from omnigraph.errors import ConstraintError, InputError, KeyConflictError
from omnigraph.ids import TableKey

Numbers = npt.NDArray[np.int64]


class Blame(Struct, frozen=True, order=True):
    """One violation with its place: the input, and the record and line in it (0 where there is none to name)."""

    source: int
    record: int
    line: int
    name: str
    message: str

    def __str__(self) -> str:
        if not self.record:
            return f"{self.name}: {self.message}" if self.name else self.message
        where = f"record {self.record} (line {self.line})" if self.line else f"row {self.record}"
        return f"{short_name(self.name)}: {where}: {self.message}"


def short_name(name: str) -> str:
    """The last part of a path or URI, without the options of its filesystem."""
    return os.path.basename(name.partition("?")[0] if is_uri(name) else name) if "/" in name else name


class Locator:
    """Finds the record behind a staged row; reads each piece it is asked about once."""

    def __init__(self, inputs: Inputs, catalog: Catalog) -> None:
        self._inputs = inputs
        self._catalog = catalog
        self._rows: dict[int, dict[TableKey, tuple[Numbers, Numbers]]] = {}
        self._before: dict[int, tuple[int, int]] = {}

    def problem(self, found: InputProblem) -> Blame:
        """The place of a problem that shaping reported."""
        return self._place(found.source, found.record, found.line, found.message)

    def row(self, fragments: Sequence[StagedFragment], table_key: TableKey, position: int, message: str) -> Blame:
        """The place of a staged row."""
        if position < 0:
            return Blame(len(self._inputs.feeds), 0, 0, "", message)
        number, offset = split_position(position)
        for run in fragments[number].runs:
            if offset < run.rows:
                return self._staged_row(run.source, table_key, run.first + offset, message)
            offset -= run.rows
        return Blame(-1, 0, 0, "", message)

    def _staged_row(self, source: int, table_key: TableKey, row: int, message: str) -> Blame:
        if not 0 <= source < len(self._inputs.feeds):
            return self._place(source, 0, 0, message)
        rows = self._rows.get(source)
        if rows is None:
            rows = self._rows[source] = self._read(source)
        records, lines = rows[table_key]
        return self._place(source, int(records[row]), int(lines[row]), message)

    def _read(self, source: int) -> dict[TableKey, tuple[Numbers, Numbers]]:
        found: dict[TableKey, list[tuple[Numbers, Numbers]]] = {}
        for shaped in shape_feed(self._inputs.feeds[source], self._catalog):
            for key, tables in shaped.tables.items():
                for table in tables:
                    pair = (np.asarray(table[RECORD], dtype=np.int64), np.asarray(table[LINE], dtype=np.int64))
                    found.setdefault(key, []).append(pair)
        return {
            key: (np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs]))
            for key, pairs in found.items()
        }

    def _place(self, source: int, record: int, line: int, message: str) -> Blame:
        feeds = self._inputs.feeds
        if not 0 <= source < len(feeds):
            frame = source - len(feeds)
            name = self._inputs.frames[frame].name if 0 <= frame < len(self._inputs.frames) else ""
            return Blame(source, record, 0, name, message)
        feed = feeds[source]
        if feed.piece.file.format is FileFormat.PARQUET:
            return Blame(source, record, 0, feed.name, message)
        if source not in self._before:
            is_csv = feed.piece.file.format is FileFormat.CSV
            self._before[source] = records_before(feed.piece) if is_csv else position_of(feed.piece)
        lines, records = self._before[source]
        return Blame(source, record + records, line + lines, feed.name, message)


def refuse_problems(outcome: StageOutcome, locator: Locator, inputs: Inputs, errors_to: str | None) -> None:
    """Stop a load whose records cannot be read or break a rule by themselves.

    Raises:
        InputError: an input cannot be read at all.
        ConstraintError: records are at fault; the first twenty are in `violations`, all in the file at `errors_to`.
    """
    if outcome.failures:
        source, message = min(outcome.failures)
        named = inputs.feeds[source].name if 0 <= source < len(inputs.feeds) else ""
        raise InputError(message if not named or named in message else f"{short_name(named)}: {message}")
    if outcome.problem_count:
        ordered = sorted(outcome.problems, key=lambda each: (each.source, each.record, each.line))
        shown = ordered if errors_to else ordered[:SHOWN_MAX]
        refuse([locator.problem(each) for each in shown], outcome.problem_count, errors_to)


def refuse_findings(
    findings: Findings,
    fragments: dict[TableKey, tuple[StagedFragment, ...]],
    locator: Locator,
    errors_to: str | None,
) -> None:
    """Stop a load that breaks a rule across rows.

    Raises:
        KeyConflictError: an id that must be new is taken.
        ConstraintError: see `refuse_problems`.
    """
    if findings.conflict is not None:
        taken = findings.conflict
        blame = locator.row(fragments[taken.table_key], taken.table_key, taken.position, "")
        raise KeyConflictError(
            table_key=taken.table_key, entity_id=taken.row_id or "", detail=str(blame).removesuffix(": ").strip()
        )
    if findings.count:
        blames = [
            locator.row(fragments.get(found.table_key, ()), found.table_key, found.position, found.message)
            for found in findings.shown
        ]
        refuse(sorted(blames), findings.count, errors_to)


def refuse(blames: Sequence[Blame], count: int, errors_to: str | None) -> None:
    """Raise for what is wrong with an input, after writing all of it where the caller asked."""
    texts = [str(blame) for blame in blames[:SHOWN_MAX]]
    if errors_to is not None:
        _write(blames, errors_to)
    more = "" if count <= 1 else f" (and {count - 1:,} more{f', all in {errors_to}' if errors_to else ''})"
    raise ConstraintError(f"{texts[0]}{more}", violations=texts)


def _write(blames: Iterable[Blame], path: str) -> None:
    """One JSON object per violation."""
    lines = [
        json.dumps({"file": b.name, "record": b.record or None, "line": b.line or None, "message": b.message})
        for b in blames
    ]
    with outlet(path) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())
