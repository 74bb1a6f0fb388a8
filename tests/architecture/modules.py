"""The source of the package as syntax trees, shared by the tests of its architecture."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "omnigraph"


@dataclass(frozen=True)
class Module:
    """One source file."""

    path: Path
    package: Path = SOURCE

    @property
    def name(self) -> str:
        """Its dotted name without the package: `engine.storage.tables`."""
        parts = self.path.relative_to(self.package).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Everything in the tree; kept, because many rules look through it."""
        return tuple(ast.walk(self.tree))

    def imports(self) -> Iterator[str]:
        """The top-level package of every import, wherever in the file it stands."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                yield node.module.partition(".")[0]

    def within(self, home: str) -> bool:
        return self.name == home or self.name.startswith(f"{home}.")


@cache
def modules(package: Path = SOURCE) -> list[Module]:
    return [Module(path, package) for path in sorted(package.rglob("*.py"))]
