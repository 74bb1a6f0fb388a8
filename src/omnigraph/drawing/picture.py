"""A neighbourhood as a picture: nodes as boxes coloured by type, edges as arrows, a legend, and what was left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

import numpy as np

from omnigraph.boundary import path as is_path
from omnigraph.boundary import verb
from omnigraph.drawing.layout import place
from omnigraph.drawing.lines import Line, draw_lines
from omnigraph.drawing.neighbourhood import DrawnEdge, DrawnNode, Neighbourhood
from omnigraph.drawing.svg import document, element, label, text_of, tint, told, width_of
from omnigraph.errors import InputError

SIZE = 12.0
LABEL_LENGTH = 26
LABELLED_EDGES = 80
"""Beyond so many arrows, colours and the legend alone say what they are."""
GAP = 44.0
"""What of an arrow shows beside its label."""
LOOP = 40.0
EDGE = 18.0
"""What stays free around the picture."""
ROW = 20.0
WIDTH_MIN = 360.0


@dataclass(frozen=True)
class Drawing:
    """A picture of nodes and edges. A notebook shows it; `save` writes it to a file, `to_svg` and `to_html` give it."""

    part: Neighbourhood
    title: str

    @property
    def nodes(self) -> list[tuple[str, str]]:
        """Type and id of every node that is drawn."""
        return [(node.type_name, node.id) for node in self.part.nodes]

    @property
    def left_out(self) -> tuple[str, ...]:
        """What is not drawn, in words."""
        return self.part.left_out

    def __repr__(self) -> str:
        arrows = len(self.part.edges)
        counts = f"{len(self.part.nodes):,} nodes, {arrows:,} arrow{'' if arrows == 1 else 's'}"
        return f"Drawing({self.title!r}: {'; '.join([counts, *(f'not drawn: {each}' for each in self.left_out)])})"

    def to_svg(self) -> str:
        """The picture as an SVG document, which needs nothing beside itself."""
        return self._svg

    def to_html(self) -> str:
        """The picture as a page, which needs nothing beside itself and asks no network for anything."""
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(text_of(self.title))}</title>'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="color-scheme" content="light dark"><style>body{margin:16px;text-align:center}</style></head>'
            f"<body>{self._svg}</body></html>\n"
        )

    @verb(path=is_path)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file: `.svg` or `.html`, by its name.

        Raises:
            InputError: the name says neither, or the file cannot be written.
        """
        target = Path(path)
        written = {".svg": self.to_svg, ".html": self.to_html, ".htm": self.to_html}.get(target.suffix.lower())
        if written is None:
            raise InputError(f"a drawing is written as .svg or .html: '{target}' says neither")
        try:
            target.write_text(written(), encoding="utf-8")
        except OSError as exc:
            raise InputError(f"cannot write '{target}': {(exc.strerror or str(exc)).lower()}") from exc

    def _repr_html_(self) -> str:
        """The picture for a notebook, where what the pointer rests on is told."""
        return self._svg

    @cached_property
    def _svg(self) -> str:
        return _picture(self.part, self.title)


def _picture(part: Neighbourhood, title: str) -> str:
    node_types = sorted({node.type_name for node in part.nodes})
    edge_types = sorted({edge.type_name for edge in part.edges})
    colours = {name: number for number, name in enumerate([*node_types, *(f"edge:{name}" for name in edge_types)])}
    names = [text_of(node.label, LABEL_LENGTH) for node in part.nodes]
    # Where all are nodes to begin with, marking them would say nothing.
    marked = [node.is_start and not all(each.is_start for each in part.nodes) for node in part.nodes]
    widths = [width_of(name, SIZE, bold=bold) + 22 for name, bold in zip(names, marked, strict=True)]
    sizes = np.array([[max(width, 40.0), 26.0] for width in widths]).reshape(-1, 2)
    lines = [_line(part.nodes, edge, colours[f"edge:{edge.type_name}"]) for edge in part.edges]
    pairs = np.array([(line.source, line.target) for line in lines], dtype=np.int64).reshape(-1, 2)
    centres, whole = place(sizes, pairs, np.array([GAP + width_of(line.text, SIZE) for line in lines]))
    top = EDGE + (LOOP if any(line.source == line.target for line in lines) else 0)
    centres = centres + np.array([EDGE, top])
    width = max(float(whole[0]) + 2 * EDGE, WIDTH_MIN)
    body = draw_lines(lines, centres, sizes, labelled=len(lines) <= LABELLED_EDGES)
    for node, name, bold, centre, size in zip(part.nodes, names, marked, centres, sizes, strict=True):
        body.append(
            _node(node, name, (float(centre[0]), float(centre[1])), size.tolist(), colours[node.type_name], bold)
        )
    bottom = top + float(whole[1]) + EDGE
    for row in (*_legend(part, node_types, edge_types, colours, width), *_notes(part, width)):
        body.append(element("g", {"transform": f"translate(0 {bottom + ROW / 2:.1f})"}, *row))
        bottom += ROW
    return document(width, bottom + EDGE / 2, body, title)


def _line(nodes: Sequence[DrawnNode], edge: DrawnEdge, colour: int) -> Line:
    many = f" ×{edge.count:,}" if edge.count > 1 else ""
    name = text_of(edge.type_name, LABEL_LENGTH) + many
    ends = f"{text_of(nodes[edge.source].label)} → {text_of(nodes[edge.target].label)}"
    return Line(edge.source, edge.target, name, colour, (name, ends, *_listed(edge.properties)))


def _node(node: DrawnNode, name: str, centre: tuple[float, float], size: list[float], colour: int, marked: bool) -> str:
    start = " start" if marked else ""
    frame = {"x": centre[0] - size[0] / 2, "y": centre[1] - size[1] / 2, "width": size[0], "height": size[1]}
    return element(
        "g",
        {},
        told((f"{text_of(node.type_name)} {text_of(node.id)}", *_listed(node.properties))),
        element("rect", {"class": f"box {tint(colour)}{start}", **frame, "rx": 13}),
        label(name, *centre, f"name{start}"),
    )


def _listed(properties: Mapping[str, object]) -> list[str]:
    return [f"{text_of(name)}: {text_of(value, 80)}" for name, value in properties.items()]


def _legend(
    part: Neighbourhood, node_types: list[str], edge_types: list[str], colours: Mapping[str, int], width: float
) -> Iterator[list[str]]:
    """Rows of colours and what they stand for."""
    nodes, edges = Counter(node.type_name for node in part.nodes), Counter[str]()
    for edge in part.edges:
        edges[edge.type_name] += edge.count
    entries = [(f"{text_of(name, 30)}  {nodes[name]:,}", colours[name], True) for name in node_types]
    entries += [(f"{text_of(name, 30)}  {edges[name]:,}", colours[f"edge:{name}"], False) for name in edge_types]
    row: list[str] = []
    left = EDGE
    for text, colour, is_node in entries:
        long = 30 + width_of(text, SIZE)
        if row and left + long > width - EDGE:
            yield row
            row, left = [], EDGE
        row += [_swatch(left, colour, is_node=is_node), label(text, left + 26, 0.0, "", "start")]
        left += long + 18
    if row:
        yield row


def _swatch(left: float, colour: int, *, is_node: bool) -> str:
    if is_node:
        frame = {"x": left, "y": -5.5, "width": 20, "height": 11, "rx": 5.5}
        return element("rect", {"class": f"box {tint(colour)}", **frame})
    line = element("path", {"class": f"line {tint(colour)}", "d": f"M{left:.1f},0h14"})
    return line + element("path", {"class": f"tip {tint(colour)}", "d": f"M{left + 20:.1f},0l-7,-3v6z"})


def _notes(part: Neighbourhood, width: float) -> Iterator[list[str]]:
    """What was left out, in as many rows as it takes."""
    notes = [f"not drawn: {'; '.join(part.left_out)}"] if part.left_out else []
    if not part.nodes:
        notes.insert(0, "there is nothing to draw")
    for note in notes:
        line = ""
        for word in text_of(note, 600).split(" "):
            if line and width_of(f"{line} {word}", SIZE) > width - 2 * EDGE:
                yield [label(line, EDGE, 0.0, "quiet", "start")]
                line = word
            else:
                line = f"{line} {word}".strip()
        yield [label(line, EDGE, 0.0, "quiet", "start")]
