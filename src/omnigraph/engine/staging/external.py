"""Which bytes outside a graph a write may refer to, and whether they are copied.

A blob may be given as the URI of its bytes. A graph that names the bases it trusts refuses every other URI: otherwise
whoever may write could make the process read any place it can reach. Under a trusted base, a write that adds or
replaces entities by id copies the bytes, so that they are the graph's own and outlive their source; a load that
replaces a whole table keeps the references, so that an export loads back as it was. References that are already stored
are kept by whatever rewrites their row, and are nobody's business here.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.types import Scalar
from omnigraph.engine.staging.entities import Entity
from omnigraph.engine.staging.values import blob_column
from omnigraph.engine.storage.objects import read_uri
from omnigraph.errors import ConstraintError, GraphError


@dataclass(frozen=True)
class ExternalBlobs:
    """The bases new references may lie under; None trusts all, and then nothing is copied."""

    bases: tuple[str, ...] | None = None

    def allows(self, uri: str) -> bool:
        """True when a base is a prefix of the URI, component by component.

        >>> ExternalBlobs(("s3://depot/in",)).allows("s3://depot/in/a.png")
        True
        >>> ExternalBlobs(("s3://depot/in",)).allows("s3://depot/inner/a.png")
        False
        """
        return self.bases is None or any(_is_below(uri, base) for base in self.bases)

    def admit(self, entity: Entity, rows: pa.Table, *, keeps_references: bool) -> pa.Table:
        """The rows with every new reference checked and, unless references are kept, replaced by its bytes.

        Raises:
            ConstraintError: a reference is not allowed, or its bytes cannot be read; nothing changed.
        """
        if self.bases is None:
            return rows
        for name in rows.column_names:
            prop = entity.properties.get(name)
            if prop is not None and prop.type.scalar is Scalar.BLOB:
                at = rows.schema.get_field_index(name)
                column = self.admit_column(
                    rows.column(name).combine_chunks(), f"{entity.name}.{name}", keeps_references
                )
                rows = rows.set_column(at, name, column)
        return rows

    def admit_column(self, blobs: pa.Array, what: str, keeps_references: bool) -> pa.Array:
        """The same for one column of blobs as they are staged."""
        stored = blobs.storage if isinstance(blobs, pa.ExtensionArray) else blobs
        uris = pc.struct_field(stored, "uri")
        given = np.flatnonzero(np.asarray(pc.is_valid(uris)))
        if self.bases is None or not len(given):
            return blobs
        references = uris.to_pylist()
        for row in given.tolist():
            if not self.allows(references[row]):
                raise ConstraintError(
                    f"{what}: '{references[row]}' lies outside the graph, below none of the places it may refer to:"
                    f" {', '.join(self.bases) or 'there is none'}"
                )
        if keeps_references:
            return blobs
        content = pc.struct_field(stored, "data").to_pylist()
        for row in given.tolist():
            content[row], references[row] = _bytes_of(references[row], what), None
        return blob_column(content, references)


def _bytes_of(uri: str, what: str) -> bytes:
    try:
        return read_uri(uri)
    except GraphError as exc:
        raise ConstraintError(f"{what}: the bytes at '{_without_secrets(uri)}' cannot be read: {exc}") from exc


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
