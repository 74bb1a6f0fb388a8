"""Load pyarrow's datasets, which Lance builds on, without loading pandas.

While `pyarrow.dataset` is imported it converts one value, `True`, with `pyarrow.lib.scalar`; and the first conversion
of a process imports pandas, where it is installed, to see whether the value is of pandas. That is a quarter of what the
first query of a process waits for. So that one value is handed over ready made. Every other conversion, in this thread
or another, is pyarrow's own, and pyarrow has not looked for pandas yet: a program that uses both finds them as if this
package were not there.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
from pyarrow import lib


def load_datasets() -> None:
    """Import `pyarrow.dataset`; without effect when that, or pandas, is loaded already."""
    if "pyarrow.dataset" in sys.modules or "pandas" in sys.modules:
        return
    true = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\x01")])[0]
    convert = lib.scalar

    def scalar(value: Any, *args: Any, **named: Any) -> Any:
        return true if value is True and not args and not named else convert(value, *args, **named)

    lib.scalar = scalar
    try:
        import pyarrow.dataset  # noqa: F401
    finally:
        lib.scalar = convert
