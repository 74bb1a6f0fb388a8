"""Do the rows there are keep the rules of a schema that is to be accepted? Start at `examine`.

A plan of steps knows two schemas and no row. Here each step that depends on rows meets them: a rule that is new or
narrower, a property that may no longer be null, a type or property that goes with its values. A step that rows stand in
the way of becomes an unsupported one that names the first of them and says how many there are. Rows are looked at as
they will be: numbers widened, defaults filled in.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from omnigraph.catalog.arrow import arrow_type
from omnigraph.catalog.migration import EXISTING_ROWS_BREAK_RULE, NULLABLE_MADE_REQUIRED
from omnigraph.catalog.model import Catalog, CheckRule, EdgeType, NodeType, RangeRule
from omnigraph.catalog.steps import (
    ROWS_SHOWN_MAX,
    AddConstraint,
    BrokenRow,
    ChangeCardinality,
    Constraint,
    DropProperty,
    DropType,
    MakeRequired,
    MigrationPlan,
    SetEnum,
    Step,
    UnsupportedChange,
)
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.rules import checks
from omnigraph.engine.rules.arrow import repeated_tuples
from omnigraph.engine.rules.statement import NOWHERE, Answer, Degree, Unique
from omnigraph.engine.schema.fills import fills_of
from omnigraph.engine.storage.evolve import Fill
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.ids import TableKey

Outside = Callable[[pa.Table], pa.ChunkedArray]


def examine(
    snapshot: Snapshot, accepted: Catalog, target: Catalog, plan: MigrationPlan, now: dt.datetime
) -> MigrationPlan:
    """The plan with what the rows of a snapshot say to it."""
    old_keys = {
        TableKey(f"{kind}:{new}"): TableKey(f"{kind}:{old}")
        for kind in ("node", "edge")
        for old, new in plan.type_renames(kind).items()
    }

    def examined(step: Step) -> Step:
        kind, name = getattr(step, "type_kind", "interface"), getattr(step, "type_name", getattr(step, "name", ""))
        new_key = TableKey(f"{kind}:{name}")
        old_key = new_key if isinstance(step, DropType) else old_keys.get(new_key, new_key)
        entry = snapshot.entries.get(old_key)
        if entry is None or not entry.row_count:
            return step
        if isinstance(step, DropType):
            return replace(step, rows=entry.row_count)
        renames = plan.property_renames(kind, name)
        before, after = accepted.tables[old_key], target.tables[new_key]
        return _Rows(snapshot.open(old_key), before, after, renames, now).examine(step)

    return MigrationPlan(tuple(examined(step) if _depends_on_rows(step) else step for step in plan.steps))


def _depends_on_rows(step: Step) -> bool:
    if isinstance(step, AddConstraint):
        return step.constraint.name != "Index"
    return isinstance(step, DropType | DropProperty | MakeRequired | SetEnum | ChangeCardinality)


class _Broken(Struct):
    """The rows that break a rule: how many, and the first by id."""

    count: int = 0
    first: list[BrokenRow] = field(default_factory=list)

    def add(self, ids: Sequence[str], count: int, problem: Callable[[int], str]) -> None:
        """Add some more; `ids` are theirs, and `problem` tells of each by its place among them."""
        self.count += count
        chosen = sorted(range(len(ids)), key=ids.__getitem__)[:ROWS_SHOWN_MAX]
        found = [*self.first, *(BrokenRow(ids[place], problem(place)) for place in chosen)]
        self.first = sorted(found, key=lambda row: row.id)[:ROWS_SHOWN_MAX]


class _Rows(Struct, frozen=True):
    """The rows of one table, as they are stored and as they will be."""

    handle: TableHandle
    before: NodeType | EdgeType
    after: NodeType | EdgeType
    renames: Mapping[str, str]
    now: dt.datetime

    def examine(self, step: Step) -> Step:
        """The step with its numbers, or what stands in its way."""
        match step:
            case DropProperty():
                return replace(step, rows=self._count_values(step.property_name))
            case MakeRequired():
                return self._required(step)
            case SetEnum() if step.enum_values is not None:
                return self._enum(step, step.property_name, step.enum_values)
            case AddConstraint():
                return self._constraint(step, step.constraint)
            case ChangeCardinality() if isinstance(self.after, EdgeType):
                return self._cardinality(step, self.after)
        return step

    def _count_values(self, name: str) -> int:
        return self.handle.count_rows(f"`{name}` IS NOT NULL")

    # --- rules of one row --------------------------------------------------------------------------------------------

    def _required(self, step: MakeRequired) -> Step:
        old = {new: old for old, new in self.renames.items()}.get(step.property_name, step.property_name)
        if step.default is not None:
            return replace(step, rows=self.handle.count_rows() - self._count_values(old))
        name, broken = step.property_name, _Broken()
        if self.handle.count_rows() > self._count_values(old):
            nulls = self.handle.scan(["id"], f"`{old}` IS NULL").column("id").to_pylist()
            broken.add(nulls, len(nulls), lambda place: checks.required_problem(self.after, name))
        what = f"{name} cannot be made required without a @default: it is null"
        return self._judged(step, broken, what, NULLABLE_MADE_REQUIRED, name)

    def _enum(self, step: Step, name: str, allowed: tuple[str, ...]) -> Step:
        broken = self._broken(
            name,
            lambda rows: checks.outside_enum(allowed, rows.column(name)),
            lambda value: checks.enum_problem(self.after, name, allowed, value),
        )
        return self._judged(step, broken, f"enum({', '.join(allowed)}) is broken", EXISTING_ROWS_BREAK_RULE, name)

    def _constraint(self, step: Step, constraint: Constraint) -> Step:
        (name, *_), facts = constraint.columns, dict(constraint.facts)
        if constraint.name == "Unique":
            broken = self._repeated(constraint.columns)
        elif constraint.name == "Range":
            bounds = RangeRule(name, *(None if facts[b] is None else float(facts[b] or 0) for b in ("min", "max")))
            broken = self._broken(
                name,
                lambda rows: checks.outside_range(bounds, rows.column(name)),
                lambda value: checks.range_problem(self.after, bounds, value),
            )
        else:
            rule = CheckRule(name, str(facts["pattern"]))
            broken = self._broken(
                name,
                lambda rows: checks.unmatched(rule, rows.column(name)),
                lambda value: checks.check_problem(self.after, rule, value),
            )
        return self._judged(step, broken, f"{constraint} is broken", EXISTING_ROWS_BREAK_RULE)

    def _broken(self, name: str, outside: Outside, problem: Callable[[object], str]) -> _Broken:
        """The rows that a rule about one column forbids, found in a stream."""
        found = _Broken()
        fills = self._columns([name])
        for batch in self.handle.scan_batches(_read(fills)):
            rows = _as_will_be(batch, fills)
            mask = pc.fill_null(outside(rows), False)
            if pc.any(mask).as_py():
                bad = rows.filter(mask)
                values = bad.column(name)
                found.add(bad.column("id").to_pylist(), bad.num_rows, lambda place, v=values: problem(v[place]))  # type: ignore[misc]
        return found

    # --- rules between rows ------------------------------------------------------------------------------------------

    def _repeated(self, group: tuple[str, ...]) -> _Broken:
        fills = self._columns(group)
        rows = _as_will_be(self.handle.scan(_read(fills)), fills)
        places, found, rule = repeated_tuples(rows.select(group)), _Broken(), Unique(self.after, group)
        if len(places):
            bad = rows.take(pa.array(places))
            ids = bad.column("id").to_pylist()

            def problem(place: int) -> str:
                values = tuple(bad.column(name)[place].as_py() for name in group)
                return rule.broken_by(Answer(NOWHERE, values)).message

            found.add(ids, len(ids), problem)
        return found

    def _cardinality(self, step: Step, edge: EdgeType) -> Step:
        counted = pc.value_counts(self.handle.scan(["src"]).column("src").combine_chunks())
        sources, counts = counted.field("values"), np.asarray(counted.field("counts"))
        rule = Degree(edge)
        bad = rule.is_broken(counts)
        ids, numbers, broken = sources.filter(pa.array(bad)).to_pylist(), counts[bad], _Broken()

        def problem(place: int) -> str:
            return rule.broken_by(Answer(NOWHERE, (ids[place], int(numbers[place])))).message

        broken.add(ids, len(ids), problem)
        low, high = edge.cardinality.low, edge.cardinality.high
        shown = f"@card({low}..{'' if high is None else high})"
        return self._judged(step, broken, f"{shown} is broken", EXISTING_ROWS_BREAK_RULE)

    # --- shared ------------------------------------------------------------------------------------------------------

    def _columns(self, names: Sequence[str]) -> list[Fill]:
        """The id and some properties, or ends, as they will be."""
        filled = fills_of(self.before, self.after, self.renames, self.now)
        old_names = {new: old for old, new in self.renames.items()}
        found = [Fill("id", "id", pa.string())]
        for name in names:
            prop = self.after.properties.get(name)
            kind = pa.string() if prop is None else arrow_type(prop.type)
            found.append(filled.get(name) or self._plain(name, old_names.get(name, name), kind))
        return found

    def _plain(self, name: str, old: str, kind: pa.DataType) -> Fill:
        known = old in self.before.properties or old in ("src", "dst")
        return Fill(name, old if known else None, kind, None if known else pa.scalar(None, kind))

    def _judged(self, step: Step, broken: _Broken, what: str, code: str, name: str | None = None) -> Step:
        if not broken.count:
            return step
        kind = "edge" if isinstance(self.after, EdgeType) else "node"
        entity = f"{kind}:{self.after.name}" + (f".{name}" if name else "")
        rows = "1 row" if broken.count == 1 else f"{broken.count} rows"
        reason = f"{what} in {rows}, the first '{broken.first[0].id}' ({broken.first[0].problem})"
        return UnsupportedChange(entity, reason, code, broken.count, tuple(broken.first))


def _read(fills: Sequence[Fill]) -> list[str]:
    return list(dict.fromkeys(fill.column for fill in fills))


def _as_will_be(rows: pa.RecordBatch | pa.Table, fills: Sequence[Fill]) -> pa.Table:
    return pa.table({fill.name: fill.values(rows) for fill in fills})
