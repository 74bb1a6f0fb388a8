"""What two branches have done that does not fit together.

A conflict of rows names one entity that both sides have changed differently. A conflict of rules names what each side
did rightly and both together would break.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from omnigraph.engine.changes.images import Image
from omnigraph.engine.rules.validate import Finding, Rule
from omnigraph.errors import InputError
from omnigraph.ids import TableKey

_ENDS = {"src": "from", "dst": "to"}


class ConflictKind(StrEnum):
    """What does not fit together."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"

    @property
    def is_of_rows(self) -> bool:
        """True when both sides changed one entity; the others are between entities."""
        return self in (self.DIVERGENT_INSERT, self.DIVERGENT_UPDATE, self.DELETE_VS_UPDATE)


_OF_RULES = {
    Rule.VALUE: ConflictKind.VALUE_CONSTRAINT_VIOLATION,
    Rule.UNIQUE: ConflictKind.UNIQUE_VIOLATION,
    Rule.REFERENCE: ConflictKind.ORPHAN_EDGE,
    Rule.CARDINALITY: ConflictKind.CARDINALITY_VIOLATION,
}

Order = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class MergeConflict:
    """One thing that a merge cannot decide by itself."""

    table_key: TableKey
    row_id: str | None
    kind: ConflictKind
    message: str
    columns: tuple[str, ...] = ()
    """The columns that differ between the two sides; of a broken rule the columns it is about."""
    base: Image | None = None
    ours: Image | None = None
    theirs: Image | None = None
    related: str | None = None
    """The other party of a broken rule."""
    fields_disjoint: bool | None = None
    """Whether the two sides have changed different properties, so that the strategy `fields` would take both."""

    @property
    def order(self) -> Order:
        """What conflicts are listed by, and what tells them apart: two entities may break several rules together."""
        about = "" if self.kind.is_of_rows else ",".join(self.columns)
        return (self.table_key, self.row_id or "", str(self.kind), self.related or "", about)

    @property
    def token(self) -> str:
        """Where a listing goes on after this conflict."""
        return base64.urlsafe_b64encode(json.dumps(self.order).encode()).decode()

    @cached_property
    def fingerprint(self) -> str:
        """Changes when what is in conflict changes; of a broken rule that is what its message tells."""
        found: list[Any] = [self.table_key, self.row_id, self.kind, self.related]
        if self.kind.is_of_rows:
            images = (self.base, self.ours, self.theirs)
            found.append([None if image is None else _one_zero(image.to_json()) for image in images])
        else:
            found.append([self.message, self.columns])
        text = json.dumps(found, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The conflict as the wire has it."""
        kind, _, name = self.table_key.partition(":")
        found: dict[str, Any] = {
            "table_key": self.table_key,
            "row_id": self.row_id,
            "kind": str(self.kind),
            "message": self.message,
            "entity_kind": kind,
            "type_name": name,
            "entity_id": self.row_id,
            "fingerprint": self.fingerprint,
            "token": self.token,
        }
        if self.columns:
            found["columns"] = list(self.columns)
        if self.fields_disjoint is not None:
            found["fields_disjoint"] = self.fields_disjoint
        if self.related is not None:
            found["related"] = self.related
        if self.kind.is_of_rows:
            for side, image in (("base", self.base), ("ours", self.ours), ("theirs", self.theirs)):
                found[side] = None if image is None else image.to_json()
        return found


def _one_zero(value: Any) -> Any:
    """An image with every zero positive: both zeros are one value, and a text would tell them apart."""
    if isinstance(value, dict):
        return {name: _one_zero(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_one_zero(each) for each in value]
    return value + 0.0 if isinstance(value, float) else value


def parse_token(token: str) -> Order:
    """The conflict a listing goes on after.

    Raises:
        InputError: it is no token of a conflict.
    """
    try:
        table, row, kind, related, about = json.loads(base64.urlsafe_b64decode(token.encode()))
        return str(table), str(row), str(kind), str(related), str(about)
    except (ValueError, TypeError):
        raise InputError(f"'{token}' is not the token of a conflict: take it from a conflict that was listed") from None


def of_rule(finding: Finding, ends: tuple[str, str] | None = None) -> MergeConflict:
    """A rule that both sides together would break; `ends` are those of an edge that it is about."""
    kind = _OF_RULES[finding.rule]
    names = _ENDS if finding.table_key.startswith("edge:") else {}
    columns = tuple(names.get(name, name) for name in finding.columns)
    message = finding.message if ends is None else f"{finding.message}; the edge goes from '{ends[0]}' to '{ends[1]}'"
    return MergeConflict(finding.table_key, finding.row_id, kind, message, columns, related=finding.related)


def counted(conflicts: Iterable[MergeConflict]) -> dict[str, int]:
    """How many conflicts there are of each kind."""
    found: dict[str, int] = {}
    for conflict in conflicts:
        found[str(conflict.kind)] = found.get(str(conflict.kind), 0) + 1
    return dict(sorted(found.items()))
