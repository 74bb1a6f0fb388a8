"""Running a read plan on a snapshot.

`execute` matches the pattern, ranks or groups, puts the rows in order, and hands back positions that become columns
when they are asked for: as one table, or batch by batch so that a huge result never exists whole.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.catalog import arrays
from omnigraph.dataclass import dataclass
from omnigraph.engine.reading.aggregate import aggregate_column, group_rows
from omnigraph.engine.reading.context import Context, EmbedsText, OpensTables, ReadOptions, Step
from omnigraph.engine.reading.frame import Frame
from omnigraph.engine.reading.kernels import Ints
from omnigraph.engine.reading.match import match_pattern
from omnigraph.engine.reading.ordering import Key, id_key, order_rows, sort_key, text_key, tie_break_variables
from omnigraph.engine.reading.prepare import Prepared
from omnigraph.engine.reading.program import program_of
from omnigraph.engine.reading.project import Scores, evaluate, few_values
from omnigraph.engine.reading.rank import rank_rows
from omnigraph.engine.reading.tables import take_rows
from omnigraph.errors import InternalError, LimitError
from omnigraph.plan.explain import show
from omnigraph.plan.operators import Aggregate, Expression, OrderKey, Projection, ReadPlan
from omnigraph.plan.results import column_to_json, columns_to_json, rows_to_json

BATCH_ROWS = 65_536
FEW_ROWS = 16
"""Up to this many rows become dictionaries without Arrow columns in between."""
DEFAULTS = ReadOptions()


@dataclass
class ReadResult:
    """The rows of one execution. Columns are fetched when asked for, so a result can be streamed."""

    schema: pa.Schema
    length: int
    steps: list[Step]
    _context: Context
    _projections: tuple[Projection, ...]
    _frame: Frame | None = None
    _scores: Scores = field(default_factory=dict)
    _computed: tuple[pa.Array | None, ...] = ()
    """Columns that were computed already, by projection; none of them, or one for each."""
    _batches: tuple[pa.RecordBatch, ...] | None = None
    _count: int | None = None
    """The number that every column of the one row is, where the result is nothing else."""

    def __len__(self) -> int:
        return self.length

    def to_table(self) -> pa.Table:
        """All rows as one table.

        Raises:
            LimitError: it would be larger than `ReadOptions.result_bytes_max`; use `to_batches`.
        """
        if self._batches is None:
            limit = self._context.options.result_bytes_max
            batches, size = [], 0
            for batch in self.to_batches():
                size += batch.nbytes
                if size > limit:
                    raise LimitError(
                        f"the result is larger than {limit:,} bytes: read it with to_batches()",
                        resource="result_bytes",
                        limit=limit,
                        actual=size,
                    )
                batches.append(batch)
            self._batches = tuple(batches)
        return pa.Table.from_batches(self._batches, self.schema)

    def to_json(self) -> Iterator[dict[str, Any]]:
        """The rows as dictionaries with JSON-ready values, made batch by batch."""
        if self._count is not None:
            yield dict.fromkeys(self.schema.names, self._count)
            return
        if self._batches is None and self.length <= FEW_ROWS and self._projections:
            yield from self._few()
            return
        if self._batches is None and self.length <= BATCH_ROWS:
            yield from columns_to_json(self.schema.names, self._columns(0, self.length), self.length)
            return
        for batch in self.to_batches():
            yield from rows_to_json(batch)

    def to_batches(self, rows_max: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows as record batches; each is made when it is reached, and none is kept."""
        if self._batches is None and self._count is not None:
            counts = [arrays.array([self._count], pa.int64())] * len(self.schema)
            self._batches = (pa.RecordBatch.from_arrays(counts, schema=self.schema),)
        if self._batches is not None:
            for batch in self._batches:
                for begin in range(0, batch.num_rows, rows_max):
                    yield batch if batch.num_rows <= rows_max else batch.slice(begin, rows_max)
            return
        for begin in range(0, self.length, rows_max):
            yield self._batch(begin, min(begin + rows_max, self.length))

    def _batch(self, begin: int, end: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._columns(begin, end), schema=self.schema)

    def _columns(self, begin: int, end: int) -> list[pa.Array]:
        if self._frame is None:
            raise InternalError("a result has neither rows nor a table")
        span = slice(begin, end)
        whole = begin == 0 and end == self.length
        frame = self._frame if whole else self._frame.take(np.arange(begin, end))
        scores = {expression: values[span] for expression, values in self._scores.items()}
        return [
            _fit(
                evaluate(self._context, projection.expression, frame, scores)
                if computed is None
                else computed.slice(begin, end - begin),
                kind,
            )
            for projection, computed, kind in zip(
                self._projections, self._computed or repeat(None), self.schema.types, strict=False
            )
        ]

    def _few(self) -> Iterator[dict[str, Any]]:
        """All rows when they are few: most values are taken one by one, without columns in between."""
        if self._frame is None:
            raise InternalError("a result has neither rows nor a table")
        names, columns = self.schema.names, []
        for place, projection in enumerate(self._projections):
            array = self._computed[place] if self._computed else None
            if array is None:
                values = few_values(self._context, projection.expression, self._frame)
                if values is not None:
                    columns.append(values)
                    continue
                array = evaluate(self._context, projection.expression, self._frame, self._scores)
            columns.append(column_to_json(_fit(array, self.schema.field(place).type)))
        return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _fit(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def execute(
    plan: ReadPlan,
    snapshot: OpensTables,
    params: Mapping[str, Any],
    *,
    options: ReadOptions | None = None,
    embedder: EmbedsText | None = None,
    now: dt.datetime | None = None,
) -> ReadResult:
    """Run a plan. `params` are bound values (`omnigraph.plan.parameters.bind`); the snapshot never changes meanwhile.

    Raises:
        LimitError: more rows, bytes or time than `options` allow.
        InputError: a text given to `nearest` cannot be embedded, or not in the space of the stored vectors.
    """
    program = program_of(plan, snapshot)
    context = Context(plan, snapshot, params, options or DEFAULTS, embedder, now)
    frame = match_pattern(context, program.schedule)
    if plan.is_aggregate:
        return _aggregated(context, program.prepared, frame)
    if frame.weights is not None:
        context.check_rows(frame.total(), len(frame.columns), "the result")
        frame = frame.unweighted()
    return _ordered(context, program.prepared, frame)


# --- rows -------------------------------------------------------------------------------------------------------------


def _ordered(context: Context, prepared: Prepared, frame: Frame) -> ReadResult:
    plan = context.plan
    scores: dict[Expression, npt.NDArray[np.float64]] = {}
    keys: list[Key] = []
    ties: tuple[Key, ...] = ()
    if plan.rank is not None:
        note = context.step("rank", partial(show, plan.rank), "after all conditions")
        ranked = rank_rows(context, plan.rank, frame, plan.limit)
        frame, ties = ranked.frame, ranked.ties
        scores[plan.rank] = ranked.scores
        keys.extend(ranked.keys)
        note.done(len(frame))
    if plan.is_ordered:
        keys.extend(_order_key(context, key, frame, scores) for key in plan.order)
        keys.extend(ties)
        keys.extend(id_key(context, name, frame.columns[name]) for name in tie_break_variables(frame))
    rows = _in_order(context, len(frame), keys)
    if rows is not None:
        frame = frame.take(rows)
        scores = {expression: values[rows] for expression, values in scores.items()}
    return ReadResult(prepared.schema, len(frame), context.steps, context, plan.projections, frame, scores)


def _in_order(context: Context, length: int, keys: list[Key]) -> Ints | None:
    """The rows in order, cut at the limit; None when they may stay as they are."""
    plan = context.plan
    if (not keys or length < 2) and (plan.limit is None or plan.limit >= length):
        return None
    limit = "" if plan.limit is None else f"limit {plan.limit}"
    note = context.step("order" if keys else "limit", partial(_show_order, plan), limit)
    rows = order_rows(length, keys, plan.limit)
    note.done(len(rows))
    return rows


def _show_order(plan: ReadPlan) -> str:
    return ", ".join(f"{show(key.expression)}{' desc' if key.descending else ''}" for key in plan.order)


def _order_key(context: Context, key: OrderKey, frame: Frame, scores: Scores) -> Key:
    def made(rows: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        chosen = frame if rows is None else frame.take(rows)
        known = text_key(context, key.expression, chosen, key.descending)
        if known is not None:
            return known
        kept = scores if rows is None else {e: values[rows] for e, values in scores.items()}
        return sort_key(evaluate(context, key.expression, chosen, kept), key.descending)

    return made


# --- groups -----------------------------------------------------------------------------------------------------------


def _aggregated(context: Context, prepared: Prepared, frame: Frame) -> ReadResult:
    plan, keys = prepared.plan, prepared.group_keys
    if prepared.only_counts_rows and (plan.limit is None or plan.limit > 0):
        return ReadResult(prepared.schema, 1, context.steps, context, plan.projections, _count=frame.total())
    note = context.step("aggregate", lambda: ", ".join(show(key) for key in keys) or "all rows")
    groups = group_rows(context, frame, keys)
    computed: dict[Expression, pa.Array] = {
        expression: aggregate_column(context, groups, expression)
        for expression in prepared.group_expressions
        if isinstance(expression, Aggregate)
    }
    note.done(len(groups))

    def column(expression: Expression, rows: npt.NDArray[Any] | None) -> pa.Array:
        """A column of the groups, fetched for the rows of interest only."""
        found = computed.get(expression)
        if found is not None:
            return found if rows is None else take_rows(found, rows)
        return evaluate(context, expression, group_frame(rows), {})

    def group_frame(rows: npt.NDArray[Any] | None) -> Frame:
        """A row of each group of interest."""
        first = groups.first if rows is None else groups.first[rows]
        return frame.take(first) if keys else Frame(len(first))

    def sort(expression: Expression, descending: bool) -> Key:
        def key(rows: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
            known = None if expression in computed else text_key(context, expression, group_frame(rows), descending)
            return sort_key(column(expression, rows), descending) if known is None else known

        return key

    sort_keys = [sort(key.expression, key.descending) for key in plan.order]
    if plan.order:
        ordered = {key.expression for key in plan.order}
        sort_keys.extend(sort(key, False) for key in keys if key not in ordered)
    rows = _in_order(context, len(groups), sort_keys)
    computed_columns = tuple(
        column(projection.expression, rows) if projection.expression in computed else None
        for projection in plan.projections
    )
    shown = group_frame(rows)
    return ReadResult(
        prepared.schema, len(shown), context.steps, context, plan.projections, shown, _computed=computed_columns
    )
