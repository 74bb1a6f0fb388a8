"""Parameters as they travel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from omnigraph.errors import ParameterError


def sendable(params: Mapping[str, Any] | None) -> Any:
    """Parameters as JSON has them; times become the texts that parameters take.

    Raises:
        ParameterError: a value has no JSON form.
    """
    if params is None:
        return None
    try:
        return json.loads(json.dumps(params, default=_spelled))
    except (TypeError, ValueError, RecursionError) as exc:
        if isinstance(exc, ParameterError):
            raise
        raise ParameterError(f"the parameters cannot be sent as JSON: {exc}") from exc


def _spelled(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    plain = getattr(value, "tolist", None)
    if plain is not None:
        return plain()
    raise ParameterError(f"a value of type {type(value).__name__} cannot be a parameter")
