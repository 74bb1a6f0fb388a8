"""The engine against the plain evaluator: random small graphs, random plans, identical rows in identical order."""

import datetime as dt
import math
import random
from collections import Counter

import lance
import pyarrow as pa
import pytest
from tests.amounts import EXHAUSTIVE, always_first
from tests.plain.evaluator import PlainGraph, TooManyTriesError, evaluate
from tests.plain.values import PlainFailure

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.read import ReadOptions, execute
from omnigraph.engine.read.columns import nodes as nodes_module
from omnigraph.engine.read.operators import lookup
from omnigraph.engine.read.reader import ReadState
from omnigraph.engine.storage.cache import SHARED
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ExecutionError
from omnigraph.plan import operators as op
from omnigraph.plan.results import rows_to_json
from omnigraph.plan.types import type_of

NOW = dt.datetime(2026, 3, 4, 5, 6, 7, 891234, tzinfo=dt.UTC)
WORDS = [
    "queen",
    "queen",
    "queens",
    "aurora",
    "Boreas",
    "boreaz",
    "the",
    "running",
    "runs",
    "ran",
    "café",
    "cafe",
    "x1",
]


def nullable(scalar, **more):
    return PropertyType(scalar, nullable=True, **more)


NODE_TYPES = {
    "A": {
        "b": nullable(Scalar.BOOL),
        "d": nullable(Scalar.DATE),
        "f": nullable(Scalar.F64),
        "g": nullable(Scalar.F32),
        "i": nullable(Scalar.I64),
        "l": nullable(Scalar.I32, is_list=True),
        "m": nullable(Scalar.F32, is_list=True),
        "n": nullable(Scalar.STRING, is_list=True),
        "s": nullable(Scalar.STRING),
        "t": nullable(Scalar.DATETIME),
        "text": nullable(Scalar.STRING),
        "u": nullable(Scalar.U64),
        "v": nullable(Scalar.VECTOR, dimension=3),
    },
    "B": {"i": nullable(Scalar.I32), "s": nullable(Scalar.STRING), "text": nullable(Scalar.STRING)},
}
EDGE_TYPES = {
    "AA": ("A", "A", {"s": nullable(Scalar.STRING), "w": nullable(Scalar.I32)}),
    "AB": ("A", "B", {"w": nullable(Scalar.F64)}),
    "BB": ("B", "B", {}),
}
ARROW = {
    Scalar.BOOL: pa.bool_(),
    Scalar.DATE: pa.date32(),
    Scalar.F64: pa.float64(),
    Scalar.F32: pa.float32(),
    Scalar.I64: pa.int64(),
    Scalar.I32: pa.int32(),
    Scalar.U64: pa.uint64(),
    Scalar.STRING: pa.string(),
    Scalar.DATETIME: pa.date64(),
}


def arrow_of(kind):
    if kind.scalar is Scalar.VECTOR:
        return pa.list_(pa.float32(), kind.dimension)
    return pa.list_(ARROW[kind.scalar]) if kind.is_list else ARROW[kind.scalar]


def random_value(rng, kind, *, in_query=False):
    if kind.is_list:
        one = PropertyType(kind.scalar)
        return [random_value(rng, one) for _ in range(rng.randrange(3))]
    match kind.scalar:
        case Scalar.STRING:
            return rng.choice(["", "a", "b", "ab", "Z", "é", "queen", "\U0001f600", "￿"])
        case Scalar.BOOL:
            return rng.random() < 0.5
        case Scalar.I32:
            return rng.choice([-2, 0, 1, 2, 3, 2**31 - 1])
        case Scalar.I64:
            return rng.choice([-3, 0, 1, 2, 7, 2**53, 2**53 + 1, 2**62 + 1, -(2**63)])
        case Scalar.U64:
            return rng.choice([0, 1, 2, 7, 2**53 + 1, 2**63 - 1] + ([] if in_query else [2**64 - 1]))
        case Scalar.F64:
            return rng.choice([-1.5, -0.0, 0.0, 0.1, 1.0, 2.5, 2.0**53, 1e300, float("inf"), 3.3])
        case Scalar.F32:
            return struct_f32(rng.choice([-1.5, 0.0, 0.1, 1.0, 2.5, 3.3, 16777216.0]))
        case Scalar.DATE:
            return dt.date(2026, 3, rng.choice([1, 2, 4]))
        case Scalar.DATETIME:
            return dt.datetime(2026, 3, 4, 5, 6, rng.choice([6, 7, 8]), 891000, tzinfo=dt.UTC)
        case Scalar.VECTOR:
            return [struct_f32(rng.choice([0.0, 1.0, 0.5, -1.0])) for _ in range(3)]


def struct_f32(value):
    return pa.scalar(value, pa.float32()).as_py()


def random_text(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(5)))


def random_entity(rng, number, properties, **more):
    entity = {"id": f"{rng.choice('nmZ')}{number}", **more}
    for name, kind in properties.items():
        if rng.random() < 0.15:
            entity[name] = None
        elif name == "text":
            entity[name] = random_text(rng)
        else:
            entity[name] = random_value(rng, kind)
    return entity


def random_graph(rng):
    graph = PlainGraph()
    for name, properties in NODE_TYPES.items():
        graph.nodes[name] = [random_entity(rng, n, properties) for n in range(rng.choice([0, 2, 4, 5, 6, 7, 8]))]
    for name, (source, target, properties) in EDGE_TYPES.items():
        edges = []
        if graph.nodes[source] and graph.nodes[target]:
            for n in range(rng.randrange(24)):
                ends = {"src": rng.choice(graph.nodes[source])["id"], "dst": rng.choice(graph.nodes[target])["id"]}
                edges.append(random_entity(rng, n, properties, **ends))
        graph.edges[name] = edges
    return graph


