"""Edge tables: the ends of their rows as codes of the nodes there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.read.columns.dictionary import Codes, IdDictionary, codes_key, shared_codes
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.graph.adjacency import Adjacency
from omnigraph.engine.storage.cache import SHARED, ByteCache
from omnigraph.engine.storage.handle import FragmentInfo, TableHandle


class Ends(Struct, frozen=True):
    """The nodes at the ends of edges, as one version has them, and the direction the edges are followed in.

    The content of both node tables is named by `TableView.key`, the codes of their ids by the lineage of a dictionary.
    """

    sources: str
    targets: str
    source_lineage: str
    target_lineage: str
    direction: str


class EdgeView(TableView):
    """An edge table."""

    def __init__(self, handle: TableHandle, cache: ByteCache = SHARED) -> None:
        super().__init__(handle, cache)
        self.assembled: dict[Ends, Adjacency] = {}
        """Adjacency of this version with several versions of the nodes; see `assembly`."""

    def end_codes(
        self, fragments: Sequence[FragmentInfo], sources: IdDictionary, targets: IdDictionary
    ) -> tuple[Codes, Codes]:
        """The codes of the edge ends of several fragments, one after the other; what is not known is read together."""
        wanted = [
            (fragment, column, codes_key(dictionary.lineage, fragment.files, column), dictionary)
            for column, dictionary in (("src", sources), ("dst", targets))
            for fragment in fragments
        ]
        found: dict[tuple[Any, ...], Any] = {
            key: shared_codes(self.cache, dictionary, fragment.files, column)
            for fragment, column, key, dictionary in wanted
        }
        for dictionary in (sources,) if sources is targets else (sources, targets):
            missing = [(f, column, key) for f, column, key, d in wanted if d is dictionary and found[key] is None]
            found |= self._encode_ends(missing, dictionary)
        ends = [found[key] for _, _, key, _ in wanted]
        return np.concatenate(ends[: len(fragments)]), np.concatenate(ends[len(fragments) :])

    def _encode_ends(
        self, missing: Sequence[tuple[FragmentInfo, str, tuple[Any, ...]]], dictionary: IdDictionary
    ) -> dict[tuple[Any, ...], Codes]:
        chunks = []
        for fragment, column, _ in missing:
            if self.cache.get(self._column_key(fragment, column)) is None:
                # Both ends will be wanted, and reading two columns costs hardly more than reading one.
                self.read(fragment, ("src", "dst"))
            chunks.append(self.chunk(fragment, column))
        if not chunks:
            return {}
        codes = dictionary.encode(pa.chunked_array(wide.alike(*chunks)))
        cuts = np.cumsum([len(chunk) for chunk in chunks])[:-1]
        made = {key: part for (_, _, key), part in zip(missing, np.split(codes, cuts), strict=True)}
        for key, part in made.items():
            self.cache.put(key, part, int(part.nbytes))
        return made
