"""A page read as one session: its Python blocks share their names, its commands run in the same folder."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.docs.blocks import BIN, Block, run

SERVED_AT = "http://127.0.0.1:8080"
"""Where the pages say that a server listens; a session lets it take a free port instead."""


class Session:
    """What a reader does who follows a page from the beginning; leave it to end the server that was started."""

    def __init__(self, folder: Path, **names: Any) -> None:
        self._folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__", **names}
        self._server: subprocess.Popen[str] | None = None
        self._address = SERVED_AT

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for graph in [found for name, found in self.names.items() if name in ("graph", "served")]:
            graph.close()
        if self._server is not None:
            self._server.terminate()
            self._server.communicate(timeout=60)

    def follow(self, page: list[Block]) -> Iterator[tuple[Block, str, str]]:
        """Each block that printed something or should have, with what it printed and what the page says it prints."""
        for block, after in zip(page, [*page[1:], Block("", "", None)], strict=True):
            printed = self.do(block)
            told = after.text if after.language == "text" and after.file is None else ""
            if printed or told:
                yield block, printed, told

    def do(self, block: Block) -> str:
        """Do what a block says, and return what it printed."""
        if block.file is None and block.language == "python":
            printed = io.StringIO()
            with contextlib.chdir(self._folder), contextlib.redirect_stdout(printed):
                exec(compile(block.text.replace(SERVED_AT, self._address), "<page>", "exec"), self.names)
            return printed.getvalue()
        if block.file is None and block.text.startswith("omnigraph serve "):
            self._serve(block.text.split())
            return ""
        return run(block, self._folder)

    def _serve(self, command: list[str]) -> None:
        self._server = subprocess.Popen(
            [str(BIN / command[0]), *command[1:], "--bind", "127.0.0.1:0"],
            cwd=self._folder,
            env={**os.environ, "OMNIGRAPH_HOME": str(self._folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._server.stdout is not None
        for line in self._server.stdout:
            if line.startswith("OMNIGRAPH_LISTEN_ADDR="):
                self._address = f"http://{line.partition('=')[2].strip()}"
                return
        raise AssertionError("the server ended before it listened")


def fits(printed: str, told: str) -> bool:
    """True when the page says what was printed; `…` on the page stands for whatever differs from run to run."""
    pattern = ".*?".join(re.escape(part) for part in told.split("…"))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None
