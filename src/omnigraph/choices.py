"""The strings that some arguments accept, as types: editors complete them and type checkers refuse others.

Another string is also refused at run time, with a message that lists the accepted ones.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

LoadMode: TypeAlias = Literal["append", "merge", "update", "overwrite"]
"""What a load does with existing entities: refuse them, replace them, change the given properties of them, or make the
types hold exactly the source."""

Engine: TypeAlias = Literal["auto", "local", "spark"]
"""Where a load or an export runs: in this process, on Spark, or whichever suits the size."""

ExportFormat: TypeAlias = Literal["jsonl", "parquet"]
"""What an export writes."""

Durability: TypeAlias = Literal["fast", "full"]
"""What an acknowledged write survives: a killed process, or a power cut as well."""

MergeStrategy: TypeAlias = Literal["ours", "theirs", "fields"]
"""Which side counts where both changed one entity: the target, the source, or both for different properties."""

ToldValues: TypeAlias = Literal["none", "changed", "full"]
"""How much a difference contains of each entity: nothing, what changed, or all properties."""
