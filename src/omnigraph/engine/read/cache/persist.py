"""What was derived from data files, on disk, so that a fresh process starts where an earlier one left off.

Dictionaries, segments, text indexes and sketches. A segment is only right together with the dictionaries that gave its
codes, so it names the states in which they were kept; a dictionary names the states that it goes on from. Two processes
that go on from one state may give one code to different ids, and then neither knows the other's state. What does not
fit is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from omnigraph.engine.read.cache import derived
from omnigraph.engine.read.cache.derived import Bundle, DerivedStore
from omnigraph.engine.read.columns.dictionary import IdDictionary, codes_key
from omnigraph.engine.read.kernels import Bools, Csr
from omnigraph.engine.read.text.analysis import STEMMER, TextIndex
from omnigraph.engine.read.vector.quantised import Sketch, as_arrays, from_arrays
from omnigraph.engine.storage.cache import ByteCache
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.ids import new_token

EDGES_MIN = 200_000
"""Edge tables below this are quicker to read than to look up."""
TEXT_ROWS_MIN = 20_000
"""Fragments below this are analysed again by each process."""
TEXTS_KEPT = 256
STATES_KEPT = 64
"""Earlier states a dictionary names; segments of still earlier ones are made anew."""
DICTIONARY, SEGMENT = "dictionary", "segment"
_CSR_ARRAYS = {"offsets", "neighbours", "rows"}
_CSR_FACTS = {"has_parallel", "start_bound", "neighbour_bound"}


def load_dictionary(handle: TableHandle, cache: ByteCache) -> IdDictionary | None:
    """The newest dictionary kept for a node table, and into the cache the codes of the files it had seen."""
    store = DerivedStore.of(handle)
    for name in store.names(DICTIONARY) if store is not None else []:
        bundle = store.load(name) if store is not None else None
        if bundle is None or not {"ids", "ordered", "codes"} <= bundle.arrays.keys():
            continue
        arrays, facts = bundle.arrays, bundle.facts
        if not {"states", "groups"} <= facts.keys() or not len(arrays["ids"]) == len(arrays["ordered"]) == len(
            arrays["codes"]
        ) == facts.get("count"):
            continue
        found = IdDictionary.restored(arrays["ids"], arrays["ordered"], arrays["codes"], tuple(facts["states"]))
        for place, files in enumerate(facts["groups"]):
            codes = arrays[f"file{place}"]
            cache.put(codes_key(found.lineage, tuple(files), "id"), codes, int(codes.nbytes))
        return found
    return None


def save_dictionary(
    handle: TableHandle, dictionary: IdDictionary, groups: Sequence[tuple[str, ...]], codes: list[Any]
) -> str | None:
    """Keep a dictionary with the codes of its table's files, unless it has been kept already.

    Returns the name of a state that has every code given out until now, or None when it could not be kept.
    """
    store = DerivedStore.of(handle)
    if store is None or store.read_only:
        return None
    with dictionary.keeping:
        return _save_dictionary(store, dictionary, groups, codes)


def _save_dictionary(
    store: DerivedStore, dictionary: IdDictionary, groups: Sequence[tuple[str, ...]], codes: list[Any]
) -> str | None:
    if dictionary.states and dictionary.saved_count == len(dictionary):
        return dictionary.states[-1]
    ids, ordered, order = dictionary.folded()
    states = (*dictionary.states, new_token())[-STATES_KEPT:]
    facts = {
        "states": list(states),
        "count": len(ids),
        "groups": [list(files) for files in groups],
    }
    arrays = {"ids": ids, "ordered": ordered, "codes": order}
    arrays |= {f"file{place}": array for place, array in enumerate(codes)}
    if not store.save(DICTIONARY, arrays, facts):
        return None
    dictionary.states, dictionary.saved_count = states, len(ids)
    return states[-1]


def segment_bundles(
    handle: TableHandle, sources: IdDictionary, targets: IdDictionary
) -> list[tuple[DerivedStore, str, dict[str, Any]]]:
    """The segments kept for an edge table that speak the codes of these dictionaries, newest first."""
    store = DerivedStore.of(handle)
    found = []
    for name in store.names(SEGMENT) if store is not None else []:
        facts = store.facts(name) if store is not None else None
        if (
            store is None
            or facts is None
            or not {"segment", "rows", "known", "starts", "fragments", "states"} <= facts.keys()
        ):
            continue
        if facts["states"][0] in sources.states and facts["states"][1] in targets.states:
            found.append((store, name, facts))
    return found


def load_segment(store: DerivedStore, name: str, rows: int) -> Bundle | None:
    """The ends of a kept segment's edges."""
    bundle = store.load(name)
    if bundle is None or not {"sources", "targets"} <= bundle.arrays.keys():
        return None
    return bundle if len(bundle.arrays["sources"]) == len(bundle.arrays["targets"]) == rows else None


