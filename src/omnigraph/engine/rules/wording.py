"""Where a violation stands, in words; the sentences about rules are those of `statement`."""

from __future__ import annotations


def place(record: int, line: int) -> str:
    """Where a record stands; line 0 means that its source has no lines."""
    return f"record {record} (line {line})" if line else f"record {record}"
