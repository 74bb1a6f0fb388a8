"""The words that arguments choose among, as types: editors complete them and type checkers refuse the others.

A word that is none of them is refused at run time as well, with the words that are.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

LoadMode: TypeAlias = Literal["append", "merge", "update", "overwrite"]
"""What becomes of entities that are there: ids must be new, entities are replaced, they must be there and get what is
given, or the types hold only the source."""

Engine: TypeAlias = Literal["auto", "local", "spark"]
"""What does the work of a load or an export: this process, Spark, or whichever suits the size."""

ExportFormat: TypeAlias = Literal["jsonl", "parquet"]
"""What an export writes."""

Durability: TypeAlias = Literal["fast", "full"]
"""What an acknowledged write survives: a killed process, or a power cut as well."""

MergeStrategy: TypeAlias = Literal["ours", "theirs", "fields"]
"""What counts where both sides changed one entity: the target, the source, or both where the properties differ."""

ToldValues: TypeAlias = Literal["none", "changed", "full"]
"""How much a difference tells of each entity."""
