"""Which bytes outside a graph a write may refer to, and whether they are copied.

A blob may be given as the URI of its bytes, below one of the bases that the caller names; every other URI is refused:
otherwise whoever may write could make the process read any place it can reach. A write that adds or replaces entities
by id copies the bytes, so that they are the graph's own and outlive their source; a load that replaces a whole table
keeps the references, so that an export loads back as it was. References that are already stored are kept by whatever
rewrites their row, and are nobody's business here.
"""

from __future__ import annotations

from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.types import Scalar
from omnigraph.dataclass import dataclass
from omnigraph.engine.staging.entities import Entity
from omnigraph.engine.staging.values import Finished, Problem, blob_column
from omnigraph.engine.storage.objects import read_uri
from omnigraph.errors import ConstraintError, GraphError


@dataclass(frozen=True)
class ExternalBlobs:
    """The bases new references may lie under; without any, none is allowed. It travels to executors."""

    bases: tuple[str, ...] = ()

    def allows(self, uri: str) -> bool:
        """True when a base is a prefix of the URI, component by component.

        >>> ExternalBlobs(("s3://depot/in",)).allows("s3://depot/in/a.png")
        True
        >>> ExternalBlobs(("s3://depot/in",)).allows("s3://depot/inner/a.png")
        False
        """
        return any(_is_below(uri, base) for base in self.bases)

    def admit(self, entity: Entity, rows: pa.Table, *, keeps_references: bool) -> pa.Table:
        """The rows with every new reference checked and, unless references are kept, replaced by its bytes.

        Raises:
            ConstraintError: a reference is not allowed, or its bytes cannot be read; nothing changed.
        """
        rows, problems = self.examine(entity, rows, keeps_references=keeps_references)
        for problem in problems:
            raise ConstraintError(problem.message)
        return rows

    def examine(self, entity: Entity, rows: pa.Table, *, keeps_references: bool) -> tuple[pa.Table, list[Problem]]:
        """The same, with what is wrong by row instead of an error."""
        found: list[Problem] = []
        for name in rows.column_names:
            prop = entity.properties.get(name)
            if prop is not None and prop.type.scalar is Scalar.BLOB:
                blobs = rows.column(name).combine_chunks()
                column, problems = self._examine_column(blobs, f"{entity.name}.{name}", keeps_references)
                found += problems
                rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return rows, found

    def admit_column(self, blobs: pa.Array, what: str, *, keeps_references: bool) -> pa.Array:
        """What `admit` does for one column of blobs as they are staged."""
        column, problems = self._examine_column(blobs, what, keeps_references)
        for problem in problems:
            raise ConstraintError(problem.message)
        return column

    def _examine_column(self, blobs: pa.Array, what: str, keeps_references: bool) -> Finished:
        stored = blobs.storage if isinstance(blobs, pa.ExtensionArray) else blobs
        uris = pc.struct_field(stored, "uri")
        given = np.flatnonzero(np.asarray(pc.is_valid(uris))).tolist()
        if not given:
            return blobs, []
        references = uris.to_pylist()
        problems = [
            Problem(row, self._refusal(references[row], what)) for row in given if not self.allows(references[row])
        ]
        if problems or keeps_references:
            return blobs, problems
        content = pc.struct_field(stored, "data").to_pylist()
        for row in given:
            try:
                content[row], references[row] = read_uri(references[row]), None
            except GraphError as exc:
                place = _without_secrets(references[row])
                problems.append(Problem(row, f"{what}: the bytes at '{place}' cannot be read: {exc}"))
        return (blobs, problems) if problems else (blob_column(content, references), [])

    def _refusal(self, uri: str, what: str) -> str:
        places = ", ".join(self.bases) or "there is none; name them with external_blobs=[…] or --blobs-from"
        return f"{what}: '{uri}' lies outside the graph, below none of the places it may refer to: {places}"


def _without_secrets(uri: str) -> str:
    parts = urlparse(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _is_below(uri: str, base: str) -> bool:
    one, other = urlparse(uri), urlparse(base)
    if (one.scheme.lower(), one.netloc) != (other.scheme.lower(), other.netloc):
        return False
    path, start = _components(one.path), _components(other.path)
    return not {".", ".."}.intersection(path) and len(path) > len(start) and path[: len(start)] == start


def _components(path: str) -> list[str]:
    return [unquote(part) for part in path.split("/") if part]
