"""Compute the parsing tables that the package carries beside its grammars; run it after changing a grammar.

python tools/freeze_grammars.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import omnigraph.language
from omnigraph.language.tables import SUFFIX, freeze


def main() -> None:
    """Write the tables of every grammar of the package."""
    for grammar in sorted(Path(omnigraph.language.__file__).parent.glob("*.lark")):
        frozen = freeze(grammar.read_text(encoding="utf-8"))
        grammar.with_suffix(SUFFIX).write_bytes(frozen)
        sys.stdout.write(f"{grammar.with_suffix(SUFFIX).name}: {len(frozen):,} bytes\n")


if __name__ == "__main__":
    main()
