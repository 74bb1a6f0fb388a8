"""Lines of an answer that is still being read."""

from __future__ import annotations

from collections.abc import Iterator


def whole_lines(pieces: Iterator[bytes]) -> Iterator[str]:
    """Lines of a stream; only a newline ends one, whatever else Unicode counts as a line break."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode()
    if rest:
        yield rest.decode()
