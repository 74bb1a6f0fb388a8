"""The statements that a checked mutation becomes, in written order. Start at `WritePlan`."""

from __future__ import annotations

from msgspec import Struct

from omnigraph.plan.operators import Expression, Parameter, Predicate, Projection, ReadPlan

SELF = ""
"""The variable of the row that a statement looks at: `PropertyRef(SELF, "age", …)` is written `age`.

The `id` of the row and the ends of an edge are properties here too, the ends by the names of their columns."""


class Assignment(Struct, frozen=True):
    """`property: value`; the engine converts the value to the property's type and refuses what does not fit."""

    property: str
    value: Expression


class InsertNode(Struct, frozen=True):
    """Insert, or replace by key where the type has one."""

    type_name: str
    assignments: tuple[Assignment, ...]


class InsertEdge(Struct, frozen=True):
    """A new edge, or one that replaces by key where the type has one; endpoints are node ids as text."""

    type_name: str
    source: Expression
    target: Expression
    assignments: tuple[Assignment, ...]


class _Update(Struct, frozen=True):
    """Set properties on the entities of `variable`, or else of the type, that satisfy every condition."""

    type_name: str
    assignments: tuple[Assignment, ...]
    where: tuple[Predicate, ...]
    variable: str | None = None


class UpdateNodes(_Update, frozen=True):
    """Other values for nodes."""


class UpdateEdges(_Update, frozen=True):
    """Other values for edges, whose ends stay."""


class _Delete(Struct, frozen=True):
    """Delete the entities that are meant, as in an update."""

    type_name: str
    where: tuple[Predicate, ...]
    variable: str | None = None


class DeleteNodes(_Delete, frozen=True):
    """Delete nodes, and all edges that touch one of them."""


class DeleteEdges(_Delete, frozen=True):
    """Delete edges."""


Inserting = InsertNode | InsertEdge
Updating = UpdateNodes | UpdateEdges
Deleting = DeleteNodes | DeleteEdges
Statement = Inserting | Updating | Deleting
EDGE_STATEMENTS = (InsertEdge, UpdateEdges, DeleteEdges)


class BoundReturn(Struct, frozen=True):
    """Columns of what the `statement`th statement, counted from 0, has inserted or updated."""

    statement: int
    projections: tuple[Projection, ...]


class WritePlan(Struct, frozen=True):
    """A checked mutation: statements in written order, either inserts and updates or deletes (D2).

    `match` is read once before them: its projections are what the statements ask of its variables, so that one value
    of each is there for every row. `returning` is another read of the same state, or of what one statement has written.
    """

    name: str
    parameters: tuple[Parameter, ...]
    statements: tuple[Statement, ...]
    match: ReadPlan | None = None
    returning: ReadPlan | BoundReturn | None = None


Plan = ReadPlan | WritePlan
