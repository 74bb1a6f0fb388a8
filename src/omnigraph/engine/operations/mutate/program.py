"""One run of the statements of a mutation on one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.catalog.model import NodeType
from omnigraph.engine.operations.mutate.judging import Judge, StatementRows, columns_at
from omnigraph.engine.operations.mutate.matched import Matched, Source
from omnigraph.engine.operations.mutate.meaning import Pairs, every_pair, join_of, judged, split
from omnigraph.engine.operations.mutate.touched import Touched
from omnigraph.engine.operations.mutate.values import Values, once_each
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.execute import DEFAULTS, check_patterns
from omnigraph.engine.read.operators.project import result_schema
from omnigraph.engine.read.plan.prepare import patterns_in
from omnigraph.engine.storage.columns import Offsets
from omnigraph.engine.storage.handle import Addresses
from omnigraph.engine.values.entities import Entity
from omnigraph.engine.values.external import ExternalBlobs
from omnigraph.engine.write.asked import Asked, Probe
from omnigraph.engine.write.lookahead import Selection, Selections
from omnigraph.engine.write.overlay import Marks
from omnigraph.engine.write.rows import Under, WriteKind
from omnigraph.engine.write.selection import (
    Found,
    find_committed,
    find_pending,
    joined_once,
    without_pending,
)
from omnigraph.engine.write.transaction import Transaction
from omnigraph.plan.operators import Pattern, PropertyRef, ReadPlan
from omnigraph.plan.statements import (
    EDGE_STATEMENTS,
    SELF,
    BoundReturn,
    Deleting,
    InsertEdge,
    InsertNode,
    Statement,
    UpdateEdges,
    UpdateNodes,
    Updating,
    WritePlan,
)
from omnigraph.plan.types import operands_of, walk


def prepare_program(
    transaction: Transaction, plan: WritePlan, source: Source, external_blobs: ExternalBlobs
) -> Program:
    """Read the match, so that the statements can run."""
    nothing = ReadPlan(plan.name, plan.parameters, Pattern(), ())
    context = Context(nothing, source.state.tables, source.parameters, DEFAULTS, source.embedder, source.now)
    conditions = [each for statement in plan.statements for each in getattr(statement, "where", ())]
    check_patterns(context, patterns_in(conditions))
    judge = Judge(context)
    matched = Matched.of(source, transaction, plan.match)
    return Program(transaction, plan, source, judge, matched, Values(judge, matched, external_blobs))


class Program(Struct, dict=True):
    """The statements, what they run for, and what they have done."""

    transaction: Transaction
    plan: WritePlan
    source: Source
    judge: Judge
    matched: Matched
    values: Values
    affected_nodes: int = 0
    affected_edges: int = 0
    touched: list[Touched] = field(default_factory=list)
    returned: pa.Table | None = None
    _nodes: defaultdict[str, list[Found]] = field(default_factory=lambda: defaultdict(list))
    _edges: defaultdict[str, list[Found]] = field(default_factory=lambda: defaultdict(list))

    def run(self) -> None:
        """Run every statement, and gather what the mutation returns."""
        for number, statement in enumerate(self.plan.statements):
            self.transaction.request.cancellation.check()
            self.touched.append(Touched(ascending=getattr(statement, "variable", "") is None))
            if self.matched.length:
                self._run(number, statement)
            elif self._is_bound(number):
                self._return(number, [])
        self._finish()
        if isinstance(self.plan.returning, ReadPlan):
            self.returned = self.source.read(self.transaction, self.plan.returning)[1]

    def _run(self, number: int, statement: Statement) -> None:
        entity = self._entity(statement)
        if isinstance(statement, InsertNode | InsertEdge):
            self._insert(number, entity, statement)
        elif isinstance(statement, UpdateNodes | UpdateEdges):
            self._update(number, entity, statement)
        else:
            found = self._deleted(number, entity, statement)
            self.touched[number].add(found.ids)
            (self._nodes if isinstance(entity, NodeType) else self._edges)[entity.name].append(found)

    def _entity(self, statement: Statement) -> Entity:
        catalog = self.transaction.catalog
        types: Mapping[str, Entity] = catalog.edges if isinstance(statement, EDGE_STATEMENTS) else catalog.nodes
        return types[statement.type_name]

    def _count(self, entity: Entity, rows: int) -> None:
        if isinstance(entity, NodeType):
            self.affected_nodes += rows
        else:
            self.affected_edges += rows

    # --- inserts -----------------------------------------------------------------------------------------------------

    def _insert(self, number: int, entity: Entity, statement: InsertNode | InsertEdge) -> None:
        rows = self.values.inserted(entity, statement)
        if entity.key:
            rows = once_each(entity, rows)
            self.transaction.upsert(entity, rows, ids_differ=True)
        else:
            self.transaction.insert(entity, rows, ids_are_fresh=True)
        self._count(entity, rows.num_rows)
        self.touched[number].add(rows.column("id"))
        if self._is_bound(number):
            self._return(number, [rows])

    # --- updates -----------------------------------------------------------------------------------------------------

    def _update(self, number: int, entity: Entity, statement: Updating) -> None:
        written = []
        for rows, under, addresses, pairs in self._meant(number, entity, statement):
            changed, kept = self.values.updated(entity, statement, rows, pairs)
            marks = under if isinstance(under, int) else under[kept]
            self.transaction.update(entity, changed, marks, None if addresses is None else addresses[kept])
            self._count(entity, changed.num_rows)
            self.touched[number].add(changed.column("id"))
            written.append(changed)
        if self._is_bound(number):
            self._return(number, written)

    def _meant(
        self, number: int, entity: Entity, statement: Updating
    ) -> list[tuple[pa.Table, int | Marks, Addresses | None, Pairs | None]]:
        """Whole rows as they are now, with what lies under them, and the rows of the match they are meant for."""
        alone, dependent = split(statement.where)
        if statement.variable is not None:
            return self._of_variable(entity, statement, statement.variable)
        if dependent:
            join = join_of(self.judge, self.matched, dependent)
            asked = self.judge.asked(entity, alone)
            if join is not None and asked.probe is None:
                asked = Asked(Probe(join.held.property, join.sought), asked.tests, asked.risky)
            found = self._now(entity, asked, find_committed(self.transaction, entity, asked))
            joined = found[0]
            pairs = every_pair(self.judge, joined, self.matched) if join is None else join.pairs(self.judge, joined)
            return [(*found, judged(self.judge, joined, pairs, self.matched, dependent))]
        asked = self._selections.asked(number)
        images, under, addresses = find_pending(self.transaction, entity, asked)
        committed = without_pending(self.transaction, entity, self._selections.found(number))
        parts: list[tuple[pa.Table, int | Marks, Addresses | None, Pairs | None]] = []
        if images.num_rows:
            parts.append((images, under, addresses, self._beside_all(statement, images)))
        if len(committed.addresses):
            rows = self._selections.rows(number, committed.addresses)
            parts.append((rows, Under.A_ROW, committed.addresses, self._beside_all(statement, rows)))
        return parts

    def _beside_all(self, statement: Updating, rows: pa.Table) -> Pairs | None:
        """Every row of the match for each entity, if the values depend on the match at all."""
        return every_pair(self.judge, rows, self.matched) if self.values.depend(statement) else None

    def _of_variable(
        self, entity: Entity, statement: Updating, variable: str
    ) -> list[tuple[pa.Table, int | Marks, Addresses | None, Pairs | None]]:
        ids, pairs = self._ids_of(variable)
        if not len(ids):
            return []
        asked = Asked(Probe("id", ids))
        rows, under, addresses = self._now(entity, asked, self._located(entity, ids))
        order = _places(ids, rows.column("id"))
        rows, under, addresses = wide.take_rows(rows, order), under[order], addresses[order]
        return [(rows, under, addresses, judged(self.judge, rows, pairs, self.matched, statement.where))]

    def _ids_of(self, variable: str) -> tuple[pa.Array, Pairs]:
        """What a variable stands for, each entity once and in the order of the match, and where."""
        found = self.matched.ids(variable).dictionary_encode()
        codes = np.asarray(found.indices.fill_null(-1), dtype=np.int64)
        rows = np.flatnonzero(codes >= 0)
        return found.dictionary, Pairs(codes[rows], rows)

    def _located(self, entity: Entity, ids: pa.Array) -> Found:
        addresses, found = self.transaction.view.locate(entity.table_key, ids)
        return Found(ids, addresses).at(np.flatnonzero(found))

    def _now(self, entity: Entity, asked: Asked, committed: Found) -> tuple[pa.Table, Marks, Addresses]:
        """The entities that are meant as this write sees them: its own images, and whole committed rows."""
        images, under, addresses = find_pending(self.transaction, entity, asked)
        committed = without_pending(self.transaction, entity, committed)
        if not len(committed.addresses):
            return images, under, addresses
        rows = self.transaction.view.whole_rows(entity, committed.addresses)
        if images.num_rows:
            rows = pa.concat_tables([images, wide.plain_table(rows, images.schema).cast(images.schema)])
        marks = np.full(len(committed.addresses), Under.A_ROW, dtype=np.uint8)
        return rows, np.concatenate([under, marks]), np.concatenate([addresses, committed.addresses])

    # --- deletes -----------------------------------------------------------------------------------------------------

    def _deleted(self, number: int, entity: Entity, statement: Deleting) -> Found:
        """What a delete means. A query that deletes does nothing else, so only committed rows can be meant."""
        alone, dependent = split(statement.where)
        if statement.variable is not None:
            ids, pairs = self._ids_of(statement.variable)
            rows = self._columns_of(entity, ids, statement)
            order = _places(ids, rows.column("id"))
            rows = wide.take_rows(rows, order)
            pairs = judged(self.judge, rows, pairs, self.matched, statement.where)
            return _found(entity, rows, pairs)
        if not dependent:
            return self._selections.found(number)
        asked = self.judge.asked(entity, alone)
        join = join_of(self.judge, self.matched, dependent)
        if join is not None and asked.probe is None:
            asked = Asked(Probe(join.held.property, join.sought), asked.tests, asked.risky)
        ids = find_committed(self.transaction, entity, asked).ids
        rows = self._columns_of(entity, ids, statement)
        pairs = every_pair(self.judge, rows, self.matched) if join is None else join.pairs(self.judge, rows)
        return _found(entity, rows, judged(self.judge, rows, pairs, self.matched, dependent))

    def _columns_of(self, entity: Entity, ids: pa.Array, statement: Deleting) -> pa.Table:
        """The columns a delete needs: those it tests, and those by which rows go."""
        tested = [
            part.property
            for condition in statement.where
            for operand in operands_of(condition)
            for part in walk(operand)
            if isinstance(part, PropertyRef) and part.variable == SELF
        ]
        needed = ["id", *(["src"] if not isinstance(entity, NodeType) else []), *tested]
        return self.transaction.view.rows_where_in(entity.table_key, "id", ids, needed, with_address=True)

    def _finish(self) -> None:
        """Remove what the deletes have found, and the edges of removed nodes.

        A query that deletes does nothing else, so no statement can tell when that happens; what several of them mean
        is removed once.
        """
        catalog = self.transaction.catalog
        for name, parts in self._nodes.items():
            node, found = catalog.nodes[name], joined_once(parts)
            if len(found.ids):
                self.transaction.remove(node, found.ids, found.addresses)
                self.transaction.table(node, WriteKind.DELETE).edges_follow = True
                self.affected_nodes += len(found.ids)
                self._gather_edges(node, found.ids)
        for name, parts in self._edges.items():
            found = joined_once(parts)
            if len(found.ids):
                self.transaction.remove(catalog.edges[name], found.ids, found.addresses, found.sources)
                self.affected_edges += len(found.ids)

    def _gather_edges(self, node: NodeType, ids: pa.Array) -> None:
        """Note the edges that have a removed node at one of their ends."""
        for edge in self.transaction.catalog.edges_touching(node.name):
            # Whose edges these were matters only where their number does.
            columns = ["id"] if edge.cardinality.is_default else ["id", "src"]
            for end, type_name in (("src", edge.source), ("dst", edge.target)):
                if type_name == node.name:
                    rows = self.transaction.view.rows_where_in(edge.table_key, end, ids, columns, with_address=True)
                    self._edges[edge.name].append(_found(edge, rows))

    # --- what is selected beforehand, what is returned ---------------------------------------------------------------

    @cached_property
    def _selections(self) -> Selections:
        return Selections(self.transaction, [self._selection(statement) for statement in self.plan.statements])

    def _selection(self, statement: Statement) -> Selection | None:
        """What a statement about a type asks, if it asks nothing of the match."""
        if isinstance(statement, InsertNode | InsertEdge) or statement.variable is not None:
            return None
        alone, dependent = split(statement.where)
        entity = self._entity(statement)
        return None if dependent else Selection(entity, self.judge.asked(entity, alone))

    def _is_bound(self, number: int) -> bool:
        returning = self.plan.returning
        return isinstance(returning, BoundReturn) and returning.statement == number

    def _return(self, number: int, written: list[pa.Table]) -> None:
        """The columns asked of what a statement has written, as it has left it."""
        returning = self.plan.returning
        assert isinstance(returning, BoundReturn)
        schema = result_schema(returning.projections)
        rows = pa.concat_tables([each.cast(written[0].schema) for each in written]) if written else None
        if rows is None or not rows.num_rows:
            self.returned = schema.empty_table()
            return
        if self.touched[number].ascending:
            rows = wide.take_rows(rows, pc.sort_indices(wide.one_array(rows.column("id"))))
        shown = _Written(rows.num_rows, columns_at(rows))
        columns = [self.judge.column(each.expression, shown) for each in returning.projections]
        fitting = [wide.plain_chunks(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        self.returned = pa.Table.from_arrays(fitting, schema=schema)


class _Written(StatementRows, frozen=True):
    """Rows that a statement has written, which the return knows by the variable bound to them."""

    def fetch(self, reference: PropertyRef) -> pa.Array:
        """A property of the row, whatever its variable is called."""
        return self.columns(reference.property)


def _found(entity: Entity, rows: pa.Table, pairs: Pairs | None = None) -> Found:
    """Rows with their ids and addresses, as far as they are in some pair, each once."""
    is_known = not isinstance(entity, NodeType) and "src" in rows.column_names
    sources = wide.one_array(rows.column("src")) if is_known else None
    found = Found(wide.one_array(rows.column("id")), rows.column("_rowaddr").to_numpy(), sources)
    return found if pairs is None else found.at(np.unique(pairs.entities))


def _places(ids: pa.Array, held: pa.ChunkedArray) -> Offsets:
    """Where each id is among those held."""
    places = pc.index_in(ids, value_set=wide.one_array(held))
    return np.asarray(places.drop_null(), dtype=np.int64)
