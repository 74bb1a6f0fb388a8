"""Which bytes outside a graph a write may refer to, and whether they are copied.

A blob may be given as the URI of its bytes, below one of the bases that the caller names; every other URI is refused:
otherwise whoever may write could make the process read any place it can reach. A write that adds or replaces entities
by id copies the bytes, so that they are the graph's own and outlive their source; a load that replaces a whole table
keeps the references, so that an export loads back as it was. References that are already stored are kept by whatever
rewrites their row, and are nobody's business here.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.types import Scalar
from omnigraph.engine.storage.outside import Place, find_below, parse_place, read_below
from omnigraph.engine.values.columns import Finished, Problem, blob_column
from omnigraph.engine.values.entities import Entity
from omnigraph.errors import ConstraintError, ExternalBlobError, StorageError


class _Unreadable(Problem, frozen=True):
    """Bytes that are allowed and cannot be read."""

    uri: str
    reason: str


class ExternalBlobs(Struct, frozen=True, dict=True):
    """The bases new references may lie under; without any, none is allowed. It travels to executors."""

    bases: tuple[str, ...] = ()

    def allows(self, uri: str) -> bool:
        """True when a base is a prefix of the URI, component by component, once it is decoded and links are resolved.

        >>> ExternalBlobs(("s3://depot/in",)).allows("s3://depot/in/a.png")
        True
        >>> ExternalBlobs(("s3://depot/in",)).allows("s3://depot/inner/a.png")
        False
        """
        return find_below(uri, self.places) is not None

    def check(self) -> None:
        """Make sure that something can lie below each base.

        Raises:
            InputError: one of them is no URI.
        """
        self.places  # noqa: B018 - taking them apart is the check

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The bases, taken apart."""
        return tuple(parse_place(base) for base in self.bases)

    def admit(self, entity: Entity, rows: pa.Table, *, keeps_references: bool) -> pa.Table:
        """The rows with every new reference checked and, unless references are kept, replaced by its bytes.

        Raises:
            ConstraintError: a reference is not allowed; nothing changed.
            ExternalBlobError: its bytes cannot be read; nothing changed.
        """
        rows, problems = self.examine(entity, rows, keeps_references=keeps_references)
        for problem in problems:
            raise _error(problem)
        return rows

    def examine(self, entity: Entity, rows: pa.Table, *, keeps_references: bool) -> tuple[pa.Table, list[Problem]]:
        """The same, with what is wrong by row instead of an error."""
        found: list[Problem] = []
        for name in rows.column_names:
            prop = entity.properties.get(name)
            if prop is not None and prop.type.scalar is Scalar.BLOB:
                blobs = wide.one_array(rows.column(name))
                column, problems = self._examine_column(blobs, f"{entity.name}.{name}", keeps_references)
                found += problems
                rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return rows, found

    def admit_column(self, blobs: pa.Array, what: str) -> pa.Array:
        """What `admit` does for one column of blobs as they are staged; no reference is kept."""
        column, problems = self._examine_column(blobs, what, False)
        for problem in problems:
            raise _error(problem)
        return column

    def _examine_column(self, blobs: pa.Array, what: str, keeps_references: bool) -> Finished:
        stored = blobs.storage if isinstance(blobs, pa.ExtensionArray) else blobs
        uris = pc.struct_field(stored, "uri")
        given = np.flatnonzero(np.asarray(pc.is_valid(uris))).tolist()
        if not given:
            return blobs, []
        references = uris.to_pylist()
        places = {row: find_below(references[row], self.places) for row in given}
        problems = [Problem(row, self._refusal(references[row], what)) for row in given if places[row] is None]
        if problems or keeps_references:
            return blobs, problems
        content = pc.struct_field(stored, "data").to_pylist()
        for row, found in places.items():
            if found is None:
                continue
            try:
                content[row], references[row] = read_below(*found), None
            except StorageError as exc:
                # What the store says in full may hold what lets one in there.
                said = f"{what}: the bytes at '{found[0]}' cannot be read ({exc.kind})"
                problems.append(_Unreadable(row, said, str(found[0]), exc.kind))
        return (blobs, problems) if problems else (blob_column(content, references), [])

    def _refusal(self, uri: str, what: str) -> str:
        places = ", ".join(self.bases) or "there is none; name them with external_blobs=[…] or --blobs-from"
        return f"{what}: '{uri}' lies outside the graph, below none of the places it may refer to: {places}"


def _error(problem: Problem) -> ConstraintError:
    if isinstance(problem, _Unreadable):
        return ExternalBlobError(problem.message, uri=problem.uri, reason=problem.reason)
    return ConstraintError(problem.message)
