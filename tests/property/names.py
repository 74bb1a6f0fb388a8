"""Names a user may give a property although our tables, readers and jobs, or those of Lance and Spark, use them."""

from __future__ import annotations

import re
from pathlib import Path

import omnigraph
from omnigraph.catalog.resolve import RESERVED

_IDENTIFIER = re.compile(r"[a-z_][A-Za-z0-9_]*")
_WORDS = re.compile(r"\"([a-z_][A-Za-z0-9_]*)\"")
CASES = ["iD", "sRC", "dST", "ab", "aB", "a_B", "valuE", "_rowId", "_RowAddr"]
WORDS = ["select", "where", "order", "group", "limit", "null", "in", "is", "like", "not", "and", "or", "as", "distinct"]
WORDS += ["_distance", "_score", "_frag_id", "_fragid", "_seq", "_", "__", "__x", "_tombstone", "item", "element"]
WORDS += ["src", "dst", "from", "to", "type", "data", "edge", "node", "key", "value", "tags", "count", "index"]
WORDS += ["first", "last", "times", "edges", "value_0", "position"]


_FILES = (
    "catalog/arrow.py",
    *(f"engine/write/{name}.py" for name in ("rows", "selection", "committed")),
    "engine/values/entities.py",
    *(f"engine/rules/{name}.py" for name in ("validate", "arrow", "statement")),
    *(f"engine/ingest/{name}.py" for name in ("inputs", "slices", "quick", "sources", "stage", "staged")),
    *(f"engine/storage/{name}.py" for name in ("handle", "staged", "fragments", "evolve")),
    "engine/storage/lance_internals/row_versions.py",
    *(f"engine/read/columns/{name}.py" for name in ("edges", "nodes", "tables")),
    "engine/read/operators/project.py",
    *(f"pipeline/{name}.py" for name in ("check", "frames", "merge", "sink", "export", "analytics", "datasource")),
)


def _used_in_code() -> set[str]:
    """Every text that could be the name of a column, in the code that makes, joins and renames columns."""
    root = Path(omnigraph.__file__).parent
    return {name for file in _FILES for name in _WORDS.findall((root / file).read_text(encoding="utf-8"))}


def all_names() -> list[str]:
    """Every name in question, reserved ones included, in a fixed order."""
    from omnigraph.engine.values import entities
    from omnigraph.pipeline import frames

    inside = {entities.RECORD, entities.LINE, entities.SOURCE, frames.ROW_ADDRESS, frames.ROW_ID, frames.POSITION}
    everything = _used_in_code() | inside | set(CASES) | set(WORDS) | set(RESERVED["edge"])
    everything |= {name.strip("@_") for name in everything} | {f"__{name.strip('@_')}" for name in inside}
    return sorted(name for name in everything if _IDENTIFIER.fullmatch(name))


def free_names(kind: str) -> list[str]:
    """The names a property of a node or an edge may have."""
    return [name for name in all_names() if name not in RESERVED[kind]]
