"""Values that hardly any argument is meant to have."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import io
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa


class Colour(enum.Enum):
    """Something with a name and a value."""

    RED = 1


class BytesPath:
    """A path that is no text."""

    def __fspath__(self) -> bytes:
        return b"x"


class NumberPath:
    """A path that is none."""

    def __fspath__(self) -> Any:
        return 5


class Text(str):
    """A text of another class."""


def _nested() -> Any:
    value: Any = []
    for _ in range(2_000):
        value = [value]
    return value


def _few() -> Iterator[int]:
    number = 0
    while number < 3:
        yield number
        number += 1


def junk(sandbox: Path) -> list[Any]:
    """Fresh ones each time, because some are used up.

    Whoever runs the tests may be allowed everything, so no path here leads out of the sandbox: devices are reached
    through links that lie in it.
    """
    here = str(sandbox)
    null, stdin = f"{here}/null", f"{here}/stdin"
    for link, device in ((null, "/dev/null"), (stdin, "/dev/stdin")):
        if not os.path.islink(link):
            os.symlink(device, link)
    numbers = [True, False, 0, -1, 1, 7, 2**31, 2**63, 2**64, 2**70, -(2**70), 10**400, 1.5, math.nan, math.inf, 1j]
    texts = ["", " ", "\n", "\0", "a\0b", "\ud800", "nonsense", "main", "-1", "9" * 30, "٣", "x" * 5_000, Text("main")]
    names = [".", "a/../b", null, stdin, f"{here}/nowhere/x", "~", f"file://{null}", "s3://", "x://y", "memory://"]
    files = ["x.gq", "x.pg", "\0.gq", Path(here, "nowhere"), Path(stdin), sandbox, BytesPath(), NumberPath()]
    odd = [PurePosixPath("x\0y"), b"", b"x", bytearray(b"x"), memoryview(b"x"), io.BytesIO(b"{"), io]
    lists = [[], [1], [None], ["x"], [[]], ["a", 1], (), ("x",), set(), {"x"}, range(3), _nested(), _few()]
    maps = [{}, {"x": 1}, {1: 2}, {"x": None}, {"x": {"y": 1}}, {"Person": {"name": 1}}, {None: None}, {"Person": "x"}]
    moments = [dt.datetime(2020, 1, 1), dt.datetime.now(dt.UTC), dt.date(2020, 1, 1), dt.time(1), dt.timedelta(1)]
    moments += [pd.NaT, pd.NA, dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14)))]
    spans = [dt.timedelta.max, dt.timedelta.min, dt.timedelta(0)]
    others = [decimal.Decimal(1), np.int64(1), np.float32(1), np.array([1]), np.array("x"), np.str_("main"), Colour.RED]
    arrow = [pa.table({"x": [1]}), pa.array([1]), pa.scalar(1), pa.schema([])]
    things = [None, object(), object, len, print, Ellipsis, NotImplemented, ValueError("x"), junk]
    kinds = [numbers, texts, names, files, odd, lists, maps, moments, spans, others, arrow, things]
    return [value for kind in kinds for value in kind]  # type: ignore[attr-defined]
