"""Where the rows of a variable are in its table."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.kernels import Ints


def positions(context: Context, variable: str, values: Ints) -> npt.NDArray[Any]:
    """The table positions of a variable's integers: codes of nodes are looked up, edges are positions already."""
    begun = context.begun.get(variable)
    if begun is not None and begun[0] is values:
        return begun[1]
    if context.has_path(variable):
        return values
    view = context.view(variable)
    if not isinstance(view, NodeView):
        return values
    if variable in context.nullable:
        present = values >= 0
        return np.where(present, view.position_of(np.where(present, values, 0)), -1) if present.any() else values
    return view.position_of(values)
