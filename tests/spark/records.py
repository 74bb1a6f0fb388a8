"""Load records and what became of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph.graph import Graph


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def city(code: int, **data: Any) -> dict[str, Any]:
    return {"type": "City", "data": {"code": code, **data}}


def knows(source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def lives_in(source: str, target: int, **data: Any) -> dict[str, Any]:
    return {"edge": "LivesIn", "from": source, "to": str(target), "data": data}


def write_lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records))
    return path


def rows(graph: Graph, table_key: str) -> list[dict[str, Any]]:
    """The published rows of a table, by id."""
    return sorted(graph.snapshot().open(table_key).scan().to_pylist(), key=lambda row: str(row["id"]))