def column(values, kind):
    if kind == pa.date64():
        millis = [None if v is None else int(v.timestamp() * 1000 + 0.5) for v in values]
        return pa.array(millis, pa.int64()).view(pa.date64())
    return pa.array(values, kind)


def write(rng, store, path, entities, fields):
    """Rows in one to three fragments, with rows of an earlier time deleted in between."""
    ghosts = [{**random.choice(entities), "id": f"ghost{n}"} for n in range(rng.randrange(3))] if entities else []
    rows = [*entities, *ghosts]
    rng.shuffle(rows)
    pieces = rng.choice([1, 1, 2, 3])
    schema = pa.schema([pa.field(name, kind, nullable=name not in ("id", "src", "dst")) for name, kind in fields])
    cuts = sorted(rng.randrange(len(rows) + 1) for _ in range(pieces - 1))
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]

    def table(part):
        return pa.table([column([row.get(name) for row in part], kind) for name, kind in fields], schema=schema)

    store.create(path, schema, table(parts[0]))

    def rest():
        for part in parts[1:]:
            if part:
                lance.write_dataset(table(part), store.location(path), mode="append")
        if ghosts:
            lance.dataset(store.location(path)).delete("id LIKE 'ghost%'")

    return rest


class Tables:
    """A snapshot made of whatever the tables are now."""

    def __init__(self, store):
        self.store = store
        self.handles = {}
        self.state = ReadState(self)

    def open(self, table_key):
        if table_key not in self.handles:
            self.handles[table_key] = self.store.open(str(table_key).replace(":", "/"))
        return self.handles[table_key]


INDEXED = {"node/A": ("s", "i", "u"), "node/B": ("s", "i")}


def store_graph(rng, graph, root, *, indexed=False):
    """Write the tables; half of the time something is read when they are half written, which fills every cache.

    With `indexed`, columns are indexed when their tables are half written, so that an index covers a part of the rows.
    """
    store = TableStore(str(root))
    later = []
    for name, properties in NODE_TYPES.items():
        fields = [("id", pa.string()), *((p, arrow_of(kind)) for p, kind in properties.items())]
        later.append(write(rng, store, f"node/{name}", graph.nodes[name], fields))
    for name, (_, _, properties) in EDGE_TYPES.items():
        ends = [("id", pa.string()), ("src", pa.string()), ("dst", pa.string())]
        more = [(p, arrow_of(kind)) for p, kind in properties.items()]
        later.append(write(rng, store, f"edge/{name}", graph.edges[name], [*ends, *more]))
    for path, columns in INDEXED.items() if indexed else ():
        for name in columns:
            lance.dataset(store.location(path)).create_scalar_index(name, "BTREE")
    if rng.random() < 0.5:
        read_everything(Tables(store))
    for rest in later:
        rest()
    return Tables(store)


def read_everything(tables):
    for edge, (source, target, _) in EDGE_TYPES.items():
        for way in ("s", "t"):
            scans = (op.Scan("s", source), op.Scan("t", target))
            expands = [op.Expand(edge, "s", "t", source, target)]
            if source == target:
                expands.append(op.Expand(edge, "s", "t", source, target, undirected=True))
            for expand in expands:
                key = op.EntityId(way)
                count = op.Aggregate(op.AggregateFunction.COUNT, op.EntityId("s"))
                columns = [op.Projection(f"c{n}", e, PropertyType(Scalar.STRING)) for n, e in enumerate((key, count))]
                plan = op.ReadPlan("q", (), op.Pattern(scans, (expand,)), tuple(columns), is_aggregate=True)
                execute(plan, tables.state, {}).to_table()


