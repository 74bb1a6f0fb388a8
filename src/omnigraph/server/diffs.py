"""The parameters that narrow a comparison of two states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from omnigraph.server.call import Call
from omnigraph.server.describe import in_query

FILTERS = (
    in_query("kind", "Only nodes or edges.", many=True, choices=("node", "edge")),
    in_query("type", "Only these types.", many=True),
    in_query("op", "Only these changes.", many=True, choices=("insert", "update", "delete")),
    in_query("values", "Which values are told.", choices=("none", "changed", "full")),
)

PAGING = (
    {**in_query("limit", "At most so many changes."), "schema": {"type": "integer", "minimum": 1}},
    {**in_query("max_bytes", "At most about so many bytes."), "schema": {"type": "integer", "minimum": 1}},
    in_query("page_token", "Where the page begins, as the one before it said."),
)


class Filters(Struct, frozen=True):
    """Which changes are wanted, and with which values."""

    NAMES: ClassVar[tuple[str, ...]] = ("kind", "type", "op", "values")

    kinds: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    values: str = "changed"

    @classmethod
    def of(cls, call: Call, parameters: Mapping[str, list[str]], *, values: str = "changed") -> Filters:
        """The filters of a request; what they mean is checked by the engine. `values` is what is told by default."""
        return cls(
            tuple(parameters.get("kind", ())),
            tuple(parameters.get("type", ())),
            tuple(parameters.get("op", ())),
            call.one_parameter(parameters, "values") or values,
        )

    def arguments(self) -> dict[str, Any]:
        """The arguments of a verb that compares."""
        return {"kinds": self.kinds, "types": self.types, "ops": self.ops, "values": self.values}
