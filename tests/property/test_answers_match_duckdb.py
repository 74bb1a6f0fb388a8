"""Another engine gives the same answers, on a graph large enough that every size-dependent path of reading is taken.

The plain evaluator of the other property tests shares our reading of the language, and the differential machine shares
our operators. Here each question is also written in SQL and asked of DuckDB, which shares neither. Edges go beyond the
200,000 from which adjacency is kept on disk, some nodes have thousands of neighbours, and every column has nulls.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import omnigraph

PEOPLE, EDGES, FIRMS, JOBS, HUBS = 30_000, 300_000, 500, 40_000, 50
ROUNDS = 3
SCHEMA = """
node Person {
    name: String @key  age: I32? @index  city: String? @index
    score: F64?  born: Date?  big: U64?  nick: String?
}
node Firm { name: String @key  size: I64? }
edge Knows: Person -> Person { since: I32? @index  w: F64? }
edge WorksAt: Person -> Firm { role: String? }
"""
VIEWS = """
create view near as select distinct src, dst from knows;
create view job as select distinct src, dst from works;
"""
"""A traversal that names no edge meets each pair once."""

QUESTIONS = [
    (
        "match { $p: Person $p.age > {age} or $p.city = '{city}' } return { count($p) as n }",
        "select count(*) from person where age > {age} or city = '{city}'",
    ),
    (
        "match { $p: Person not ($p.age > {age} or $p.city = '{city}') } "
        "return { count($p) as n, sum($p.age) as s, min($p.born) as b, max($p.big) as m }",
        "select count(*), sum(age)::bigint, min(born), max(big) from person where not (age > {age} or city = '{city}')",
    ),
    (
        "match { $p: Person $p.big >= {big} or $p.age is null } return { $p.name as p, $p.big as b }",
        "select name, big from person where big >= {big} or age is null",
    ),
    (
        "match { $p: Person { name: '{hub}' } $p $k:knows $x $k.since > {year} $x.age < {age} } "
        "return { $x.name as x, $k.since as s }",
        "select dst, since from knows join person on name = dst where src = '{hub}' and since > {year} and age < {age}",
    ),
    (
        "match { $p: Person { name: '{hub}' } $p knows $x $x knows $y $y.city = '{city}' } "
        "return { count($y) as n, count(distinct $y) as d }",
        "select count(*), count(distinct b.dst) from near a join near b on a.dst = b.src join person on name = b.dst "
        "where a.src = '{hub}' and city = '{city}'",
    ),
    (
        "match { $p: Person $p.city = '{city}' $p $k:knows $x $k.w > {weight} } "
        "return { $x.city as c, count($x) as n, avg($x.score) as s }",
        "select b.city, count(*), avg(b.score) from person a join knows on a.name = src join person b on b.name = dst "
        "where a.city = '{city}' and w > {weight} group by 1",
    ),
    (
        "match { $p: Person { age: {age} } optional { $p worksAt $f $f.size > 0 } } "
        "return { $p.name as p, $f.name as f }",
        "select name, f from person left join (select src, dst f from job join firm on name = dst where size > 0) x "
        "on x.src = name where age = {age}",
    ),
    (
        "match { $p: Person $p.age = {age} not { $p knows $x $x.city = '{city}' } } return { $p.name as p }",
        "select name from person p where age = {age} and not exists "
        "(select 1 from near join person b on b.name = dst where src = p.name and b.city = '{city}')",
    ),
    (
        "match { $p: Person $p.age = {age} exists { $p knows $x $x worksAt $f $f.size < 0 } } return { $p.name as p }",
        "select name from person p where age = {age} and exists (select 1 from near join job on job.src = near.dst "
        "join firm on firm.name = job.dst where near.src = p.name and size < 0)",
    ),
    (
        "match { $p: Person $p.age = {age} either { $p knows $x } or { $x knows $p } $x.city = '{city}' } "
        "return { $p.name as p, $x.name as x }",
        "select distinct a, b from (select src a, dst b from near union all select dst, src from near) "
        "join person p on p.name = a join person x on x.name = b where p.age = {age} and x.city = '{city}'",
    ),
    (
        "match { $p: Person $p.city = '{city}' $p knows $x $x knows $y $y knows $p } return { count($p) as n }",
        "select count(*) from person join near a on a.src = name join near b on b.src = a.dst "
        "join near c on c.src = b.dst and c.dst = name where city = '{city}'",
    ),
    (
        "match { $p: Person $p.age = {age} $p <knows> $x } return { $p.name as p, count($x) as n }",
        "select name, count(*) from (select src a, dst b from near union select dst, src from near) "
        "join person on name = a where age = {age} group by 1",
    ),
    (
        "match { $p: Person { name: '{hub}' } $p knows{1,2} $x } return { count($x) as n }",
        "select count(*) from (select dst x from near where src = '{hub}' union select b.dst from near a "
        "join near b on a.dst = b.src where a.src = '{hub}') "
        "where x <> '{hub}' or exists (select 1 from near where src = '{hub}' and dst = src)",
    ),
    (
        "match { $p: Person $p.score > {weight} and $p.born > date('1980-01-01') } "
        "return { $p.city as c, count(distinct $p.nick) as n, collect(distinct $p.age) as l } "
        "having { n > 3 } order { n desc, c } limit 20",
        "select city c, count(distinct nick) n, list_sort(list(distinct age) filter (age is not null)) from person "
        "where score > {weight} and born > date '1980-01-01' group by 1 having n > 3 "
        "order by n desc, c nulls first limit 20",
    ),
    (
        "match { $p: Person $p knows $x } return { $x.name as x, count($p) as n } "
        "order { n desc, x } limit 15 offset {age}",
        "select dst x, count(*) n from near group by 1 order by n desc, x limit 15 offset {age}",
    ),
    (
        "match { $p: Person $p.nick contains '{age}' $p.name ends_with '7' } "
        "return { $p.name as p, upper($p.nick) as u, length($p.nick) as l, substring($p.name, 1, 3) as s }",
        "select name, upper(nick), length(nick), substr(name, 2, 3) from person "
        "where nick like '%{age}%' and name like '%7'",
    ),
    (
        "match { $p: Person $p.age % 7 = {seven} $p.age * 2 + 1 > {age} } "
        "return { count($p) as n, sum($p.age * $p.age) as q }",
        "select count(*), sum(age * age)::bigint from person where age % 7 = {seven} and age * 2 + 1 > {age}",
    ),
    (
        "match { $p: Person $p worksAt $f $q worksAt $f $p != $q $p.age = {age} $q.age = {seven} } "
        "return { count($p) as n }",
        "select count(*) from job a join job b on a.dst = b.dst join person p on p.name = a.src "
        "join person q on q.name = b.src where p.name <> q.name and p.age = {age} and q.age = {seven}",
    ),
    (
        "match { $p: Person $p knows $x $p.age = {age} } return distinct { $x.city as c, $x.age as a }",
        "select distinct b.city, b.age from person p join near on src = p.name join person b on b.name = dst "
        "where p.age = {age}",
    ),
    (
        "match { $a: Person { name: '{hub}' } $b: Person { name: '{person}' } "
        "path $x = shortest $a knows{1,6} $b } return { length($x) as l }",
        "with recursive reach(n, d) as (select dst, 1 from near where src = '{hub}' union select near.dst, d + 1 "
        "from reach join near on near.src = n where d < 3) select min(d) l from reach where n = '{person}' "
        "having min(d) is not null",
    ),
]


@dataclass(frozen=True)
class Both:
    """One graph in two engines."""

    graph: omnigraph.Graph
    sql: duckdb.DuckDBPyConnection

    def change(self, mutation: str, *statements: str) -> None:
        self.graph.mutate(f"query change() {{ {_quoted(mutation)} }}")
        for statement in statements:
            self.sql.execute(statement)


def _quoted(text: str) -> str:
    return text.replace("'", '"')


def _with_nulls(rng: np.random.Generator, values: np.ndarray[Any, Any], share: float = 0.1) -> pa.Array:
    return pa.array(values, mask=rng.random(len(values)) < share)


def _name(number: int) -> str:
    return f"p{number:06d}"


def _tables(rng: np.random.Generator) -> dict[str, pa.Table]:
    src = rng.integers(0, PEOPLE, EDGES)
    from_hub = rng.random(EDGES) < 0.3
    src[from_hub] = rng.integers(0, HUBS, int(from_hub.sum()))
    names = np.array([_name(number) for number in range(PEOPLE)])
    firms = np.array([f"f{number:04d}" for number in range(FIRMS)])
    return {
        "Person": pa.table(
            {
                "name": names,
                "age": _with_nulls(rng, rng.integers(0, 90, PEOPLE).astype("int32")),
                "city": _with_nulls(rng, np.array([f"c{number % 200}" for number in rng.zipf(1.5, PEOPLE)])),
                "score": _with_nulls(rng, np.round(rng.normal(0, 10, PEOPLE), 2)),
                "born": _with_nulls(rng, rng.integers(-20_000, 20_000, PEOPLE).astype("datetime64[D]")),
                "big": _with_nulls(rng, rng.integers(0, 2**63, PEOPLE, dtype="uint64") * 2),
                "nick": _with_nulls(rng, np.array([f"n{number}é" for number in rng.integers(0, 300, PEOPLE)])),
            }
        ),
        "Firm": pa.table({"name": firms, "size": _with_nulls(rng, rng.integers(-(2**40), 2**40, FIRMS))}),
        "Knows": pa.table(
            {
                "from": names[src],
                "to": names[rng.integers(0, PEOPLE, EDGES)],
                "since": _with_nulls(rng, rng.integers(1990, 2025, EDGES).astype("int32")),
                "w": _with_nulls(rng, np.round(rng.random(EDGES), 3)),
            }
        ),
        "WorksAt": pa.table(
            {
                "from": names[rng.integers(0, PEOPLE, JOBS)],
                "to": firms[rng.integers(0, FIRMS, JOBS)],
                "role": _with_nulls(rng, np.array([f"r{number}" for number in rng.integers(0, 5, JOBS)])),
            }
        ),
    }


@pytest.fixture
def both(disk_path: Path) -> Iterator[Both]:
    graph = omnigraph.create(str(disk_path / "g"), schema=SCHEMA)
    sql = duckdb.connect()
    sql.execute("set threads = 1")
    for (kind, table), name in zip(
        _tables(np.random.default_rng(17)).items(), ("person", "firm", "knows", "works"), strict=True
    ):
        graph.load(table, type=kind)
        columns = [{"from": "src", "to": "dst"}.get(column, column) for column in table.column_names]
        sql.register("given", table.rename_columns(columns))
        sql.execute(f"create table {name} as select * from given")
        sql.unregister("given")
    sql.execute(VIEWS)
    yield Both(graph, sql)
    graph.close()


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return tuple(value) if isinstance(value, list) else value


def _bag(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(_comparable, row)) for row in rows), key=repr)


def _filled(text: str, values: dict[str, object]) -> str:
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def _compare(both: Both, graph: omnigraph.Graph, draw: random.Random, moment: str) -> None:
    for _ in range(2):
        values: dict[str, object] = {
            "age": draw.randrange(90),
            "seven": draw.randrange(7),
            "city": f"c{draw.randrange(30)}",
            "year": draw.randrange(1990, 2025),
            "weight": round(draw.random(), 2),
            "big": draw.randrange(2**63),
            "hub": _name(draw.randrange(HUBS)),
            "person": _name(draw.randrange(PEOPLE)),
        }
        for question, statement in QUESTIONS:
            text = f"query q() {{ {_quoted(_filled(question, values))} }}"
            found = [tuple(row.values()) for row in graph.query(text).to_pylist()]
            expected = both.sql.execute(_filled(statement, values)).fetchall()
            if "shortest" in text and found and found[0][0] > 3:
                found = []  # the statement looks no further
            assert _bag(found) == _bag(expected), f"{moment}: {text}"


def _change(both: Both, step: int, draw: random.Random) -> None:
    """One change of every kind, in both engines."""
    new, friend, gone = f"x{step}", _name(draw.randrange(HUBS)), _name(draw.randrange(HUBS, PEOPLE))
    both.change(
        f"insert Person {{ name: '{new}', age: 33, city: 'c1', score: 1.5 }} "
        f"insert Knows {{ from: '{new}', to: '{friend}', since: 2001, w: 0.5 }} "
        f"insert Knows {{ from: '{friend}', to: '{new}', since: 2011, w: 0.9 }}",
        f"insert into person (name, age, city, score) values ('{new}', 33, 'c1', 1.5)",
        f"insert into knows values ('{new}', '{friend}', 2001, 0.5), ('{friend}', '{new}', 2011, 0.9)",
    )
    both.change(
        f"update Person set {{ age: age + 1, city: 'c2' }} where city = 'c{step + 3}'",
        f"update person set age = age + 1, city = 'c2' where city = 'c{step + 3}'",
    )
    both.change(
        f"delete Person where name = '{gone}'",
        f"delete from person where name = '{gone}'",
        f"delete from knows where src = '{gone}' or dst = '{gone}'",
        f"delete from works where src = '{gone}'",
    )
    both.change(
        f"delete Knows where since = {1990 + step} and w < 0.5",
        f"delete from knows where since = {1990 + step} and w < 0.5",
    )
    both.change(
        f"update Knows set {{ since: since + 1 }} where from = '{friend}'",
        f"update knows set since = since + 1 where src = '{friend}'",
    )


@pytest.mark.long
def test_another_engine_gives_the_same_answers_before_and_after_every_kind_of_change(both: Both) -> None:
    draw = random.Random(5)
    _compare(both, both.graph, draw, "loaded")
    _compare(both, both.graph, draw, "warm")
    for step in range(ROUNDS):
        _change(both, step, draw)
        _compare(both, both.graph, draw, f"after change {step}")
    both.graph.maintenance.optimize()
    _compare(both, both.graph, draw, "optimized")
    with omnigraph.connect(both.graph.uri) as fresh:
        _compare(both, fresh, draw, "opened anew")
