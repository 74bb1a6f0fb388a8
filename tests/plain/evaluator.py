"""What a read query means, in plain Python and as directly as the language says it.

Every assignment of nodes to variables is tried, one after the other; nothing is clever. `evaluate` is what the engine
is compared with, so it shares no code with it beyond the analysis of text, which is compared with the full-text index
of the storage engine instead, and the list of what may fail.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from tests.plain import values as plain_values

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.read.operators.computed import may_fail
from omnigraph.engine.read.text.analysis import analyse
from omnigraph.plan import operators as op
from omnigraph.plan.types import operands_of, variables_of

Entity = dict[str, Any]
Row = dict[str, Entity]
NOTHING: Entity = {}
"""What a variable of an optional block stands for where nothing was found."""


@dataclass
class PlainGraph:
    """A graph as dictionaries: entities have `id`, edges also `src` and `dst`, and their properties beside these."""

    nodes: dict[str, list[Entity]] = field(default_factory=dict)
    edges: dict[str, list[Entity]] = field(default_factory=dict)


@dataclass
class _Run:
    plan: op.ReadPlan
    graph: PlainGraph
    params: Mapping[str, Any]
    now: dt.datetime
    types: dict[str, str] = field(default_factory=dict)
    known: Mapping[Any, Any] = field(default_factory=dict)
    """Values that are given: what a group returns, while it is tested."""
    tries_left: float = math.inf

    def try_one(self) -> None:
        """Count one assignment."""
        self.tries_left -= 1
        if self.tries_left < 0:
            raise TooManyTriesError("there are more assignments than were to be tried")


class TooManyTriesError(Exception):
    """A query for which more assignments would have to be tried than the caller has time for."""


def evaluate(
    plan: op.ReadPlan, graph: PlainGraph, params: Mapping[str, Any], now: dt.datetime, *, tries_max: float = math.inf
) -> list[list[Any]]:
    """The rows of a query as lists of values in projection order; in order when the query is ordered.

    Raises:
        TooManyTriesError: there are more than `tries_max` assignments to try.
    """
    run = _Run(plan, graph, params, now, tries_left=tries_max)
    rows = list(_matches(run, plan.pattern, {}))
    if plan.is_aggregate:
        return _aggregate(run, rows)
    rows = [row for row in rows if all(_truth(run, predicate, row) for predicate in plan.having)]
    scores: list[float] | None = None
    if plan.rank is not None:
        rows, scores = _ranked(run, rows)
    elif plan.order:
        rows.sort(key=functools.cmp_to_key(lambda a, b: _by_keys(run, a, b) or _by_ids(run, a, b)))
    window = _window(run)
    rows, scores = rows[window], scores if scores is None else scores[window]
    result = []
    for place, row in enumerate(rows):
        score = scores[place] if scores is not None else None
        result.append([_project(run, projection.expression, row, score) for projection in plan.projections])
    return result


def _window(run: _Run) -> slice:
    begin = _number(run, run.plan.offset)
    return slice(begin, None if run.plan.limit is None else begin + _number(run, run.plan.limit))


def _number(run: _Run, count: op.Count) -> int:
    return count if isinstance(count, int) else int(run.params[count.name])


# --- matching ---------------------------------------------------------------------------------------------------------


def _matches(run: _Run, pattern: op.Pattern, outer: Row) -> Iterator[Row]:
    """Every row of a pattern; what some values make fail is asked last, in written order."""
    for scan in pattern.scans:
        run.types[scan.variable] = scan.type_name
    scans = [scan for scan in pattern.scans if scan.variable not in outer]
    late = {name for block in pattern.blocks for name in block.binds}
    early_expands = tuple(e for e in pattern.expands if not late & {e.source, e.target})
    late_expands = tuple(e for e in pattern.expands if late & {e.source, e.target})
    early = _early(pattern, late)
    for nodes in product(*(run.graph.nodes[scan.type_name] for scan in scans)):
        run.try_one()
        row = {**outer, **{scan.variable: node for scan, node in zip(scans, nodes, strict=True)}}
        found = [each for each in _with_edges(run, early_expands, row) if _passes(run, early, each)]
        for block in pattern.blocks:
            found = [longer for each in found for longer in _extended(run, block, each)]
        found = [longer for each in found for longer in _with_edges(run, late_expands, each)]
        for extended in (longer for each in found for longer in _with_paths(run, pattern.paths, each)):
            if _passes(run, _part(pattern, risky=False), extended) and _passes(
                run, _part(pattern, risky=True), extended
            ):
                yield extended


def _passes(run: _Run, pattern: op.Pattern, row: Row) -> bool:
    return (
        all(_truth(run, clause.predicate, row) for clause in pattern.filters)
        and not any(next(_matches(run, anti.pattern, row), None) is not None for anti in pattern.anti_joins)
        and not any(next(_matches(run, semi.pattern, row), None) is None for semi in pattern.semi_joins)
    )


def _part(pattern: op.Pattern, *, risky: bool) -> op.Pattern:
    """The conditions of a pattern that some values make fail, or those that always have an answer."""
    return op.Pattern(
        filters=tuple(clause for clause in pattern.filters if may_fail(clause.predicate) is risky),
        anti_joins=tuple(anti for anti in pattern.anti_joins if _is_risky(anti.pattern) is risky),
        semi_joins=tuple(semi for semi in pattern.semi_joins if _is_risky(semi.pattern) is risky),
    )


def _is_risky(pattern: op.Pattern) -> bool:
    return any(may_fail(clause.predicate) for clause in pattern.filters) or any(map(_is_risky, pattern.inner))


def _variables(predicate: op.Predicate) -> frozenset[str]:
    return frozenset(name for operand in operands_of(predicate) for name in variables_of(operand))


def _early(pattern: op.Pattern, late: set[str]) -> op.Pattern:
    """Conditions that always have an answer and come before the blocks, because they use nothing that those bind."""
    behind = {e.edge_variable for e in pattern.expands if e.edge_variable and late & {e.source, e.target}}
    late = late | behind | {path.variable for path in pattern.paths}
    sure = _part(pattern, risky=False)
    return op.Pattern(
        filters=tuple(clause for clause in sure.filters if not late & _variables(clause.predicate)),
        anti_joins=() if late else sure.anti_joins,
        semi_joins=() if late else sure.semi_joins,
    )


def _with_paths(run: _Run, paths: tuple[op.ShortestPath, ...], row: Row) -> Iterator[Row]:
    if not paths:
        yield row
        return
    path, rest = paths[0], paths[1:]
    source, target = row[path.source].get("id"), row[path.target].get("id")
    found = None if source is None or target is None else _shortest(run, path, source, target)
    if found is not None:
        yield from _with_paths(run, rest, {**row, path.variable: found})


def _shortest(run: _Run, path: op.ShortestPath, source: str, target: str) -> Entity | None:
    """Every way of growing length is tried until one arrives; the smallest ids win."""
    steps: dict[tuple[str, str], str] = {}
    for edge in run.graph.edges[path.edge_type]:
        ways = [(edge["src"], edge["dst"])]
        if path.undirected:
            ways.append((edge["dst"], edge["src"]))
        for way in ways:
            steps[way] = min(steps.get(way, edge["id"]), edge["id"], key=str.encode)
    if source == target and path.source_type == path.target_type:
        return None
    hops = path.max_hops if path.source_type == path.target_type else 1
    ways_so_far: list[list[str]] = [[source]]
    for length in range(1, hops + 1):
        ways_so_far = [
            [*way, end]
            for way in ways_so_far
            for begin, end in steps
            if begin == way[-1] and (end not in way or path.source_type != path.target_type)
        ]
        arrived = [way for way in ways_so_far if way[-1] == target]
        if arrived:
            if length < path.min_hops:
                return None
            best = min(arrived, key=lambda way: [node.encode() for node in way])
            edges = [steps[way] for way in pairwise(best)]
            return {"nodes": best[::-1] if path.backward else best, "edges": edges}
    return None


def _extended(run: _Run, block: op.Block, row: Row) -> list[Row]:
    """A row with everything a block makes of it."""
    if isinstance(block, op.OptionalMatch):
        found = [{**row, **{name: each[name] for name in block.binds}} for each in _matches(run, block.pattern, row)]
        return found or [{**row, **dict.fromkeys(block.binds, NOTHING)}]
    once: dict[Any, Row] = {}
    for arm in block.arms:
        for each in _matches(run, arm, row):
            bound = {name: each[name] for name in block.binds}
            once.setdefault(tuple(_identity(entity) for entity in bound.values()), {**row, **bound})
    return list(once.values())


def _identity(entity: Entity) -> Any:
    """What tells a node or an edge, or a path, from others."""
    return (tuple(entity["nodes"]), tuple(entity["edges"])) if "nodes" in entity else entity.get("id")


def _with_edges(run: _Run, expands: tuple[op.Expand, ...], row: Row) -> Iterator[Row]:
    if not expands:
        yield row
        return
    expand, rest = expands[0], expands[1:]
    source, target = row[expand.source].get("id"), row[expand.target].get("id")
    if source is None or target is None:
        return
    edges = run.graph.edges[expand.edge_type]
    if expand.edge_variable is None:
        if target in _reached(expand, edges, source):
            yield from _with_edges(run, rest, row)
        return
    for edge in edges:
        ways = [(edge["src"], edge["dst"])]
        if expand.undirected and edge["src"] != edge["dst"]:
            ways.append((edge["dst"], edge["src"]))
        for way in ways:
            if way == (source, target):
                yield from _with_edges(run, rest, {**row, expand.edge_variable: edge})


def _reached(expand: op.Expand, edges: list[Entity], start: str) -> set[str]:
    """Nodes whose shortest distance is within the bounds; a loop lets its node count one hop further as well."""
    links: dict[str, set[str]] = {}
    for edge in edges:
        links.setdefault(edge["src"], set()).add(edge["dst"])
        if expand.undirected:
            links.setdefault(edge["dst"], set()).add(edge["src"])
    if expand.source_type != expand.target_type:
        return links.get(start, set()) if expand.min_hops == 1 else set()
    distance = {start: 0}
    ring = [start]
    found = set()
    for hop in range(1, expand.max_hops + 1):
        following = []
        for node in ring:
            for other in links.get(node, ()):
                if other == node and expand.min_hops <= hop:
                    found.add(node)
                if other not in distance:
                    distance[other] = hop
                    following.append(other)
        ring = following
    return found | {node for node, hops in distance.items() if expand.min_hops <= hops <= expand.max_hops}


# --- conditions -------------------------------------------------------------------------------------------------------


def _truth(run: _Run, predicate: op.Predicate, row: Row) -> bool | None:
    """True, false, or None for null."""
    match predicate:
        case op.And(parts=parts):
            found = [_truth(run, part, row) for part in parts]
            return False if False in found else (None if None in found else True)
        case op.Or(parts=parts):
            found = [_truth(run, part, row) for part in parts]
            return True if True in found else (None if None in found else False)
        case op.Not(predicate=inner):
            known = _truth(run, inner, row)
            return None if known is None else not known
        case op.IsNull(operand=operand, negated=negated):
            return (_value(run, operand, row) is None) is not negated
        case op.IsTrue(operand=operand):
            truth: bool | None = _value(run, operand, row)
            return truth
        case op.Comparison(operator=operator, left=left, right=right):
            return _compare(run, operator, left, right, row)
        case op.ListContains(items=items, value=value):
            return bool(_member(run, items, value, row))
        case op.InList(items=items, value=value):
            return _member(run, items, value, row)
        case op.StringPredicate(test=test, left=left, right=right):
            return _string_test(test, _value(run, left, row), _value(run, right, row))
        case op.TextMatch():
            return _text_match(run, predicate, row)


def _member(run: _Run, items: op.Expression, value: op.Expression, row: Row) -> bool | None:
    wanted, members = _value(run, value, row), _value(run, items, row)
    if wanted is None or members is None:
        return None
    narrow = any(isinstance(side, op.PropertyRef) and side.type.scalar is Scalar.F32 for side in (items, value))
    if any(m is not None and (f32(m) == f32(wanted) if narrow else m == wanted) for m in members):
        return True
    return None if None in members else False


def _string_test(test: op.StringTest, text: str | None, part: str | None) -> bool | None:
    if text is None or part is None:
        return None
    match test:
        case op.StringTest.CONTAINS:
            return part in text
        case op.StringTest.STARTS_WITH:
            return text.startswith(part)
        case op.StringTest.ENDS_WITH:
            return text.endswith(part)
        case op.StringTest.MATCHES:
            return re.search(part, text) is not None


def _compare(run: _Run, operator: op.ComparisonOperator, left: Any, right: Any, row: Row) -> bool | None:
    a, b = _value(run, left, row), _value(run, right, row)
    if a is None or b is None:
        return None
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    elif any(isinstance(side, op.PropertyRef) and side.type.scalar is Scalar.F32 for side in (left, right)):
        a, b = f32(a), f32(b)
    match operator:
        case op.ComparisonOperator.EQ:
            return bool(a == b)
        case op.ComparisonOperator.NE:
            return bool(a != b)
        case op.ComparisonOperator.LT:
            return bool(a < b)
        case op.ComparisonOperator.LE:
            return bool(a <= b)
        case op.ComparisonOperator.GT:
            return bool(a > b)
        case op.ComparisonOperator.GE:
            return bool(a >= b)


def f32(value: float) -> float:
    """The nearest Float32, ties to even, from the exact value."""
    if isinstance(value, int) and abs(value) > 1 << 53:
        unit = 1 << (abs(value).bit_length() - 24)
        value = math.copysign(float(round(Fraction(abs(value), unit)) * unit), value)
    if not math.isfinite(value):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _called(name: str, values: list[Any], kind: PropertyType) -> Any:
    """A call; the first of several numbers that is not null is a float where one of them is."""
    found = plain_values.call(name, values)
    return float(found) if found is not None and name == "coalesce" and kind.scalar is Scalar.F64 else found


def _value(run: _Run, expression: Any, row: Row) -> Any:
    if run.known and expression in run.known:
        return run.known[expression]
    match expression:
        case op.PropertyRef(variable=variable, property=name):
            return row[variable].get(name)
        case op.EntityId(variable=variable):
            return row[variable].get("id")
        case op.ParameterRef(name=name, type=kind):
            given = run.params.get(name)
            if given is None or kind.scalar is not Scalar.F32:
                return given
            return tuple(f32(item) for item in given) if kind.is_list else f32(given)
        case op.Literal(value=value):
            return value
        case op.Now():
            return run.now.replace(microsecond=run.now.microsecond // 1000 * 1000)
        case op.TextMatch():
            return _text_match(run, expression, row)
        case op.FunctionCall(function=name, arguments=arguments, type=kind):
            return _called(name, [_value(run, argument, row) for argument in arguments], kind)
        case op.Arithmetic(operator=operator, left=left, right=right):
            return plain_values.arithmetic(operator, _value(run, left, row), _value(run, right, row))
        case op.Negative(operand=operand):
            return plain_values.negative(_value(run, operand, row))
        case op.PathValue(variable=variable, part=part):
            way = row[variable]
            if not way or part == "path":
                return way or None
            return len(way["edges"]) if part == "length" else way[part]
        case op.Bm25():
            return _bm25(run, expression, row)
        case op.Nearest():
            return _distance(run, expression, row)
    raise TypeError(f"no value of {expression}")


# --- search -----------------------------------------------------------------------------------------------------------


def _text_match(run: _Run, match: op.TextMatch, row: Row) -> bool:
    words = set(analyse(_value(run, match.query, row)))
    tokens = set(analyse(_value(run, match.property, row)))
    if match.function is not op.TextFunction.FUZZY:
        return bool(words & tokens)
    most = 2 if match.max_distance is None else _value(run, match.max_distance, row)
    return any(levenshtein(word, token) <= most for word in words for token in tokens)


def levenshtein(a: str, b: str) -> int:
    """The least number of insertions, deletions and replacements that turn one text into the other."""
    if not a or not b:
        return len(a) or len(b)
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        line = [i]
        for j, y in enumerate(b, 1):
            line.append(min(before[j] + 1, line[-1] + 1, before[j - 1] + (x != y)))
        before = line
    return before[-1]


def _bm25(run: _Run, rank: op.Bm25, row: Row) -> float:
    texts = [node.get(rank.property.property) for node in run.graph.nodes[run.types[rank.property.variable]]]
    documents = [analyse(text) for text in texts if text is not None]
    mean = sum(map(len, documents)) / len(documents) if any(documents) else 1.0
    tokens = analyse(row[rank.property.variable].get(rank.property.property))
    score = 0.0
    for word in dict.fromkeys(analyse(_value(run, rank.query, row))):
        holders = sum(word in document for document in documents)
        count = tokens.count(word)
        if count:
            rarity = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
            score += rarity * (count * (1.2 + 1)) / (count + 1.2 * (1 - 0.75 + 0.75 * len(tokens) / mean))
    return score


def _distance(run: _Run, rank: op.Nearest, row: Row) -> float | None:
    stored, asked = row[rank.property.variable].get(rank.property.property), _value(run, rank.query, row)
    if stored is None or asked is None:
        return None
    return sum((f32(a) - f32(b)) ** 2 for a, b in zip(stored, asked, strict=True))


def _ranked(run: _Run, rows: list[Row]) -> tuple[list[Row], list[float]]:
    rank = run.plan.rank
    if isinstance(rank, op.Rrf):
        return _fused(run, rank, rows)
    assert rank is not None
    scored = [(_rank_score(run, rank, row), row) for row in rows]
    kept = [(score, row) for score, row in scored if score is not None]

    def order(a: tuple[float, Row], b: tuple[float, Row]) -> int:
        return _sign(a[0], b[0]) or _by_keys(run, a[1], b[1]) or _by_ids(run, a[1], b[1])

    kept.sort(key=functools.cmp_to_key(order))
    flip = -1 if isinstance(rank, op.Bm25) else 1
    return [row for _, row in kept], [score * flip for score, _ in kept]


def _rank_score(run: _Run, rank: op.Nearest | op.Bm25, row: Row) -> float | None:
    """Smaller is better; None leaves the row out."""
    if isinstance(rank, op.Nearest):
        return _distance(run, rank, row)
    score = _bm25(run, rank, row)
    return -score if score > 0 else None


def _fused(run: _Run, rank: op.Rrf, rows: list[Row]) -> tuple[list[Row], list[float]]:
    variable = rank.first.property.variable
    k = _value(run, rank.k, {})
    by_node: dict[str, list[Row]] = {}
    for row in rows:
        by_node.setdefault(row[variable]["id"], []).append(row)
    places: list[dict[str, int]] = []
    for arm in (rank.first, rank.second):
        ranked = []
        for node, members in by_node.items():
            score = _rank_score(run, arm, members[0])
            if score is not None:
                ranked.append((score, node.encode(), node))
        ranked.sort()
        kept = ranked[: _window(run).stop] if isinstance(arm, op.Nearest) else ranked
        places.append({node: place for place, (_, _, node) in enumerate(kept, 1)})
    first, second = places
    fused = []
    for node, members in by_node.items():
        if node in first or node in second:
            score = sum(1.0 / (k + arm[node]) for arm in places if node in arm)
            members.sort(key=functools.cmp_to_key(functools.partial(_by_ids, run)))
            fused.append((score, members[0], (first.get(node, math.inf), second.get(node, math.inf))))

    def order(a: tuple[float, Row, Any], b: tuple[float, Row, Any]) -> int:
        return _sign(b[0], a[0]) or _by_keys(run, a[1], b[1]) or _sign(a[2], b[2])

    fused.sort(key=functools.cmp_to_key(order))
    return [row for _, row, _ in fused], [score for score, _, _ in fused]


# --- order ------------------------------------------------------------------------------------------------------------


def _sign(a: Any, b: Any) -> int:
    """Three-way comparison: null is smallest, NaN the largest number, text goes by bytes."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    if isinstance(a, tuple):
        items = next((sign for x, y in zip(a, b, strict=False) if (sign := _sign(x, y))), 0)
        return items or _sign(len(a), len(b))
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    if isinstance(a, float) and isinstance(b, float) and (math.isnan(a) or math.isnan(b)):
        return math.isnan(a) - math.isnan(b)
    return int(a > b) - int(a < b)


