"""Parameters as they travel."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from omnigraph.errors import ParameterError, ParseError
from omnigraph.ids import storable, text_fault
from omnigraph.language.query_parser import parse_query_file

Bytes = bytes | bytearray | memoryview


def sendable(params: Mapping[str, Any] | None, text: str | None = None) -> Any:
    """Parameters as JSON has them; times and bytes become the texts that parameters take.

    A String does not take bytes, although it would take the text they travel as.

    Raises:
        ParameterError: a value has no JSON form.
    """
    if params is None:
        return None
    for name, value in params.items():
        if isinstance(value, Bytes) and text is not None and _is_string(text, str(name)):
            raise ParameterError(f"param '{name}': expected string, got {type(value).__name__}")
    try:
        sent = json.loads(json.dumps(params, default=_spelled))
    except (TypeError, ValueError, RecursionError) as exc:
        if isinstance(exc, ParameterError):
            raise
        raise ParameterError(f"the parameters cannot be sent as JSON: {exc}") from exc
    for name, value in sent.items():
        fault = text_fault(name) or _fault(value)
        if fault is not None:
            raise ParameterError(f"param '{storable(name)}': {fault}")
    return sent


def _fault(value: Any) -> str | None:
    """Why a value cannot travel, in the words of the check that it does not reach; None when it can."""
    if isinstance(value, str):
        return text_fault(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"value {value} is not a finite number"
    if isinstance(value, list | dict):
        inside = value if isinstance(value, list) else (*value, *value.values())
        return next((fault for each in inside if (fault := _fault(each)) is not None), None)
    return None


def _is_string(text: str, name: str) -> bool:
    """Whether a query declares this parameter as a String; the server says what is wrong with a text that is none."""
    try:
        queries = parse_query_file(text).queries
    except ParseError:
        return False
    return any(each.name == name and each.type.scalar == "String" for query in queries for each in query.parameters)


def _spelled(value: Any) -> Any:
    if isinstance(value, Bytes):
        return f"base64:{base64.b64encode(value).decode()}"
    if isinstance(value, datetime | date):
        return value.isoformat()
    plain = getattr(value, "tolist", None)
    if plain is not None:
        return plain()
    raise ParameterError(f"a value of type {type(value).__name__} cannot be a parameter")
