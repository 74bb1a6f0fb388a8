"""The stored queries of a graph: a folder of `.gq` files, checked against the schema when the server starts.

A query is known by the name it declares, once over all files. It is checked again by every run, because the schema may
change while the server serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from omnigraph.catalog.model import Catalog
from omnigraph.errors import GraphError, InputError
from omnigraph.language import parse_query_file
from omnigraph.plan import compile_file
from omnigraph.plan.contract import parameters_json
from omnigraph.plan.statements import WritePlan

SUFFIX = ".gq"


class StoredQuery(Struct, frozen=True):
    """One query with the whole file that declares it."""

    name: str
    source: str
    is_mutation: bool
    params: tuple[Mapping[str, Any], ...] = ()
    description: str | None = None
    instruction: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The `QueryCatalogEntry` of the query."""
        return {
            "name": self.name,
            "tool_name": self.name,
            **({"description": self.description} if self.description is not None else {}),
            **({"instruction": self.instruction} if self.instruction is not None else {}),
            "mutation": self.is_mutation,
            "params": [dict(param) for param in self.params],
        }


class StoredQueries(Struct, frozen=True):
    """Queries by name."""

    by_name: Mapping[str, StoredQuery] = field(default_factory=dict)

    def get(self, name: str) -> StoredQuery | None:
        """The query of this name."""
        return self.by_name.get(name)

    def listed(self) -> list[StoredQuery]:
        """All of them, by name."""
        return [self.by_name[name] for name in sorted(self.by_name)]


def read_queries(folder: str | Path, catalog: Catalog) -> StoredQueries:
    """Read and check every query below a folder.

    Raises:
        InputError: a file cannot be read or parsed, two queries share a name, or one does not fit the schema; all
            problems are named.
    """
    root = Path(folder)
    try:
        files = sorted(root.rglob(f"*{SUFFIX}")) if root.is_dir() else None
    except (OSError, ValueError) as exc:
        raise InputError(f"the folder of stored queries '{folder}' cannot be read: {exc}") from exc
    if files is None:
        raise InputError(f"the folder of stored queries '{folder}' does not exist")
    found: dict[str, StoredQuery] = {}
    origin: dict[str, Path] = {}
    problems: list[str] = []
    for path in files:
        try:
            queries = _read_file(path, catalog, problems)
        except (GraphError, OSError, UnicodeDecodeError) as exc:
            problems.append(f"{path}: {exc}")
            continue
        for query in queries:
            if query.name in found:
                problems.append(f"{path}: the query '{query.name}' is declared in '{origin[query.name]}' as well")
            found.setdefault(query.name, query)
            origin.setdefault(query.name, path)
    if problems:
        raise InputError("stored queries are not in order: " + "; ".join(problems))
    return StoredQueries(found)


def _read_file(path: Path, catalog: Catalog, problems: list[str]) -> list[StoredQuery]:
    source = path.read_text(encoding="utf-8")
    plans = compile_file(catalog, source)
    found = []
    for query in parse_query_file(source).queries:
        plan = plans[query.name]
        if isinstance(plan, GraphError):
            problems.append(f"{path}: query '{query.name}': {plan}")
            continue
        found.append(
            StoredQuery(
                query.name,
                source,
                isinstance(plan, WritePlan),
                tuple(parameters_json(plan)),
                query.description,
                query.instruction,
            )
        )
    return found
