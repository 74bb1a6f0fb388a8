"""Load files of earlier days, made into lines the strict reader takes.

Earlier releases took objects that spread over several lines, ignored fields they did not know, and let a keyed node
carry its id in another spelling than its key. Files they wrote, or took, are still there. This reader makes one strict
line of each object: unknown fields go, and an id that means the same key is rewritten, together with the ends of edges
in the same file that name it. What is wrong beyond that is left for the strict reader to say, because two readers would
disagree about values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.catalog.keys import id_from_key
from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.catalog.types import FLOATS, INTEGER_RANGES, Scalar
from omnigraph.engine.ingest.strict import RecordFault, read_record
from omnigraph.engine.values.columns import finish_json
from omnigraph.errors import ConstraintError, GraphError, InputError

_SPACE = " \t\r\n"

Shape = dict[str, Any]


def read_leniently(source: Any, catalog: Catalog, *, here: bool = True, type_name: str | None = None) -> bytes:
    """One file of JSON, or its bytes, as strict lines; `here` says that this process is to load them.

    Raises:
        InputError: it is something else, cannot be read, is to be loaded elsewhere, or is said to be of one type.
        ConstraintError: the text is not a sequence of JSON objects.
    """
    if not here or not isinstance(source, str | bytes | os.PathLike):
        raise InputError("a lenient load reads one file of JSON, or its bytes, in this process")
    if type_name is not None:
        raise InputError("a lenient load reads records, each of which names its type: leave the type out")
    if isinstance(source, bytes):
        return strict_lines(source, catalog)
    try:
        content = Path(source).read_bytes()
    except OSError as exc:
        raise InputError(f"'{os.fspath(source)}' cannot be read: {exc.strerror}") from exc
    return strict_lines(content, catalog)


def strict_lines(content: bytes, catalog: Catalog) -> bytes:
    """The records of a file, one strict line each.

    Raises:
        ConstraintError: the text is not a sequence of JSON objects; names the record.
    """
    shapes = [_known(shape, catalog) for shape in _objects(content)]
    respelled: dict[str, dict[str, str]] = {}
    for shape in shapes:
        node = catalog.nodes.get(shape["type"]) if isinstance(shape.get("type"), str) else None
        if node is not None and node.key:
            _respell_id(shape, node, catalog, respelled.setdefault(node.name, {}))
    for shape in shapes:
        edge = _edge(shape, catalog)
        if edge is not None:
            for word, end in (("from", edge.source), ("to", edge.target)):
                if isinstance(shape.get(word), str):
                    shape[word] = respelled.get(end, {}).get(shape[word], shape[word])
    # As ASCII, so that half of a surrogate pair reaches the strict reader, which names the record and the property.
    return b"\n".join(json.dumps(shape).encode() for shape in shapes)


def _objects(content: bytes) -> Iterator[Shape]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ConstraintError(f"the file is not valid UTF-8: {exc.reason} at byte {exc.start}") from None
    decoder, at, number = json.JSONDecoder(), 0, 0
    while True:
        while at < len(text) and text[at] in _SPACE:
            at += 1
        if at == len(text):
            return
        number += 1
        line = text.count("\n", 0, at) + 1
        try:
            shape, at = decoder.raw_decode(text, at)
        except ValueError as exc:
            raise ConstraintError(f"record {number} (line {line}): not JSON: {exc}") from None
        if not isinstance(shape, dict):
            raise ConstraintError(f"record {number} (line {line}): a record is a JSON object")
        yield shape


def _edge(shape: Shape, catalog: Catalog) -> EdgeType | None:
    name = shape.get("edge")
    return catalog.edges_by_lower_name.get(name.lower()) if isinstance(name, str) else None


def _known(shape: Shape, catalog: Catalog) -> Shape:
    """The object without the fields nobody knows."""
    kept = {name: value for name, value in shape.items() if name in ("type", "edge", "from", "to", "data")}
    entity = _edge(kept, catalog) or (catalog.nodes.get(kept["type"]) if isinstance(kept.get("type"), str) else None)
    data = kept.get("data")
    if entity is not None and isinstance(data, dict):
        kept["data"] = {name: value for name, value in data.items() if name == "id" or name in entity.properties}
    return kept


def _respell_id(shape: Shape, node: NodeType, catalog: Catalog, respelled: dict[str, str]) -> None:
    data = shape.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("id"), str):
        return
    given = data["id"]
    canonical = _id_of(node, data, catalog)
    if canonical is None or canonical == given:
        return
    if len(node.key) == 1 and _id_of(node, {**data, node.key[0]: _spelled(node, given)}, catalog) == canonical:
        respelled[given] = canonical
        data["id"] = canonical


def _spelled(node: NodeType, text: str) -> Any:
    """The key value a text spells; the text itself where it spells none."""
    scalar = node.properties[node.key[0]].type.scalar
    try:
        if scalar in INTEGER_RANGES:
            return int(text)
        if scalar in FLOATS:
            return float(text)
        if scalar in (Scalar.DATE, Scalar.DATETIME):
            return int(text) if text.lstrip("-").isdecimal() else text
    except ValueError:
        return text
    return {"true": True, "false": False}.get(text.lower(), text) if scalar is Scalar.BOOL else text


def _id_of(node: NodeType, data: Mapping[str, Any], catalog: Catalog) -> str | None:
    """The id of a node's key, or None when the key is not a good one."""
    keys = {name: data.get(name) for name in node.key}
    try:
        record = read_record(json.dumps({"type": node.name, "data": keys}).encode(), catalog)
        columns = {}
        for name in node.key:
            column, problems = finish_json(pa.array([record.data.get(name)]), node.properties[name].type)
            if problems:
                return None
            columns[name] = column
        return str(id_from_key(node, columns)[0].as_py())
    except (RecordFault, GraphError, pa.ArrowException):
        return None
