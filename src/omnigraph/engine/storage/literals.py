"""Values in the text of a filter, spelled so that Lance reads back exactly these.

Filters are text because the other way to hand them over knows no unsigned integers.
"""

from __future__ import annotations

_I64_MIN = -(1 << 63)


def literal(value: str | int) -> str:
    """A text or an integer as the text of a filter.

    The smallest integer is read as a sign and a number, and the number alone is too large for an integer.
    """
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"CAST('{value}' AS BIGINT)" if value == _I64_MIN else str(value)