def _by_keys(run: _Run, a: Row, b: Row) -> int:
    for key in run.plan.order:
        sign = _sign(_project(run, key.expression, a, None), _project(run, key.expression, b, None))
        if sign:
            return -sign if key.descending else sign
    return 0


def _by_ids(run: _Run, a: Row, b: Row) -> int:
    for variable in sorted(a):
        if not variable.startswith("_anon"):
            sign = _sign(a[variable].get("id"), b[variable].get("id"))
            if sign:
                return sign
    return 0


# --- results ----------------------------------------------------------------------------------------------------------


def _project(run: _Run, expression: op.Expression, row: Row, score: float | None) -> Any:
    if score is not None and expression == run.plan.rank:
        return score
    return _value(run, expression, row)


def _aggregate(run: _Run, rows: list[Row]) -> list[list[Any]]:
    plan = run.plan
    keys = [p.expression for p in plan.projections if _reads(p.expression) and not _aggregates(p.expression)]
    groups: dict[Any, list[Row]] = (
        {(): []} if not keys and any(_aggregates(p.expression) for p in plan.projections) else {}
    )
    for row in rows:
        groups.setdefault(tuple(_group_value(_value(run, key, row)) for key in keys), []).append(row)

    def value(expression: op.Expression, group: Any) -> Any:
        if expression in keys:
            return group[keys.index(expression)]
        match expression:
            case op.Aggregate():
                return _aggregated(run, expression, groups[group])
            case op.FunctionCall(function=name, arguments=arguments, type=kind):
                return _called(name, [value(argument, group) for argument in arguments], kind)
            case op.Arithmetic(operator=operator, left=left, right=right):
                return plain_values.arithmetic(operator, value(left, group), value(right, group))
            case op.Negative(operand=operand):
                return plain_values.negative(value(operand, group))
        return _value(run, expression, {})

    def order(a: Any, b: Any) -> int:
        for key in plan.order:
            sign = _sign(value(key.expression, a), value(key.expression, b))
            if sign:
                return -sign if key.descending else sign
        return next((sign for x, y in zip(a, b, strict=True) if (sign := _sign(x, y))), 0)

    def kept(group: Any) -> bool:
        shown = {p.expression: value(p.expression, group) for p in plan.projections}
        return all(_truth(replace(run, known=shown), predicate, {}) for predicate in plan.having)

    for group, projection in product(groups, plan.projections):
        value(projection.expression, group)  # a group that fails makes the query fail, shown or not
    chosen = [group for group in groups if kept(group)]
    ordered = sorted(chosen, key=functools.cmp_to_key(order)) if plan.order else chosen
    return [[value(p.expression, group) for p in plan.projections] for group in ordered[_window(run)]]