def save_segment(handle: TableHandle, facts: dict[str, Any], arrays: dict[str, Any]) -> DerivedStore | None:
    """Keep the ends of a segment's edges; the store to keep its compressed forms in, if that worked."""
    store = DerivedStore.of(handle)
    return store if store is not None and store.save(SEGMENT, arrays, facts) else None


def load_csr(store: DerivedStore, segment_id: str, direction: str, rows: int) -> tuple[Csr, Bools | None] | None:
    """A compressed form kept for a segment, and the slots that stand for their pair."""
    for name in store.names(direction):
        facts = store.facts(name)
        if facts is None or facts.get("segment") != segment_id:
            continue
        bundle = store.load(name)
        if bundle is None:
            continue
        arrays = bundle.arrays
        if not (arrays.keys() >= _CSR_ARRAYS and facts.keys() >= _CSR_FACTS):
            continue
        csr = Csr(
            **{each: arrays[each] for each in _CSR_ARRAYS},
            **{each: facts[each] for each in _CSR_FACTS},
        )
        slots = len(csr.neighbours)
        whole = int(csr.offsets[-1]) == slots == len(csr.rows) and (slots == rows or direction == "both")
        if whole and csr.has_parallel == ("first" in arrays):
            return csr, arrays.get("first")
    return None


def save_csr(store: DerivedStore, segment_id: str, direction: str, csr: Csr, first: Bools | None) -> None:
    """Keep a compressed form."""
    arrays: dict[str, Any] = {each: np.asarray(getattr(csr, each)) for each in _CSR_ARRAYS}
    if first is not None:
        arrays["first"] = first
    facts = {"segment": segment_id, **{each: getattr(csr, each) for each in _CSR_FACTS}}
    store.save(direction, arrays, facts)


def load_text_index(handle: TableHandle, files: tuple[str, ...], field_id: object) -> TextIndex | None:
    """The text index kept for a column of a fragment."""
    store = DerivedStore.of(handle)
    for name in store.names(f"text{field_id}") if store is not None else []:
        facts = store.facts(name) if store is not None else None
        if store is None or facts is None or tuple(facts.get("sources", ())) != files:
            continue
        if facts.get("stemmer") != STEMMER:
            continue
        bundle = store.load(name)
        if bundle is not None and bundle.arrays.keys() == _TEXT_ARRAYS:
            found = TextIndex(**bundle.arrays)
            if len(found.offsets) == len(found.tokens) + 1 and int(found.offsets[-1]) == len(found.rows):
                return found
    return None


_TEXT_ARRAYS = {"tokens", "offsets", "rows", "counts", "lengths", "valid"}


def save_text_index(handle: TableHandle, files: tuple[str, ...], field_id: object, index: TextIndex) -> None:
    """Keep a text index."""
    store = DerivedStore.of(handle)
    if store is not None:
        arrays = {name: getattr(index, name) for name in _TEXT_ARRAYS}
        facts = {"sources": list(files), "stemmer": STEMMER}
        store.save(f"text{field_id}", arrays, facts, kept=TEXTS_KEPT)


def load_sketch(handle: TableHandle, files: tuple[str, ...], field_id: object, rows: int) -> Sketch | None:
    """The sketch kept for a vector column of a group."""
    store = DerivedStore.of(handle)
    for name in store.names(f"sketch{field_id}") if store is not None else []:
        facts = store.facts(name) if store is not None else None
        if store is None or facts is None or tuple(facts.get("sources", ())) != files:
            continue
        bundle = store.load(name)
        found = None if bundle is None else from_arrays(bundle.arrays, rows)
        if found is not None:
            return found
    return None


def save_sketch(handle: TableHandle, files: tuple[str, ...], field_id: object, sketch: Sketch, *, kept: int) -> None:
    """Keep a sketch; `kept` is how many groups the table has, and a few of earlier versions stay beside theirs."""
    store = DerivedStore.of(handle)
    if store is not None:
        store.save(f"sketch{field_id}", as_arrays(sketch), {"sources": list(files)}, kept=kept + derived.KEPT)