class PlanMaker:
    """Random plans over the fixed schema."""

    def __init__(self, rng):
        self.rng = rng
        self.params = {}
        self.names = 0
        self.nullable = set()
        self.paths = []
        self.offset = 0
        self.may_fail = False
        """Whether every row is shown, so that both ways meet a value that has no result."""

    def plan(self):
        rng = self.rng
        self.nullable, self.paths = set(), []
        bound, edges = {}, {}
        pattern = self.pattern(bound, edges, rng.choice([1, 1, 2, 2, 3]), depth=0)
        limit = rng.choice([None, None, None, 0, 1, 2, 5, 20])
        if limit is not None and rng.random() < 0.2:
            self.params["limit"] = (limit, PropertyType(Scalar.I64))
            limit = op.ParameterRef("limit", PropertyType(Scalar.I64))
        self.offset = rng.choice([0, 0, 0, 1, 3])
        self.may_fail = limit is None and not self.offset
        if rng.random() < 0.2:
            self.params["offset"] = (self.offset, PropertyType(Scalar.I64))
            self.offset = op.ParameterRef("offset", PropertyType(Scalar.I64))
        named = {name: kind for name, kind in bound.items() if not name.startswith("_anon")}
        if not named:
            return self.plan()
        if rng.random() < 0.3:
            projections, order = self.aggregates(named, edges)
            return self.finish(pattern, projections, order, None, limit, True, having=self.having(projections))
        if rng.random() < 0.15:
            plain = self.properties(named, edges, lambda kind: kind.scalar is not Scalar.VECTOR)
            projections = rng.sample(plain, min(len(plain), rng.choice([1, 1, 2]))) or [self.entity(next(iter(named)))]
            if rng.random() < 0.3:
                projections.append(self.computed(named, edges))
            order = [op.OrderKey(e, rng.random() < 0.5) for e in projections if type_of(e).is_plain][:1]
            having = self.having(projections)
            return self.finish(pattern, projections, order, None, limit, True, having=having, distinct=True)
        rank = self.rank(named) if rng.random() < 0.3 else None
        if rank is not None and self.nullable:
            rank = None
        if isinstance(rank, op.Nearest | op.Rrf) and limit is None:
            limit = rng.choice([1, 2, 5, 50])
        projections = self.projections(named, edges, rank)
        order = [self.order_key(named, edges) for _ in range(rng.choice([0, 0, 1, 2]))]
        having = () if rank is not None or rng.random() < 0.8 else self.having(projections)
        return self.finish(pattern, projections, order, rank, limit, False, having=having)

    def having(self, projections):
        rng = self.rng
        found = []
        for expression in projections:
            kind = type_of(expression)
            if rng.random() < 0.3 and kind.is_plain and not isinstance(expression, op.Bm25 | op.Nearest | op.Rrf):
                if rng.random() < 0.5:
                    found.append(op.IsNull(expression, rng.random() < 0.7))
                elif kind.scalar in (Scalar.I64, Scalar.F64, Scalar.STRING):
                    constant = self.constant(PropertyType(kind.scalar))
                    found.append(op.Comparison(rng.choice(list(op.ComparisonOperator)), expression, constant))
        return tuple(found)

    def entity(self, variable):
        return op.EntityId(variable, variable in self.nullable)

    def finish(self, pattern, projections, order, rank, limit, aggregate, *, having=(), distinct=False):
        columns = tuple(op.Projection(f"c{n}", e, PropertyType(Scalar.STRING)) for n, e in enumerate(projections))
        parameters = tuple(op.Parameter(name, kind) for name, (_, kind) in self.params.items())
        return op.ReadPlan(
            "q", parameters, pattern, columns, tuple(order), rank, limit, aggregate, having, self.offset, distinct
        )

    def values(self):
        return {name: value for name, (value, _) in self.params.items()}

    # --- patterns

    def fresh(self, prefix="v"):
        self.names += 1
        if prefix == "v" and self.rng.random() < 0.15:
            return f"_anon{self.names}"
        return f"{self.rng.choice('abxyz')}{self.names}"

    def pattern(self, bound, edges, size, depth):
        rng = self.rng
        scans, expands, filters, antis = [], [], [], []
        outer = dict(bound)
        for _ in range(size):
            if bound and rng.random() < 0.75:
                expands.append(self.expand(bound, edges, scans))
            else:
                name = self.fresh()
                bound[name] = rng.choice(list(NODE_TYPES))
                scans.append(op.Scan(name, bound[name]))
        if depth and not expands:
            expands.append(self.expand(outer, edges, scans, into=bound))
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
            filters.append(op.Filter(self.predicate(bound, edges)))
        semis, blocks = [], []
        if depth < 2:
            for _ in range(rng.choice([0, 0, 0, 1])):
                blocks.append(self.block(bound, edges, depth))
            if blocks and rng.random() < 0.4:
                expands.append(self.expand(bound, edges, scans))
            if blocks:
                filters += [op.Filter(self.predicate(bound, edges)) for _ in range(rng.choice([0, 1]))]
            for _ in range(rng.choice([0, 0, 0, 1])):
                inner_bound, inner_edges, outside = dict(bound), dict(edges), list(self.paths)
                inner = self.pattern(inner_bound, inner_edges, rng.choice([1, 1, 2]), depth + 1)
                self.paths = outside
                if rng.random() < 0.6:
                    antis.append(op.AntiJoin(inner, tuple(sorted(bound))))
                else:
                    semis.append(op.SemiJoin(inner, tuple(sorted(bound))))
        paths = [self.path(bound, scans)] if rng.random() < (0.1 if depth else 0.2) else []
        for path in paths:
            filters += [op.Filter(self.path_test(path.variable, bound)) for _ in range(rng.choice([0, 1, 1]))]
        return op.Pattern(*map(tuple, (scans, expands, filters, antis, semis, blocks, paths)))

    def path(self, bound, scans):
        rng = self.rng
        name = rng.choice(list(EDGE_TYPES))
        source_type, target_type, _ = EDGE_TYPES[name]
        named = {variable: kind for variable, kind in bound.items() if not variable.startswith("_anon")}
        source = self.named_endpoint(named, bound, scans, source_type)
        target = self.named_endpoint(named, bound, scans, target_type)
        hops = rng.choice([(1, 1), (1, 3), (1, 6), (2, 4)])
        undirected = source_type == target_type and rng.random() < 0.4
        self.names += 1
        self.paths.append(f"path{self.names}")
        ends = (source, target, source_type, target_type)
        backward = source_type != target_type and rng.random() < 0.3
        return op.ShortestPath(self.paths[-1], name, *ends, undirected, *hops, backward)

    def path_test(self, name, bound):
        """A condition on a path."""
        rng = self.rng
        text = PropertyType(Scalar.STRING)
        ids = op.PathValue(name, "nodes", PropertyType(Scalar.STRING, is_list=True))
        length = op.PathValue(name, "length", PropertyType(Scalar.I64))
        number = op.Literal(rng.choice([1, 2, 3]), PropertyType(Scalar.I64))
        node = op.Literal(f"{rng.choice('nmZ')}{rng.randrange(8)}", text)
        named = [variable for variable in bound if not variable.startswith("_anon")]
        return rng.choice(
            [
                op.Comparison(rng.choice(list(op.ComparisonOperator)), length, number),
                op.InList(node, ids),
                op.ListContains(ids, node),
                op.InList(op.PropertyRef(rng.choice(named), "id", text), ids),
                op.Not(op.Comparison(op.ComparisonOperator.EQ, length, number)),
                op.IsNull(op.PathValue(name, "path", PropertyType(Scalar.PATH)), rng.random() < 0.7),
            ]
        )

    def block(self, bound, edges, depth):
        """An optional block, or a union whose arms bind the same names."""
        rng = self.rng
        inner_bound, inner_edges, outside = dict(bound), dict(edges), list(self.paths)
        pattern = self.pattern(inner_bound, inner_edges, rng.choice([1, 1, 2]), depth + 1)
        new_paths = [name for name in self.paths if name not in outside]
        new = {name: kind for name, kind in inner_bound.items() if name not in bound}
        new_edges = {name: kind for name, kind in inner_edges.items() if name not in edges}
        binds = (*new, *new_edges, *new_paths)
        if rng.random() < 0.6:
            self.nullable |= set(binds)
            bound.update(new)
            edges.update(new_edges)
            return op.OptionalMatch(pattern, binds)
        arms = [pattern]
        roll = rng.random()
        if roll < 0.3:
            # Another arm that binds the same: the edges and paths of the first one as well.
            filters = tuple(op.Filter(self.predicate(inner_bound, inner_edges)) for _ in range(rng.choice([1, 2])))
            arms.append(op.Pattern(pattern.scans, pattern.expands, filters, (), (), pattern.blocks, pattern.paths))
        elif roll < 0.7:
            self.paths = outside
            again = dict(bound) | {name: kind for name, kind in new.items() if name not in self.nullable}
            more = op.Pattern(
                tuple(op.Scan(name, kind) for name, kind in again.items() if name not in bound),
                (),
                tuple(op.Filter(self.predicate(again, edges)) for _ in range(rng.choice([0, 1, 2]))),
            )
            arms.append(more)
            binds = tuple(name for name in again if name not in bound)
        bound.update({name: new[name] for name in binds if name in new})
        edges.update({name: new_edges[name] for name in binds if name in new_edges})
        return op.Union(tuple(arms), binds)

    def number_that_may_fail(self, bound, edges):
        """A computation with integers of any size, which may leave 64 bits."""
        rng = self.rng
        wide = self.properties(bound, edges, lambda kind: kind.is_plain and kind.is_numeric)
        wide = [ref for ref in wide if ref.type.scalar in (Scalar.I64, Scalar.U64, Scalar.I32)]
        if not wide:
            return self.computed_number(bound, edges)
        whole = PropertyType(Scalar.I64, nullable=True)
        left, right = rng.choice(wide), rng.choice([*wide, op.Literal(2, PropertyType(Scalar.I64))])
        return rng.choice(
            [
                op.Arithmetic(rng.choice("+-*%"), left, right, whole),
                op.Negative(left, whole),
                op.FunctionCall(rng.choice(["abs", "to_int", "floor"]), (left,), whole),
            ]
        )

    def expand(self, bound, edges, scans, into=None):
        rng = self.rng
        into = bound if into is None else into
        name = rng.choice(list(EDGE_TYPES))
        source_type, target_type, _ = EDGE_TYPES[name]
        source = self.endpoint(bound, into, scans, source_type)
        target = self.endpoint(into, into, scans, target_type)
        undirected = source_type == target_type and rng.random() < 0.3
        hops = rng.choice([(1, 1), (1, 1), (1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)])
        edge = None
        if hops == (1, 1) and rng.random() < 0.35:
            edge = self.fresh("e")
            edges[edge] = name
        return op.Expand(name, source, target, source_type, target_type, undirected, *hops, edge)

    def endpoint(self, bound, into, scans, kind):
        known = [name for name, type_name in bound.items() if type_name == kind]
        if known and self.rng.random() < 0.7:
            return self.rng.choice(known)
        name = self.fresh()
        into[name] = kind
        scans.append(op.Scan(name, kind))
        return name

    def named_endpoint(self, named, into, scans, kind):
        """An end of a path, which has a name."""
        while (name := self.endpoint(named, into, scans, kind)).startswith("_anon"):
            del into[name]
            scans.pop()
        return name

    # --- expressions

    def properties(self, bound, edges, wanted):
        found = [
            op.PropertyRef(variable, name, kind)
            for variable, type_name in bound.items()
            for name, kind in NODE_TYPES[type_name].items()
            if wanted(kind) and not variable.startswith("_anon")
        ]
        return found + [
            op.PropertyRef(variable, name, kind)
            for variable, edge in edges.items()
            for name, kind in EDGE_TYPES[edge][2].items()
            if wanted(kind)
        ]

    def constant(self, kind):
        value = random_value(self.rng, kind, in_query=True)
        if isinstance(value, list):
            value = tuple(value)
        if self.rng.random() < 0.5 and kind.scalar is not Scalar.U64:
            literal = {Scalar.I32: Scalar.I64, Scalar.F32: Scalar.F64}.get(kind.scalar, kind.scalar)
            return op.Literal(value, PropertyType(literal, is_list=kind.is_list))
        name = f"p{len(self.params)}"
        declared = PropertyType(kind.scalar, nullable=True, is_list=kind.is_list, dimension=kind.dimension)
        if self.rng.random() < 0.1:
            value = None
        self.params[name] = (value, declared)
        return op.ParameterRef(name, declared)

    def predicate(self, bound, edges):
        """A condition: mostly one test, sometimes several joined or turned round."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.08:
            return op.Not(self.predicate(bound, edges))
        if roll < 0.22:
            parts = tuple(self.predicate(bound, edges) for _ in range(rng.choice([2, 2, 3])))
            return op.Or(parts) if rng.random() < 0.7 else op.And(parts)
        if roll < 0.36:
            return self.newer_test(bound, edges)
        return self.test(bound, edges)

    def newer_test(self, bound, edges):
        rng = self.rng
        plain = self.properties(bound, edges, lambda kind: kind.is_plain)
        if not plain:
            return self.test(bound, edges)
        ref = rng.choice(plain)
        match rng.randrange(8):
            case 6:
                of_type = [v for v, kind in bound.items() if kind == bound.get(ref.variable)]
                if ref.variable in bound and not ref.variable.startswith("_anon"):
                    sides = self.entity(ref.variable), self.entity(rng.choice(of_type))
                    return op.Comparison(rng.choice([op.ComparisonOperator.EQ, op.ComparisonOperator.NE]), *sides)
                return op.IsNull(ref)
            case 7:
                own = op.PropertyRef(ref.variable, "id", PropertyType(Scalar.STRING))
                given = op.Literal(f"{rng.choice('nmZ')}{rng.randrange(8)}", PropertyType(Scalar.STRING))
                return op.Comparison(rng.choice(list(op.ComparisonOperator)), own, given)
            case 0:
                return op.IsNull(rng.choice([ref, self.entity(ref.variable)]) if ref.variable in bound else ref)
            case 1:
                items = self.constant(PropertyType(ref.type.scalar, is_list=True))
                return op.InList(ref, items)
            case 2:
                lists = self.properties(bound, edges, lambda kind: kind.is_list and kind.scalar is ref.type.scalar)
                return op.InList(ref, rng.choice(lists)) if lists else op.IsNull(ref, True)
            case 3:
                texts = [each for each in plain if each.type.scalar is Scalar.STRING]
                if texts:
                    pattern = op.Literal(rng.choice(["^a", "e+n$", "[A-Z]", "", "."]), PropertyType(Scalar.STRING))
                    if rng.random() < 0.3:
                        self.params[f"p{len(self.params)}"] = (pattern.value, PropertyType(Scalar.STRING))
                        pattern = op.ParameterRef(f"p{len(self.params) - 1}", PropertyType(Scalar.STRING))
                    return op.StringPredicate(op.StringTest.MATCHES, rng.choice(texts), pattern)
                return op.IsNull(ref)
            case 4:
                truths = [each for each in plain if each.type.scalar is Scalar.BOOL]
                return op.IsTrue(rng.choice(truths)) if truths else op.IsNull(ref)
        left = self.computed(bound, edges)
        kind = type_of(left)
        if rng.random() < 0.3 and kind.scalar in (Scalar.I64, Scalar.F64):
            return op.Comparison(rng.choice(list(op.ComparisonOperator)), left, self.computed_number(bound, edges))
        constant = self.constant(PropertyType(kind.scalar))
        return op.Comparison(rng.choice(list(op.ComparisonOperator)), left, constant)

    def small_numbers(self, bound, edges):
        """Integers whose sums and products are certain to fit, and floats."""
        return self.properties(bound, edges, lambda kind: kind.is_plain and kind.scalar in (Scalar.I32, Scalar.F64))

    def computed_number(self, bound, edges):
        rng = self.rng
        numbers = self.small_numbers(bound, edges)
        literal = op.Literal(*rng.choice([(3, PropertyType(Scalar.I64)), (2.5, PropertyType(Scalar.F64))]))
        if not numbers:
            return literal
        left, operator = rng.choice(numbers), rng.choice("+-*/%")
        right = rng.choice(numbers) if operator in "+-*/" and rng.random() < 0.4 else literal
        floats = {type_of(left).scalar, type_of(right).scalar} & {Scalar.F64, Scalar.F32}
        kind = Scalar.F64 if floats or operator == "/" else Scalar.I64
        return op.Arithmetic(operator, left, right, PropertyType(kind, nullable=True))

    def computed(self, bound, edges):
        """A call or a sum of anything there is."""
        rng = self.rng
        refs = self.properties(bound, edges, lambda kind: kind.is_plain)
        if not refs or rng.random() < 0.3:
            return self.computed_number(bound, edges)
        ref = rng.choice(refs)
        scalar = ref.type.scalar
        text, whole = PropertyType(Scalar.STRING, nullable=True), PropertyType(Scalar.I64, nullable=True)
        number = op.Literal(rng.choice([-1, 0, 1, 2]), PropertyType(Scalar.I64))
        match scalar:
            case Scalar.STRING:
                one = rng.choice(["lower", "upper", "trim", "length", "to_string", "to_int", "to_float"])
                kind = {"length": whole, "to_int": whole, "to_float": PropertyType(Scalar.F64, nullable=True)}.get(
                    one, text
                )
                other = rng.choice([each for each in refs if each.type.scalar is Scalar.STRING])
                return rng.choice(
                    [
                        op.FunctionCall(one, (ref,), kind),
                        op.FunctionCall("substring", (ref, number, number), text),
                        op.FunctionCall("replace", (ref, self.constant(PropertyType(Scalar.STRING)), other), text),
                        op.FunctionCall("concat", (ref, other), PropertyType(Scalar.STRING)),
                        op.FunctionCall("coalesce", (ref, other), text),
                        op.FunctionCall("concat", (op.Literal("+", text), ref), PropertyType(Scalar.STRING)),
                    ]
                )
            case Scalar.DATE | Scalar.DATETIME:
                units = ["year", "quarter", "month", "week", "day", "hour", "minute", "second"]
                unit = op.Literal(rng.choice(units), PropertyType(Scalar.STRING))
                parts = ["year", "month", "day", *(["hour", "minute", "second"] if scalar is Scalar.DATETIME else [])]
                part_of_unit = op.Literal(rng.choice([0.5, -0.5, 1.001, 2.25]), PropertyType(Scalar.F64))
                same = PropertyType(scalar, nullable=True)
                other = rng.choice([each for each in refs if each.type.scalar is scalar])
                return rng.choice(
                    [
                        op.FunctionCall(rng.choice(parts), (ref,), whole),
                        op.FunctionCall("coalesce", (ref, other), same),
                        op.Arithmetic(rng.choice("+-"), ref, part_of_unit, same),
                        op.FunctionCall("date_trunc", (unit, ref), same),
                        op.FunctionCall("to_string", (ref,), text),
                        op.Arithmetic(rng.choice("+-"), ref, number, same),
                        op.Arithmetic("-", ref, other, PropertyType(Scalar.F64, nullable=True)),
                    ]
                )
            case Scalar.I64 | Scalar.U64 | Scalar.F32:
                floating = PropertyType(Scalar.F64, nullable=True)
                half = op.Literal(0.5, PropertyType(Scalar.F64))
                return rng.choice(
                    [
                        op.FunctionCall(rng.choice(["sqrt", "ln", "exp", "to_float"]), (ref,), floating),
                        op.FunctionCall("coalesce", (ref, half), floating),
                        op.FunctionCall("coalesce", (ref, ref), ref.type),
                        op.Arithmetic("/", ref, rng.choice([half, ref]), floating),
                        op.Arithmetic(rng.choice("+-*%"), ref, half, floating),
                    ]
                )
            case Scalar.I32 | Scalar.F64:
                if rng.random() < 0.2:
                    digits = op.Literal(rng.choice([0, 1, 2, 400]), PropertyType(Scalar.I64))
                    kind = whole if scalar is Scalar.I32 else PropertyType(Scalar.F64, nullable=True)
                    return op.FunctionCall("round", (ref, digits), kind)
                kind = whole if scalar is Scalar.I32 else PropertyType(Scalar.F64, nullable=True)
                name = rng.choice(["abs", "round", "floor", "ceil", "to_string", "sqrt"])
                if rng.random() < 0.2:
                    return op.Negative(ref, kind)
                kind = {"to_string": text, "sqrt": PropertyType(Scalar.F64, nullable=True)}.get(name, kind)
                return op.FunctionCall(name, (ref,), kind)
        return op.FunctionCall("to_string", (ref,), text)

    def test(self, bound, edges):
        rng = self.rng
        everything = self.properties(bound, edges, lambda kind: True)
        if not everything:
            return op.Comparison(
                op.ComparisonOperator.EQ,
                op.Literal(1, PropertyType(Scalar.I64)),
                self.constant(PropertyType(Scalar.I64)),
            )
        ref = rng.choice(everything)
        if ref.property == "text" and ref.variable in bound and rng.random() < 0.8:
            match = self.text_match(ref)
            if rng.random() < 0.2:
                truth = op.Literal(rng.random() < 0.5, PropertyType(Scalar.BOOL))
                return op.Comparison(op.ComparisonOperator.EQ, match, truth)
            return match
        if ref.type.is_list:
            return op.ListContains(ref, self.like(ref.type.scalar, bound, edges))
        if ref.type.scalar is Scalar.VECTOR:
            return self.predicate(bound, edges)
        if ref.type.scalar is Scalar.STRING and rng.random() < 0.3:
            other = self.like(Scalar.STRING, bound, edges)
            sides = (ref, other) if rng.random() < 0.7 else (other, ref)
            return op.StringPredicate(rng.choice(list(op.StringTest)), *sides)
        if rng.random() < 0.1 and not ref.type.is_list and ref.type.scalar in (Scalar.I32, Scalar.I64, Scalar.STRING):
            return op.ListContains(self.constant(PropertyType(ref.type.scalar, is_list=True)), ref)
        other = self.like(ref.type.scalar, bound, edges)
        sides = (ref, other) if rng.random() < 0.7 else (other, ref)
        return op.Comparison(rng.choice(list(op.ComparisonOperator)), *sides)

    def like(self, scalar, bound, edges):
        rng = self.rng
        numeric = scalar in (Scalar.I32, Scalar.I64, Scalar.U64, Scalar.F32, Scalar.F64)
        if numeric and rng.random() < 0.5:
            scalar = rng.choice([Scalar.I32, Scalar.I64, Scalar.U64, Scalar.F32, Scalar.F64])
        if rng.random() < 0.3:
            found = self.properties(bound, edges, lambda kind: kind.scalar is scalar and kind.is_plain)
            if found:
                return rng.choice(found)
        if scalar is Scalar.DATETIME and rng.random() < 0.3:
            return op.Now()
        return self.constant(PropertyType(scalar))

    def text_query(self):
        text = random_text(self.rng)
        return op.Literal(text, PropertyType(Scalar.STRING))

    def text_match(self, ref):
        function = self.rng.choice(list(op.TextFunction))
        most = None
        if function is op.TextFunction.FUZZY and self.rng.random() < 0.6:
            most = op.Literal(self.rng.randrange(4), PropertyType(Scalar.I64))
        return op.TextMatch(function, ref, self.text_query(), most)

    def rank(self, bound):
        rng = self.rng
        variable = rng.choice(list(bound))
        text = op.PropertyRef(variable, "text", nullable(Scalar.STRING))
        arms = [op.Bm25(text, self.text_query())]
        if bound[variable] == "A":
            vector = op.PropertyRef(variable, "v", NODE_TYPES["A"]["v"])
            arms.append(op.Nearest(vector, self.constant(PropertyType(Scalar.VECTOR, dimension=3))))
        if rng.random() < 0.4:
            k = op.Literal(rng.choice([1, 60]), PropertyType(Scalar.I64))
            return op.Rrf(rng.choice(arms), rng.choice(arms), k)
        return rng.choice(arms)

    def projections(self, bound, edges, rank):
        rng = self.rng
        found = self.properties(bound, edges, lambda kind: True)
        choices = [self.entity(variable) for variable in bound] + rng.sample(found, min(len(found), 3))
        choices += [self.computed(bound, edges), self.computed(bound, edges)]
        lists = self.properties(bound, edges, lambda kind: kind.is_list)
        if lists:
            choices.append(op.FunctionCall("size", (rng.choice(lists),), PropertyType(Scalar.I64, nullable=True)))
        if self.may_fail and rng.random() < 0.2:
            choices += [self.number_that_may_fail(bound, edges)] * 2
        texts = PropertyType(Scalar.STRING, is_list=True)
        for name in self.paths:
            choices += [op.PathValue(name, "length", PropertyType(Scalar.I64)), op.PathValue(name, "nodes", texts)]
            choices += [op.PathValue(name, "edges", texts), op.PathValue(name, "path", PropertyType(Scalar.PATH))]
        choices += [op.Now(), self.constant(PropertyType(Scalar.F64)), self.constant(PropertyType(Scalar.I32))]
        texts = [ref for ref in found if ref.property == "text" and ref.variable in bound]
        if texts:
            choices += [self.text_match(rng.choice(texts)), op.Bm25(rng.choice(texts), self.text_query())]
        choices = [c for c in choices if not (isinstance(c, op.Bm25) and c.property.variable in self.nullable)]
        found = [ref for ref in found if ref.variable not in self.nullable]
        vectors = [ref for ref in found if ref.type.scalar is Scalar.VECTOR]
        if vectors:
            choices.append(op.Nearest(rng.choice(vectors), self.constant(PropertyType(Scalar.VECTOR, dimension=3))))
        chosen = rng.sample(choices, min(len(choices), rng.randrange(1, 5)))
        return [*chosen, rank] if rank is not None and rng.random() < 0.7 else chosen

    def order_key(self, bound, edges):
        found = self.properties(bound, edges, lambda kind: kind.is_plain)
        if self.rng.random() < 0.2:
            return op.OrderKey(self.computed(bound, edges), self.rng.random() < 0.5)
        if self.paths and self.rng.random() < 0.3:
            return op.OrderKey(op.PathValue(self.rng.choice(self.paths), "length", PropertyType(Scalar.I64)))
        return (
            op.OrderKey(self.rng.choice(found), self.rng.random() < 0.5)
            if found
            else op.OrderKey(self.entity(next(iter(bound))))
        )

    def aggregates(self, bound, edges):
        rng = self.rng
        plain = self.properties(bound, edges, lambda kind: kind.is_plain)
        keys = rng.sample([self.entity(v) for v in bound] + plain, rng.choice([0, 1, 1, 2]))
        if rng.random() < 0.2:
            keys.append(self.computed(bound, edges))
            keys = [key for key in keys if type_of(key).is_plain]
        keys = list(dict.fromkeys(keys))
        numbers = [ref for ref in plain if ref.type.is_numeric]
        ordered = plain
        found = [
            op.Aggregate(op.AggregateFunction.COUNT, self.entity(rng.choice(list(bound)))),
            op.Aggregate(op.AggregateFunction.COUNT, self.entity(rng.choice(list(bound))), distinct=True),
            op.Aggregate(op.AggregateFunction.SUM, self.computed_number(bound, edges)),
        ]
        counted = op.Aggregate(op.AggregateFunction.COUNT, self.entity(rng.choice(list(bound))))
        two = op.Literal(2, PropertyType(Scalar.I64))
        found.append(op.Arithmetic("*", counted, two, PropertyType(Scalar.I64)))
        collected = op.Aggregate(op.AggregateFunction.COLLECT, self.entity(rng.choice(list(bound))), rng.random() < 0.5)
        found += [collected, op.FunctionCall("size", (collected,), PropertyType(Scalar.I64))]
        total = op.Aggregate(op.AggregateFunction.SUM, self.computed_number(bound, edges))
        found.append(op.FunctionCall("coalesce", (total, two), type_of(total).with_nullable(False)))
        for name in self.paths:
            length = op.PathValue(name, "length", PropertyType(Scalar.I64))
            found.append(op.Aggregate(rng.choice([op.AggregateFunction.MAX, op.AggregateFunction.SUM]), length))
        if plain:
            distinct = rng.random() < 0.5
            found.append(op.Aggregate(op.AggregateFunction.COUNT, rng.choice(plain), distinct=True))
            found.append(op.Aggregate(op.AggregateFunction.COLLECT, rng.choice(plain), distinct))
        if plain:
            found.append(op.Aggregate(op.AggregateFunction.COUNT, rng.choice(plain)))
        if edges:
            found.append(op.Aggregate(op.AggregateFunction.COUNT, self.edge_count(rng.choice(list(edges)))))
        if numbers:
            found.append(
                op.Aggregate(rng.choice([op.AggregateFunction.SUM, op.AggregateFunction.AVG]), rng.choice(numbers))
            )
        if ordered:
            found.append(
                op.Aggregate(rng.choice([op.AggregateFunction.MIN, op.AggregateFunction.MAX]), rng.choice(ordered))
            )
        chosen = rng.sample(found, rng.randrange(1, len(found) + 1))
        projections = [*keys, *chosen]
        if rng.random() < 0.2:
            projections.append(self.constant(PropertyType(Scalar.I64)))
        keyed = [each for each in (*keys, *chosen) if type_of(each).is_plain]
        times = rng.choice([0, 1, 1, 2]) if keyed else 0
        order = [op.OrderKey(rng.choice(keyed), rng.random() < 0.5) for _ in range(times)]
        return projections, order

    def edge_count(self, variable):
        return op.EdgeCount(variable, variable in self.nullable)


# --- comparing --------------------------------------------------------------------------------------------------------


def canonical(value):
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if isinstance(value, dt.datetime):
        return round((value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(milliseconds=1))
    if isinstance(value, list | tuple):
        return tuple(canonical(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, canonical(item)) for name, item in sorted(value.items()))
    return value


def rows_of(result):
    table = result.to_table()
    columns = []
    for chunked in table.columns:
        if chunked.type == pa.date64():
            chunked = pa.chunked_array([c.view(pa.int64()) for c in chunked.chunks], pa.int64())
        columns.append([canonical(value) for value in chunked.to_pylist()])
    return [tuple(row) for row in zip(*columns, strict=True)]


TRIES_MAX = 20_000
"""Some plans in a hundred need more in a graph of these sizes, up to minutes each; smaller graphs meet their like."""


def check(plan, graph, params, tables, options=None):
    """Compare one plan; False when the plain way would take too long."""
    try:
        plain = evaluate(plan, graph, params, NOW, tries_max=TRIES_MAX)
        expected = [tuple(canonical(value) for value in row) for row in plain]
    except TooManyTriesError:
        return False
    except PlainFailure:
        with pytest.raises(ExecutionError):
            execute(plan, tables.state, params, options=options, now=NOW)
        return True
    result = execute(plan, tables.state, params, options=options, now=NOW)
    as_json = list(result.to_json())
    actual = rows_of(result)
    assert as_json == rows_to_json(result.to_table()), plan
    if len(actual) % 3 == 1:
        again = rows_of(execute(plan, tables.state, params, options=options, now=NOW))
        assert again == actual or not plan.is_ordered, plan
        assert Counter(again) == Counter(actual) or plan.limit is not None or plan.offset, plan
    if plan.is_ordered:
        assert actual == expected, plan
    elif plan.limit is None and plan.offset == 0:
        assert Counter(actual) == Counter(expected), plan
    else:
        everything = op.ReadPlan(
            plan.name,
            plan.parameters,
            plan.pattern,
            plan.projections,
            is_aggregate=plan.is_aggregate,
            having=plan.having,
            distinct=plan.distinct,
        )
        whole = Counter(tuple(canonical(v) for v in row) for row in evaluate(everything, graph, params, NOW))
        assert len(actual) == len(expected), plan
        assert not Counter(actual) - whole, plan
    return True


def run_cases(seed, graphs, plans, root, options=None, *, indexed=False):
    rng = random.Random(seed)
    random.seed(seed)
    compared = 0
    for number in range(graphs):
        graph = random_graph(rng)
        tables = store_graph(rng, graph, root / str(number), indexed=indexed)
        for _ in range(plans):
            maker = PlanMaker(rng)
            plan = maker.plan()
            compared += check(plan, graph, maker.values(), tables, options)
    assert compared > graphs * plans * 0.9, "most plans have to be compared"


@pytest.mark.long
@pytest.mark.parametrize("seed", always_first(1, range(3)))
def test_engine_returns_the_rows_of_the_plain_evaluator(seed, tmp_path):
    run_cases(seed, 8, 60, tmp_path)


@EXHAUSTIVE
@pytest.mark.parametrize("seed", range(3, 6))
def test_engine_returns_the_rows_of_the_plain_evaluator_in_thousands_of_cases(seed, tmp_path):
    run_cases(seed, 10, 100, tmp_path)


@pytest.mark.long
def test_engine_returns_the_same_rows_without_indexes_factoring_or_caches(tmp_path, monkeypatch):
    monkeypatch.setattr("omnigraph.engine.read.operators.aggregate.CODES_MIN", 0)
    SHARED.resize(0)
    try:
        run_cases(77, 6, 50, tmp_path, ReadOptions(use_value_indexes=False, use_factoring=False))
    finally:
        SHARED.resize(4 << 30)


@pytest.mark.long
def test_engine_returns_the_same_rows_when_every_shortcut_for_large_data_is_taken(tmp_path, monkeypatch):
    for name, value in {
        "operators.lookup.INDEXED_ROWS_MIN": 0,
        "operators.lookup.ASKED_BEFORE_INDEXING": 1,
        "operators.aggregate.CODES_MIN": 0,
        "graph.adjacency.FEW_NODES_FACTOR": 0,
        "operators.ordering.FEW_TEXTS": 0,
        "operators.match.MERGE_MIN": 0,
        "operators.match.DENSE_FACTOR": 1000,
        "operators.expand.FLOW_FACTOR": 1000,
        "operators.count_paths.ALL_FACTOR": 1000,
        "kernels.PAIRS_BLOCK": 1,
        "graph.intersect.FEW_ROWS": 0,
        "graph.intersect.BLOCK": 4,
        "graph.intersect.TABLES_FACTOR": 1000,
        "operators.match.SORT_EDGES_FROM": 0,
        "operators.conditions.TESTED_SHARE": 10**9,
        "operators.ordering.WORDS_ROWS_MIN": 0,
        "columns.dictionary.FEW": 0,
        "operators.ordering.RANKS_FROM_DICTIONARY_MIN": 0,
        "kernels.VISITED_CELLS_MAX": 3,
        "columns.dictionary.SMALL": 0,
        "columns.dictionary.TAIL_MAX": 1,
        "cache.persist.EDGES_MIN": 1,
        "vector.nearest.SKETCHED_ROWS_MIN": 0,
        "vector.nearest.NARROWED_ROWS_MIN": 0,
        "vector.quantised.MEASURED_AT_ONCE": 0,
        "cache.persist.TEXT_ROWS_MIN": 0,
    }.items():
        monkeypatch.setattr(f"omnigraph.engine.read.{name}", value)
    run_cases(99, 8, 60, tmp_path)


@pytest.mark.long
def test_engine_returns_the_same_rows_when_it_asks_the_indexes_of_the_tables(tmp_path, monkeypatch):
    asked = []
    for name, value in {
        "operators.lookup.INDEXED_ROWS_MIN": 0,
        "operators.lookup.INDEX_LOOKUP_ROWS": 0,
        "columns.tables.COLD_ROWS_MIN": 0,
        "columns.tables.FETCH_BYTES": 0,
        "columns.tables.FETCHED_ROW_BYTES": 0,
    }.items():
        monkeypatch.setattr(f"omnigraph.engine.read.{name}", value)
    plain = lookup._from_index
    monkeypatch.setattr(lookup, "_from_index", lambda *given: asked.append(given) or plain(*given))
    run_cases(55, 8, 60, tmp_path, indexed=True)
    assert asked


@pytest.mark.long
def test_engine_returns_the_same_rows_from_what_an_earlier_process_left_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("omnigraph.engine.read.cache.persist.EDGES_MIN", 1)
    rng = random.Random(123)
    for number in range(6):
        graph = random_graph(rng)
        tables = store_graph(rng, graph, tmp_path / str(number))
        read_everything(tables)
        for _ in range(30):
            maker = PlanMaker(rng)
            plan = maker.plan()
            SHARED.clear()
            nodes_module._DICTIONARIES.clear()
            check(plan, graph, maker.values(), Tables(tables.store))
