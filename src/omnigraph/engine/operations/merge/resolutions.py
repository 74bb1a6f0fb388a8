"""How somebody says what shall count for a conflict.

A resolution quotes the conflict it is for; its fingerprint makes sure that what was looked at is still what is there.
A rule without a row stands for every conflict of a type and kind. A function is asked for each conflict.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from omnigraph.catalog.model import Catalog
from omnigraph.engine.operations.merge.conflicts import ConflictKind, MergeConflict, Order
from omnigraph.errors import InputError


class Take(StrEnum):
    """What shall count."""

    OURS = "ours"
    THEIRS = "theirs"
    BASE = "base"
    DROP_EDGE = "drop_edge"
    KEEP_NODE = "keep_node"
    SET = "set"


_ROWS = (Take.OURS, Take.THEIRS, Take.BASE, Take.SET)
_BY_KIND: dict[ConflictKind, tuple[Take, ...]] = {
    ConflictKind.DIVERGENT_INSERT: _ROWS,
    ConflictKind.DIVERGENT_UPDATE: _ROWS,
    ConflictKind.DELETE_VS_UPDATE: _ROWS,
    ConflictKind.ORPHAN_EDGE: (Take.OURS, Take.THEIRS, Take.DROP_EDGE, Take.KEEP_NODE),
    ConflictKind.UNIQUE_VIOLATION: (Take.OURS, Take.THEIRS, Take.SET),
    ConflictKind.CARDINALITY_VIOLATION: (Take.OURS, Take.THEIRS),
    ConflictKind.VALUE_CONSTRAINT_VIOLATION: (),
}


class Resolution(Struct, frozen=True):
    """What shall count: one side, or the row with some properties set."""

    take: Take
    properties: Mapping[str, Any] | None = None
    """For `set`: these properties, on top of what the row has."""


Resolver = Callable[[MergeConflict], Resolution | str | Mapping[str, Any] | None]
Resolutions = Resolver | Sequence[Mapping[str, Any]]


def parse_take(value: Any) -> Resolution:
    """A resolution from its spelling: a word, or `{"set": {…}}`.

    Raises:
        InputError: it is neither.
    """
    if isinstance(value, Resolution):
        return value
    if isinstance(value, str) and value in tuple(Take) and value != Take.SET:
        return Resolution(Take(value))
    if isinstance(value, Mapping) and set(value) == {"set"} and isinstance(value["set"], Mapping):
        return Resolution(Take.SET, dict(value["set"]))
    raise InputError(
        'a conflict is resolved by "ours", "theirs", "base", "drop_edge", "keep_node" or {"set": {…}}, not'
        f" {value!r}"
    )


def check_fits(conflict: MergeConflict, resolution: Resolution) -> None:
    """Refuse a resolution that means nothing for this kind of conflict.

    Raises:
        InputError: what does.
    """
    allowed = _BY_KIND[conflict.kind]
    if conflict.kind is ConflictKind.UNIQUE_VIOLATION and conflict.table_key.startswith("node:"):
        allowed = (Take.SET,)  # Others may refer to either node, so neither can simply go.
    if resolution.take not in allowed:
        listed = ", ".join(allowed) or "nothing: change one of the branches"
        raise InputError(
            f"{conflict.kind} of {conflict.table_key} '{conflict.row_id or conflict.related}' cannot be resolved by"
            f" '{resolution.take}'; it can be by {listed}"
        )


class Resolving:
    """The resolutions of one merge, by conflict; says in the end which of them fitted nothing."""

    def __init__(self, given: Resolutions | None, catalog: Catalog) -> None:
        self._ask = given if callable(given) else None
        self._catalog = catalog
        self._by_conflict: dict[Order, Mapping[str, Any]] = {}
        self._by_kind: dict[tuple[str, str], Mapping[str, Any]] = {}
        for line in [] if given is None or callable(given) else list(given):
            self._file(line)
        self._used: set[Order] = set()
        self._used_kinds: set[tuple[str, str]] = set()

    @property
    def given(self) -> bool:
        """Whether somebody has decided anything."""
        return self._ask is not None or bool(self._by_conflict or self._by_kind)

    def _file(self, line: Mapping[str, Any]) -> None:
        if not isinstance(line, Mapping):
            raise InputError(f"a resolution is an object with table_key, kind and take, not {line!r}")
        missing = [name for name in ("table_key", "kind", "take") if not line.get(name)]
        if missing:
            raise InputError(
                f"a resolution needs table_key, kind and take; {', '.join(missing)} is missing in {dict(line)!r}"
            )
        table, kind = str(line["table_key"]), str(line["kind"])
        if table not in self._catalog.tables:
            raise InputError(f"a resolution is for '{table}', which is no type: {', '.join(self._catalog.tables)}")
        if kind not in tuple(ConflictKind):
            raise InputError(
                f"a resolution is for a conflict of kind '{kind}'; the kinds are {', '.join(ConflictKind)}"
            )
        parse_take(line["take"])
        row, related = line.get("row_id"), line.get("related")
        if row is None and related is None:
            self._by_kind[(table, kind)] = line
        else:
            about = "" if ConflictKind(kind).is_of_rows else ",".join(map(str, line.get("columns") or ()))
            self._by_conflict[(table, str(row or ""), kind, str(related or ""), about)] = line

    def resolve(self, conflict: MergeConflict) -> Resolution | None:
        """What was decided for a conflict, None when nothing was.

        Raises:
            InputError: what was decided on has changed since (`stale_resolution`), or the decision means nothing here.
        """
        found = self._decided(conflict)
        if found is not None:
            check_fits(conflict, found)
        return found

    def _decided(self, conflict: MergeConflict) -> Resolution | None:
        if self._ask is not None:
            answer = self._ask(conflict)
            return None if answer is None else parse_take(answer)
        whole = conflict.order
        # Whoever writes a line by hand need not name the other party, nor what the rule is about.
        shorter = (whole, (*whole[:4], ""), (*whole[:3], "", ""))
        key = next((each for each in shorter if each in self._by_conflict), whole)
        line = self._by_conflict.get(key)
        if line is None:
            of_kind = (str(conflict.table_key), str(conflict.kind))
            line = self._by_kind.get(of_kind)
            if line is not None:
                self._used_kinds.add(of_kind)
            return None if line is None else parse_take(line["take"])
        self._used.add(key)
        quoted = line.get("fingerprint")
        if quoted is not None and quoted != conflict.fingerprint:
            raise InputError(
                f"the resolution for {conflict.table_key} '{conflict.row_id or conflict.related}' was made for another"
                " state of it: list the conflicts again and decide anew",
                code="stale_resolution",
            )
        return parse_take(line["take"])

    @property
    def has_idle_rules(self) -> bool:
        """Whether something that was decided about a rule has met no conflict so far."""
        kinds = {key[2] for key in self._by_conflict.keys() - self._used}
        kinds |= {kind for _, kind in self._by_kind.keys() - self._used_kinds}
        return any(not ConflictKind(kind).is_of_rows for kind in kinds)

    def check_used(self) -> None:
        """Refuse resolutions that fit no conflict.

        Raises:
            InputError: which one.
        """
        for key in sorted(self._by_conflict.keys() - self._used):
            raise InputError(
                f"the resolution for {key[0]} '{key[1] or key[3]}' ({key[2]}) fits no conflict: list them again",
                code="stale_resolution",
            )
        for table, kind in sorted(self._by_kind.keys() - self._used_kinds):
            raise InputError(
                f"the resolution for every {kind} of {table} fits no conflict: list the conflicts again",
                code="stale_resolution",
            )

    def digest(self) -> str | None:
        """What tells these resolutions from others; those of a function are its business."""
        if self._ask is not None:
            return "function"
        if not self.given:
            return None
        lines = [[*key, line["take"]] for key, line in sorted(self._by_conflict.items())]
        lines += [[*kind, line["take"]] for kind, line in sorted(self._by_kind.items())]
        return hashlib.blake2b(json.dumps(lines, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()
