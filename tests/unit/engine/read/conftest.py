"""A small store of real tables for the reading tests."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.catalog.arrow import table_schema
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.read import execute
from omnigraph.engine.read.reader import ReadState
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.tables import TableStore
from omnigraph.plan import compile_query
from omnigraph.plan.parameters import bind

SCHEMA = """
node Person { key: String @key  age: I32?  bio: String?  taste: Vector(2)? }
edge Knows: Person -> Person { since: I32? }
"""


@dataclass
class Graph:
    """Tables that stay as they were when they were opened, like a snapshot."""

    store: TableStore
    catalog: Catalog
    handles: dict[str, TableHandle] = field(default_factory=dict)

    @cached_property
    def state(self) -> ReadState:
        """What queries have derived from these tables."""
        return ReadState(self)

    def open(self, table_key: str) -> TableHandle:
        if table_key not in self.handles:
            self.handles[table_key] = self.store.open(str(table_key).replace(":", "/"))
        return self.handles[table_key]

    def now(self) -> "Graph":
        """The tables as they are now."""
        return Graph(self.store, self.catalog)

    def uri(self, table_key: str) -> str:
        return self.store.location(table_key.replace(":", "/"))

    def rows(self, table_key: str, rows: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=table_schema(self.catalog.tables[table_key]))

    def run(self, body: str, params: dict[str, Any] | None = None, declared: str = "", **more: Any) -> Any:
        plan = compile_query(self.catalog, f"query q({declared}) {{ {body} }}", None)
        return execute(plan, self.state, bind(plan.parameters, params), **more)

    def ask(self, body: str, params: dict[str, Any] | None = None, declared: str = "", **more: Any) -> list[Any]:
        """The rows of a query as tuples; one column gives plain values."""
        rows = [tuple(row.values()) for row in self.run(body, params, declared, **more).to_table().to_pylist()]
        return [row[0] for row in rows] if rows and len(rows[0]) == 1 else rows


@pytest.fixture
def graph(tmp_path) -> Graph:
    """Ten people, each knowing the next two."""
    made = Graph(TableStore(str(tmp_path)), compile_schema(SCHEMA))
    people = [
        {"id": f"p{n}", "key": f"p{n}", "age": n * 10, "bio": f"queen number {n}", "taste": [n, 1.0]} for n in range(10)
    ]
    knows = [
        {"id": f"e{n}-{step}", "src": f"p{n}", "dst": f"p{(n + step) % 10}", "since": n}
        for n in range(10)
        for step in (1, 2)
    ]
    for key, rows in (("node:Person", people), ("edge:Knows", knows)):
        table = made.rows(key, rows)
        made.store.create(key.replace(":", "/"), table.schema, table)
    return made
