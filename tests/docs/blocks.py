"""Fenced blocks of the documentation, and a place to run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED_AS = re.compile(r"as `([\w.]+)`:\s*\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block; `file` is the name the sentence above it gives, as in "save it as `x.pg`:"."""

    language: str
    text: str
    file: str | None


def blocks(page: str, *, after: str = "") -> list[Block]:
    """The blocks of a page, from the heading `after` on."""
    text = (ROOT / page).read_text(encoding="utf-8")
    start = text.index(after)
    found = []
    for match in _FENCE.finditer(text, start):
        named = _SAVED_AS.search(text[: match.start()])
        found.append(Block(match.group(1), match.group(2), named.group(1) if named else None))
    return found


def run(block: Block, folder: Path) -> str:
    """Do what the block says, in a folder, and return what it printed."""
    if block.file:
        (folder / block.file).write_text(block.text, encoding="utf-8")
        return ""
    if block.language == "python":
        return _call([sys.executable, "-c", block.text], folder)
    if block.language == "sh":
        lines = [line for line in block.text.splitlines() if line.startswith("omnigraph ")]
        return "".join(_call(["sh", "-c", line], folder) for line in lines)
    return ""


def _call(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMNIGRAPH_HOME": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout
