"""A schema as a picture: a box for each node type with its properties, an arrow for each edge type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from omnigraph.catalog.model import Catalog, EdgeType, EntityType, NodeType
from omnigraph.drawing.layout import place
from omnigraph.drawing.lines import Line, draw_lines
from omnigraph.drawing.svg import document, element, label, text_of, tint, told, width_of

HEAD = 26.0
ROW = 17.0
SIZE = 11.0
ROWS_MAX = 14
"""The properties of a type that are listed; the others are counted."""
NAME_LENGTH = 28
KIND_LENGTH = 24
GAP = 70.0
EDGE = 20.0
WIDTH_MIN = 240.0


def schema_svg(catalog: Catalog) -> str:
    """The types of a schema as an SVG document, which needs nothing beside itself."""
    nodes = [catalog.nodes[name] for name in sorted(catalog.nodes)]
    edges = [catalog.edges[name] for name in sorted(catalog.edges)]
    places = {node.name: number for number, node in enumerate(nodes)}
    sizes = np.array([_size(node) for node in nodes]).reshape(-1, 2)
    pairs = np.array([(places[edge.source], places[edge.target]) for edge in edges], dtype=np.int64).reshape(-1, 2)
    gaps = np.array([GAP + width_of(_edge_text(edge), SIZE) for edge in edges])
    centres, whole = place(sizes, pairs, gaps)
    top = EDGE + (30 if any(edge.source == edge.target for edge in edges) else 0)
    centres = centres + np.array([EDGE, top])
    lines = [
        Line(
            places[edge.source],
            places[edge.target],
            _edge_text(edge),
            places[edge.source],
            tuple(_told(edge, _ends(edge))),
        )
        for edge in edges
    ]
    body = draw_lines(lines, centres, sizes, labelled=True)
    for number, node in enumerate(nodes):
        low = centres[number] - sizes[number] / 2
        body.append(
            _box(node, (float(low[0]), float(low[1])), float(sizes[number][0]), float(sizes[number][1]), number)
        )
    width, height = max(float(whole[0]) + 2 * EDGE, WIDTH_MIN), float(whole[1]) + top + EDGE
    if not nodes:
        body.append(label("the schema has no types", width / 2, height / 2, "quiet"))
    return document(width, height, body, f"a schema of {len(nodes)} node types and {len(edges)} edge types")


def _rows(entity: EntityType) -> list[tuple[str, str, bool]]:
    """The properties, the key first and the others as declared: name, type, and whether it is part of the key."""
    names = [*(name for name in entity.key if name in entity.properties)]
    names += [name for name in entity.declared if name not in names]
    return [
        (text_of(name, NAME_LENGTH), text_of(entity.properties[name].type, KIND_LENGTH), name in entity.key)
        for name in names
    ]


def _size(node: NodeType) -> list[float]:
    rows = _rows(node)
    shown = rows[:ROWS_MAX]
    name = max((width_of(text, SIZE, bold=is_key) for text, _, is_key in shown), default=0.0)
    kind = max((width_of(text, SIZE) for _, text, _ in shown), default=0.0)
    wide = max(name + kind + 40, width_of(text_of(node.name, NAME_LENGTH), 13, bold=True) + 30, 90.0)
    lines = len(shown) + (len(rows) > ROWS_MAX)
    return [wide, HEAD + (lines * ROW + 8 if lines else 0)]


def _box(node: NodeType, corner: tuple[float, float], width: float, height: float, colour: int) -> str:
    left, top = corner
    rows = _rows(node)
    frame = {"x": left, "y": top, "width": width, "height": height, "rx": 7}
    parts = [
        told(_told(node, text_of(node.name))),
        element("rect", {"class": f"box {tint(colour)}", **frame}),
        label(text_of(node.name, NAME_LENGTH), left + width / 2, top + HEAD / 2, "head"),
    ]
    if rows:
        parts.append(
            element("path", {"class": f"line {tint(colour)}", "d": f"M{left:.1f},{top + HEAD:.1f}h{width:.1f}"})
        )
    middle = top + HEAD + 4 + ROW / 2
    for name, kind, is_key in rows[:ROWS_MAX]:
        parts.append(label(name, left + 12, middle, "row start" if is_key else "row", "start"))
        parts.append(label(kind, left + width - 12, middle, "row quiet", "end"))
        middle += ROW
    if len(rows) > ROWS_MAX:
        parts.append(label(f"{len(rows) - ROWS_MAX} more", left + 12, middle, "row quiet", "start"))
    return element("g", {}, *parts)


def _ends(edge: EdgeType) -> str:
    return f"{text_of(edge.name)}: {text_of(edge.source)} → {text_of(edge.target)}"


def _edge_text(edge: EdgeType) -> str:
    """The name of an edge type, and how many of its edges may leave one node, where that is bounded."""
    count = edge.cardinality
    if count.is_default:
        return text_of(edge.name, NAME_LENGTH)
    return f"{text_of(edge.name, NAME_LENGTH)} {count.low}..{'*' if count.high is None else count.high}"


def _told(entity: EntityType, name: str) -> Iterator[str]:
    """All that a type declares about its properties."""
    yield name
    yield from (f"{text_of(each)}: {text_of(item.type)}" for each, item in entity.properties.items())
    if entity.key:
        yield f"key: {', '.join(map(text_of, entity.key))}"
