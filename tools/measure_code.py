"""Tell how large the code is and what holds it together, as a table in Markdown: one column for each tree.

python -m tools.measure_code src/omnigraph [the same folder of another checkout ...]

Cycles, imports inside functions and foreign internals are found by the same code that the tests of the architecture
use, so the table and the tests cannot disagree.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.architecture.foreign import INTERNALS, private_uses
from tests.architecture.modules import Module, modules
from tests.architecture.test_import_cycles import cycles, import_graph
from tests.architecture.test_late_imports import late_imports

HOMES_OF_EXTRAS = ("omnigraph.pipeline", "omnigraph.client")
"""Packages of ours that cannot be used without an extra."""


def functions(module: Module) -> Iterator[tuple[int, str]]:
    """The length and the name of every function of a module, methods and inner functions included."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{module.name}.{node.name}"


def facts(package: Path) -> dict[str, str]:
    """The rows of the table for one tree."""
    found = modules(package.resolve())
    files = [(len(module.path.read_text(encoding="utf-8").splitlines()), module.name) for module in found]
    lengths = [each for module in found for each in functions(module)]
    late = [(module.name, what) for module in found for _, what in set(late_imports(module))]
    inside = [what for name, what in late if not name.startswith("cli")]
    of_extras = [what for what in inside if what.startswith(HOMES_OF_EXTRAS)]
    in_cycles = sorted(name for group in cycles(import_graph(found)) for name in group)
    reaching = {module.name: len(private_uses(module)) for module in found if private_uses(module)}
    strangers = {name: count for name, count in reaching.items() if not name.startswith(INTERNALS)}
    return {
        "files": f"{len(files)}",
        "lines": f"{sum(size for size, _ in files):,}",
        "median file": f"{statistics.median(size for size, _ in files):g}",
        "longest file": "{} ({})".format(*max(files)),
        "median function": f"{statistics.median(size for size, _ in lengths):g}",
        "longest function": "{} ({})".format(*max(lengths)),
        "modules in import cycles, imports of all kinds": f"{len(in_cycles)} {', '.join(in_cycles)}".strip(),
        "imports inside functions, extras apart": f"{len(late)}",
        "of these outside the command line": f"{len(inside)}",
        "of those the homes of Spark and of the HTTP client": f"{len(of_extras)}",
        "uses of foreign internals in their one home": f"{sum(reaching.values()) - sum(strangers.values())}",
        "uses of foreign internals elsewhere": ", ".join(f"{name} {count}" for name, count in strangers.items()) or "0",
    }


def main(packages: Sequence[str]) -> None:
    """Print the table."""
    columns = [facts(Path(package)) for package in packages]
    sys.stdout.write(f"| | {' | '.join(packages)} |\n|---|{'---|' * len(packages)}\n")
    for name in columns[0]:
        sys.stdout.write(f"| {name} | {' | '.join(column[name] for column in columns)} |\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["src/omnigraph"])