def _reads(expression: Any) -> bool:
    """Whether an expression reads a variable."""
    match expression:
        case op.ParameterRef() | op.Literal() | op.Now():
            return False
        case op.FunctionCall() | op.Arithmetic() | op.Negative() | op.Aggregate():
            return any(_reads(part) for part in _parts(expression))
    return True


def _aggregates(expression: Any) -> bool:
    return isinstance(expression, op.Aggregate) or any(_aggregates(part) for part in _parts(expression))


def _parts(expression: Any) -> tuple[Any, ...]:
    match expression:
        case op.FunctionCall(arguments=arguments):
            return arguments
        case op.Arithmetic(left=left, right=right):
            return (left, right)
        case op.Negative(operand=operand) | op.Aggregate(argument=operand):
            return (operand,)
    return ()


_ONE_NAN = math.nan


def _group_value(value: Any) -> Any:
    if isinstance(value, float):
        return _ONE_NAN if math.isnan(value) else value + 0.0
    return tuple(_group_value(item) for item in value) if isinstance(value, list | tuple) else value


def _aggregated(run: _Run, aggregate: op.Aggregate, rows: list[Row]) -> Any:
    argument = aggregate.argument
    if isinstance(argument, op.EdgeCount):
        argument = op.PropertyRef(argument.variable, "id", PropertyType(Scalar.STRING))
    values = [v for v in (_group_value(_value(run, argument, row)) for row in rows) if v is not None]
    if aggregate.distinct:
        values = list(dict.fromkeys(values))
    match aggregate.function:
        case op.AggregateFunction.COUNT:
            return len(values)
        case op.AggregateFunction.SUM:
            return _sum(values) if values else None
        case op.AggregateFunction.AVG:
            return _mean(values) if values else None
        case op.AggregateFunction.MIN:
            return min(values, key=functools.cmp_to_key(_sign)) if values else None
        case op.AggregateFunction.MAX:
            return max(values, key=functools.cmp_to_key(_sign)) if values else None
        case op.AggregateFunction.COLLECT:
            return sorted(values, key=functools.cmp_to_key(_sign))


def _mean(values: list[Any]) -> float:
    whole = all(isinstance(value, int) for value in values)
    return float(sum(values) if whole else _sum(values)) / len(values)


def _sum(values: list[Any]) -> Any:
    if all(isinstance(value, int) for value in values):
        return plain_values.fitting(sum(values))
    if any(not math.isfinite(value) for value in values):
        return float(sum(value for value in values if not math.isfinite(value)))
    return math.fsum(values)
