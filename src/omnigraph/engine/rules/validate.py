"""The one validator of every write: does the graph still hold all rules of its schema afterwards?

It looks at a `ChangeSet`, the final image of everything one write adds, changes and removes, and at the committed state
through a `CommittedView`. Only what the write touches is checked. Rules are tried in the order of their kinds (values,
uniqueness, references, cardinality), and the first kind that is broken is reported with all its violations. Mutations,
loads and merges use it alike; bulk loads have the same rules checked by others who answer the same questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from omnigraph.catalog.model import Catalog
from omnigraph.engine.rules import wording
from omnigraph.engine.rules.arrow import (
    NO_IDS,
    ArrowQuestions,
    ChangeSet,
    CommittedView,
    TableChange,
    repeated_in,
    repeated_rows,
)
from omnigraph.engine.rules.checks import Violation, check_rows
from omnigraph.engine.rules.questions import ACROSS_ROWS, SHOWN_MAX, broken
from omnigraph.engine.rules.statement import Finding, Identity, Rule, Unique, unique_rules
from omnigraph.engine.values.entities import LINE, RECORD, SOURCE, Entity
from omnigraph.errors import ConstraintError, KeyConflictError
from omnigraph.ids import TableKey


def validate(catalog: Catalog, changes: ChangeSet, view: CommittedView) -> None:
    """Check every rule the changes can break.

    Raises:
        ConstraintError: a rule of the schema would be broken; `violations` lists up to twenty.
        KeyConflictError: an id that must be new is taken.
    """
    rows = {key: changes[key].rows for key in sorted(changes)}
    _refuse([found for key in rows for found in _values(changes[key])], rows)
    for found in _across_rows(catalog, changes, ArrowQuestions(changes, view)):
        _refuse(found, rows)


def findings(catalog: Catalog, changes: ChangeSet, view: CommittedView) -> list[Finding]:
    """Every rule the changes would break, of every kind and without a limit, as data.

    For whoever can do something about a broken rule, as a merge can.

    Raises:
        KeyConflictError: an id that must be new is taken.
    """
    found = [each for key in sorted(changes) for each in _values(changes[key])]
    asked = ArrowQuestions(changes, view, shown_max=None)
    return found + [each for some in _across_rows(catalog, changes, asked) for each in some]


def _across_rows(catalog: Catalog, changes: ChangeSet, asked: ArrowQuestions) -> Iterator[list[Finding]]:
    """What breaks rules of each kind."""
    for kind in ACROSS_ROWS:
        found = broken(kind, catalog, asked)
        taken = found.conflict
        if taken is not None:
            _, place = _placed(changes[taken.table_key].rows, taken.position)
            raise KeyConflictError(table_key=taken.table_key, entity_id=taken.row_id or "", detail=place)
        yield found.shown


def check_duplicate_ids(entity: Entity, rows: pa.Table, *, keep_last: bool) -> None:
    """Refuse input that names one id twice, where the last one does not count.

    Raises:
        ConstraintError: two records of one key, or of one explicit id outside a merge.
    """
    rule = Identity(entity)
    if rule.is_keyed or not keep_last:
        _refuse(_repeats(rule, rows), {entity.table_key: rows})


def refuse_rows(entity: Entity, rows: pa.Table, wrong: Sequence[Violation]) -> None:
    """Refuse rows for what is wrong with each of them by itself.

    Raises:
        ConstraintError: which records, unless nothing is wrong.
    """
    key = entity.table_key
    _refuse([Finding(Rule.VALUE, key, None, (), None, each.message, each.row) for each in wrong], {key: rows})


def check_unique_input(entity: Entity, rows: pa.Table) -> None:
    """Refuse input in which two records share a `@unique` tuple, even if one of them would replace the other.

    Raises:
        ConstraintError: which tuple, and the second record that has it.
    """
    _refuse([each for rule in unique_rules(entity) for each in _repeats(rule, rows)], {entity.table_key: rows})


def _repeats(rule: Unique, rows: pa.Table) -> list[Finding]:
    return [rule.broken_by(answer) for answer in repeated_in(rule, rows).shown]


def _values(change: TableChange) -> Iterator[Finding]:
    """The rules that rows break by themselves."""
    if change.values_checked:
        return
    ids = change.ids
    for hit in check_rows(change.entity, change.rows):
        yield Finding(Rule.VALUE, change.entity.table_key, ids[hit.row].as_py(), (), None, hit.message, hit.row)


def _refuse(found: Sequence[Finding], rows: Mapping[TableKey, pa.Table]) -> None:
    """Raise for violations in the order of the input, those that came from no input first."""
    if found:
        placed = [(*_placed(rows.get(each.table_key), each.position), each.message) for each in found]
        placed.sort(key=lambda each: each[0])
        texts = [f"{place}: {message}" if place else message for _, place, message in placed]
        raise ConstraintError(texts[0], violations=texts[:SHOWN_MAX])


def _placed(rows: pa.Table | None, row: int) -> tuple[tuple[str, int, int], str]:
    """Where an incoming row stands in the input, to sort by and in words."""
    if rows is None or row < 0 or RECORD not in rows.column_names:
        return ("", 0, 0), ""
    record, line = rows.column(RECORD)[row].as_py(), rows.column(LINE)[row].as_py()
    source = rows.column(SOURCE)[row].as_py() if SOURCE in rows.column_names else ""
    place = wording.place(record, line)
    return (source, record, line), f"{source}: {place}" if source else place


__all__ = [
    "NO_IDS",
    "ChangeSet",
    "Finding",
    "Rule",
    "TableChange",
    "check_duplicate_ids",
    "check_unique_input",
    "findings",
    "refuse_rows",
    "repeated_rows",
    "validate",
]
