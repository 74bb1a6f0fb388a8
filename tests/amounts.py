"""How much of a loop the suite runs: a share of its cases always, and the rest where there is more time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

EXHAUSTIVE = pytest.mark.exhaustive
EXHAUSTIVE_FIRST = pytest.mark.exhaustive("first")
"""For what takes a minute or so: others can run beside it only if it does not come last."""


def always_first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters of which the suite always has the first ones; the others, as good as these, CI runs in addition.

    A tuple is the values of several parameters.
    """
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=() if number < count else EXHAUSTIVE) for number, case in enumerate(values)]
