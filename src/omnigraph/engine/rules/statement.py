"""What a schema demands across rows, as data: each rule says what is found when it is broken, in which words.

`rules_of` gives the rules of a table. How they are checked is told in `questions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from omnigraph.catalog.derived import once
from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.engine.values.entities import Entity
from omnigraph.ids import TableKey

NOWHERE = -1
"""The position of a violation that no incoming row is to blame for."""


class Rule(StrEnum):
    """The kinds of rules, in the order in which they are tried."""

    VALUE = "value"
    UNIQUE = "unique"
    REFERENCE = "reference"
    CARDINALITY = "cardinality"


class Answer(NamedTuple):
    """One violation: the position of the incoming row to blame, and the values that were asked for.

    `row_id` and `related` are told by those who have them at hand: the entity, and the holder of its unique values.
    """

    position: int
    values: tuple[Any, ...]
    row_id: str | None = None
    related: str | None = None


class Finding(Struct, frozen=True):
    """A rule that would be broken: by which entity (None where it is a number of them), in which columns.

    `related` is the other party: the node that an end names or that has too many edges, the holder of a unique value.
    """

    rule: Rule
    table_key: TableKey
    row_id: str | None
    columns: tuple[str, ...]
    related: str | None
    message: str
    position: int = NOWHERE


class Unique(Struct, frozen=True):
    """No two entities of a type have the same values in these columns; a tuple with a null is exempt."""

    entity: Entity
    columns: tuple[str, ...]

    def broken_by(self, answer: Answer) -> Finding:
        """A second entity has the same values."""
        position, values, row_id, holder = answer
        key = self.entity.table_key
        return Finding(Rule.UNIQUE, key, row_id, self.columns, holder, self._says(values), position)

    def _says(self, values: tuple[Any, ...]) -> str:
        shown = ", ".join(repr(value) if isinstance(value, str) else str(value) for value in values)
        names = ", ".join(self.columns)
        return f"@unique violation: another {self.entity.name} already has ({names}) = ({shown})"


class Identity(Unique, frozen=True):
    """No two records of one input have the same id, except that the last one counts where ids are free."""

    columns: tuple[str, ...] = ("id",)

    @property
    def is_keyed(self) -> bool:
        """True when a key decides the ids, so that no record simply replaces another."""
        return bool(self.entity.key)

    def unknown(self, entity_id: str) -> str:
        """An update names an entity that is not there."""
        return f"{self.entity.name} '{entity_id}' does not exist, and an update changes only what is there"

    def moved(self, entity_id: str) -> str:
        """An update would make another entity of one."""
        what = "another key"
        if isinstance(self.entity, EdgeType):
            what = "other ends or another key" if self.is_keyed else "other ends"
        return f"{self.entity.name} '{entity_id}' has {what} than the record says, and an update cannot change that"

    def _says(self, values: tuple[Any, ...]) -> str:
        what = f"{self.entity.name} '{values[0]}'" if self.is_keyed else f"the id '{values[0]}' of {self.entity.name}"
        return f"@unique violation: the input has {what} twice"


class End(Struct, frozen=True):
    """One end of the edges of a type, `src` or `dst`, names a node of a type."""

    edge: EdgeType
    column: str
    node_type: str

    def missing(self, answer: Answer) -> Finding:
        """An edge is written whose node does not exist."""
        node = answer.values[1]
        message = f"edge {self.edge.name}: {self.column} '{node}' not found in {self.node_type}"
        return self._found(answer.row_id, node, message, answer.position)

    def orphan(self, answer: Answer) -> Finding:
        """An edge is kept whose node disappears."""
        edge, node = answer.values
        kept = f"orphan violation: edge {self.edge.name} '{edge}' would keep {self.column} '{node}'"
        return self._found(edge, node, f"{kept}, which is not found in {self.node_type} any more", NOWHERE)

    def _found(self, edge: str | None, node: str, message: str, position: int) -> Finding:
        return Finding(Rule.REFERENCE, self.edge.table_key, edge, (self.column,), node, message, position)


class Degree(Struct, frozen=True):
    """How many edges of a type a source may have."""

    edge: EdgeType

    def is_broken(self, counts: Any) -> Any:
        """Which of some counts are outside, for whatever compares like an array or a column."""
        low, high = self.edge.cardinality.low, self.edge.cardinality.high
        return counts < low if high is None else (counts < low) | (counts > high)

    def broken_by(self, answer: Answer) -> Finding:
        """A source has too many edges or too few."""
        (source, count), edge, high = answer.values, self.edge, self.edge.cardinality.high
        bound = f"{edge.cardinality.low}..{'' if high is None else high}"
        message = f"@card violation: {edge.source} '{source}' has {count} {edge.name} edges, outside @card({bound})"
        return Finding(Rule.CARDINALITY, edge.table_key, None, (), source, message, answer.position)


class TableRules(Struct, frozen=True):
    """What holds for the rows of one table; `named_by` are the ends of edges that need its nodes."""

    identity: Identity
    uniques: tuple[Unique, ...]
    ends: tuple[End, ...] = ()
    named_by: tuple[End, ...] = ()
    degree: Degree | None = None


def rules_of(catalog: Catalog, key: TableKey) -> TableRules:
    """What a schema demands of one table."""
    return _rules(catalog)[key]


@once
def _rules(catalog: Catalog) -> Mapping[TableKey, TableRules]:
    return {key: _rules_of(catalog, entity) for key, entity in catalog.tables.items()}


def _rules_of(catalog: Catalog, entity: Entity) -> TableRules:
    identity, uniques = Identity(entity), unique_rules(entity)
    if isinstance(entity, EdgeType):
        degree = None if entity.cardinality.is_default else Degree(entity)
        return TableRules(identity, uniques, _ends(entity), degree=degree)
    ends = [end for edge in catalog.edges_touching(entity.name) for end in _ends(edge)]
    return TableRules(identity, uniques, named_by=tuple(end for end in ends if end.node_type == entity.name))


def unique_rules(entity: Entity) -> tuple[Unique, ...]:
    """The `@unique` groups that are not the key itself, whose uniqueness is that of ids."""
    key = sorted(entity.key)
    return tuple(Unique(entity, group) for group in entity.unique if sorted(group) != key)


def _ends(edge: EdgeType) -> tuple[End, End]:
    return End(edge, "src", edge.source), End(edge, "dst", edge.target)
