"""The queries of the guides with what they say they give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.docs.blocks import blocks

_NAME = re.compile(r"^query (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One query of a guide: its name, the text of its block, and the comments below it."""

    name: str
    text: str
    parameters: dict[str, Any]
    gives: list[Any] | None

    @property
    def is_ordered(self) -> bool:
        """Whether the rows come in the order that is shown."""
        own = self.text[self.text.index(f"query {self.name}(") :]
        return "order {" in re.split(r"^query ", own[6:], flags=re.MULTILINE)[0]


def examples(page: str) -> Iterator[Example]:
    """Every query of the `gq` blocks of a page."""
    for block in blocks(page):
        if block.language != "gq":
            continue
        starts = [match.start() for match in _NAME.finditer(block.text)]
        for start, end in zip(starts, [*starts[1:], len(block.text)], strict=True):
            own = block.text[start:end]
            comments = [line.removeprefix("// ") for line in own.splitlines() if line.startswith("// ")]
            given = [line.removeprefix("with ") for line in comments if line.startswith("with ")]
            shown = [line.removeprefix("gives ") for line in comments if line.startswith("gives ")]
            yield Example(
                _NAME.findall(own)[0],
                block.text,
                json.loads(given[0]) if given else {},
                json.loads(f"[{shown[0]}]") if shown else None,
            )
