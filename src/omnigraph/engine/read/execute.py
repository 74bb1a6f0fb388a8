"""Running a read plan on a snapshot.

`execute` matches the pattern, ranks or groups, puts the rows in order, and hands back positions that become columns
when they are asked for: as one table, or batch by batch so that a huge result never exists whole.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.engine.embedding import Embedder
from omnigraph.engine.read.columns.tables import take_rows
from omnigraph.engine.read.context import Context, ReadOptions, Step
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.kernels import Ints
from omnigraph.engine.read.operators.aggregate import aggregate_column, group_rows
from omnigraph.engine.read.operators.computed import column_of
from omnigraph.engine.read.operators.match import match_pattern
from omnigraph.engine.read.operators.ordering import Key, id_key, order_rows, sort_key, text_key, tie_break_variables
from omnigraph.engine.read.operators.predicates import FrameRows, predicate_mask
from omnigraph.engine.read.operators.project import Scores, evaluate, few_values
from omnigraph.engine.read.operators.rank import rank_rows
from omnigraph.engine.read.plan.plan_cache import careful_order
from omnigraph.engine.read.plan.prepare import Prepared
from omnigraph.engine.read.reader import ReadState
from omnigraph.errors import ExecutionError, InternalError, LimitError, ParameterError
from omnigraph.plan.conditions import pattern_fault
from omnigraph.plan.explain import show, show_predicate
from omnigraph.plan.operators import Expression, OrderKey, ParameterRef, Predicate, Projection, ReadPlan
from omnigraph.plan.results import column_to_json, columns_to_json, rows_to_json

BATCH_ROWS = 65_536
FEW_ROWS = 16
"""Up to this many rows become dictionaries without Arrow columns in between."""
DEFAULTS = ReadOptions()
Known = Mapping[Expression, pa.Array]


class ReadResult(Struct):
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

    def to_batches(self, rows_max: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows as record batches; each is made when it is reached, and none is kept."""
        rows_max = BATCH_ROWS if rows_max is None else rows_max
        if self._batches is None and self._count is not None:
            counts = [pa.array([self._count], pa.int64())] * len(self.schema)
            self._batches = (pa.RecordBatch.from_arrays(counts, schema=self.schema),)
        if self._batches is not None:
            for batch in self._batches:
                for begin in range(0, batch.num_rows, rows_max):
                    yield batch if batch.num_rows <= rows_max else batch.slice(begin, rows_max)
            return
        for begin in range(0, self.length, rows_max):
            yield from self._made(begin, min(begin + rows_max, self.length))

    def _made(self, begin: int, end: int) -> list[pa.RecordBatch]:
        """Some rows as one batch, or as several where one cannot hold them."""
        columns = self._columns(begin, end)
        if [column.type for column in columns] == self.schema.types:
            return [pa.RecordBatch.from_arrays(columns, schema=self.schema)]
        fitting = [wide.plain_chunks(column, kind) for column, kind in zip(columns, self.schema.types, strict=True)]
        return pa.Table.from_arrays(fitting, schema=self.schema).to_batches()  # type: ignore[no-any-return]

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
    """The type a result shows; a column too large for it stays wide until it is cut."""
    if array.type == kind or (array.type == wide.wide_type(kind) and wide.extent(array) > wide.PLAIN_MAX):
        return array
    return array.cast(kind)


def execute(
    plan: ReadPlan,
    state: ReadState,
    params: Mapping[str, Any],
    *,
    options: ReadOptions | None = None,
    embedder: Embedder | None = None,
    now: dt.datetime | None = None,
) -> ReadResult:
    """Run a plan. `params` are bound values (`omnigraph.plan.parameters.bind`); the state never changes meanwhile.

    Raises:
        LimitError: more rows, bytes or time than `options` allow.
        InputError: a text given to `nearest` cannot be embedded, or not in the space of the stored vectors.
    """
    program = state.program(plan)
    context = Context(plan, state.tables, params, options or DEFAULTS, embedder, now)
    prepared = program.prepared
    if prepared.patterns:
        check_patterns(context, prepared.patterns)
    context.nullable = prepared.nullable
    try:
        frame = match_pattern(context, program.schedule)
    except ExecutionError as failure:
        # A condition was asked early, perhaps about rows that another one leaves out: those must not decide.
        context = context.again()
        try:
            frame = match_pattern(context, careful_order(prepared, state.tables))
        except LimitError:
            raise failure from None
    if plan.is_aggregate:
        return _aggregated(context, prepared, frame)
    if frame.weights is not None:
        context.check_rows(frame.total(), len(frame.columns), "the result")
        frame = frame.unweighted()
    return _ordered(context, prepared, frame)


def check_patterns(context: Context, patterns: Iterable[ParameterRef]) -> None:
    """Refuse a pattern that cannot be used before anything is read."""
    for reference in patterns:
        pattern = context.parameter(reference)
        fault = None if pattern is None else pattern_fault(pattern)
        if fault is not None:
            raise ParameterError(f"param '{reference.name}': the pattern cannot be used: {fault}")


# --- rows -------------------------------------------------------------------------------------------------------------


def _ordered(context: Context, prepared: Prepared, frame: Frame) -> ReadResult:
    plan = context.plan
    scores: dict[Expression, npt.NDArray[np.float64]] = {}
    keys: list[Key] = []
    ties: tuple[Key, ...] = ()
    if plan.having:
        frame = _having(context, frame, {}, plan.having)
    if plan.rank is not None:
        note = context.step("rank", partial(show, plan.rank), "after all conditions")
        ranked = rank_rows(context, plan.rank, frame, context.limit)
        frame, ties = ranked.frame, ranked.ties
        scores[plan.rank] = ranked.scores
        keys.extend(ranked.keys)
        note.done(len(frame))
    if plan.is_ordered:
        keys.extend(_order_key(context, key, frame, scores) for key in plan.order)
        keys.extend(ties)
        keys.extend(id_key(context, name, frame.columns[name]) for name in tie_break_variables(context, frame))
    rows = _in_order(context, len(frame), keys)
    if rows is not None:
        frame = frame.take(rows)
        scores = {expression: values[rows] for expression, values in scores.items()}
    computed: tuple[pa.Array | None, ...] = ()
    if any(prepared.risky):
        # What may fail does so here, and not while somebody reads the rows.
        computed = tuple(
            evaluate(context, projection.expression, frame, scores) if may_fail else None
            for projection, may_fail in zip(plan.projections, prepared.risky, strict=True)
        )
    return ReadResult(prepared.schema, len(frame), context.steps, context, plan.projections, frame, scores, computed)


def _having(context: Context, frame: Frame, known: Known, predicates: Sequence[Predicate]) -> Frame:
    note = context.step("having", lambda: ", ".join(map(show_predicate, predicates)))
    rows = FrameRows(context, frame, known)
    frame = frame.where(np.logical_and.reduce([predicate_mask(context, each, rows) for each in predicates]))
    note.done(len(frame))
    return frame


def _in_order(context: Context, length: int, keys: list[Key]) -> Ints | None:
    """The rows in order, cut at the limit; None when they may stay as they are."""
    limit, offset = context.limit, context.offset
    if (not keys or length < 2) and not offset and (limit is None or limit >= length):
        return None
    shown = "" if limit is None else f"limit {limit - offset}"
    note = context.step("order" if keys else "limit", partial(_show_order, context.plan), shown)
    rows = order_rows(length, keys, limit)[offset:]
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
    if prepared.only_counts_rows and (context.limit is None or context.limit > 0):
        return ReadResult(prepared.schema, 1, context.steps, context, plan.projections, _count=frame.total())
    note = context.step("distinct" if plan.distinct else "aggregate", lambda: ", ".join(map(show, keys)) or "all rows")
    # Distinct rows need a row even where all would be the same; an aggregate without keys is told of no rows as well.
    groups = group_rows(context, frame, keys, is_one=any(prepared.aggregated))
    computed: dict[Expression, pa.Array] = {
        aggregate: aggregate_column(context, groups, aggregate) for aggregate in prepared.aggregates
    }
    first = groups.first
    note.done(len(first))
    if plan.having:
        # Groups are rows here; each is shown by one of its own, and by what was computed of all.
        marked = _as_frame(frame, first, keys).bind(_GROUP, np.arange(len(first), dtype=np.int64))
        kept = _having(context, marked, computed, plan.having).columns[_GROUP]
        first = first[kept]
        computed = {expression: take_rows(values, kept) for expression, values in computed.items()}

    def frame_of(rows: npt.NDArray[Any] | None) -> Frame:
        """A row of each of some groups, or of all."""
        return _as_frame(frame, first if rows is None else first[rows], keys)

    def rows_of(rows: npt.NDArray[Any] | None) -> FrameRows:
        """The same, and what was computed of these groups."""
        if rows is None:
            return FrameRows(context, frame_of(None), computed)
        chosen = {expression: take_rows(values, rows) for expression, values in computed.items()}
        return FrameRows(context, frame_of(rows), chosen)

    def sort(expression: Expression, descending: bool) -> Key:
        def key(rows: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
            ready = computed.get(expression)
            if ready is not None:
                return sort_key(ready if rows is None else take_rows(ready, rows), descending)
            known = text_key(context, expression, frame_of(rows), descending)
            return sort_key(column_of(context, expression, rows_of(rows)), descending) if known is None else known

        return key

    sort_keys = [sort(key.expression, key.descending) for key in plan.order]
    if plan.order:
        ordered = {key.expression for key in plan.order}
        sort_keys.extend(sort(key, False) for key in keys if key not in ordered)
    chosen = rows_of(_in_order(context, len(first), sort_keys))
    columns = tuple(
        column_of(context, projection.expression, chosen) if is_ready or may_fail else None
        for projection, is_ready, may_fail in zip(plan.projections, prepared.aggregated, prepared.risky, strict=True)
    )
    shown = chosen.frame
    return ReadResult(prepared.schema, len(shown), context.steps, context, plan.projections, shown, _computed=columns)


_GROUP = "#group"


def _as_frame(frame: Frame, first: Ints, keys: tuple[Expression, ...]) -> Frame:
    """A row of each group; without keys there is one group, and it may have no row."""
    return frame.take(first) if keys else Frame(len(first))
