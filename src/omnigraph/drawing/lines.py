"""Lines between boxes: from frame to frame, bent where several join the same two, with tips that say the direction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from omnigraph.drawing.layout import Floats
from omnigraph.drawing.svg import element, label, tint, told, width_of

BEND = 34.0
"""How far apart lines between the same two boxes are in their middle."""
TIP = 7.0
SIZE = 10.5
TRIED = (0.5, 0.4, 0.6, 0.3, 0.7)
"""Where along its line a label may stand."""


class Line(Struct, frozen=True):
    """A line from one box to another, or back to itself."""

    source: int
    target: int
    text: str
    colour: int
    told: tuple[str, ...]


def draw_lines(lines: Sequence[Line], centres: Floats, sizes: Floats, *, labelled: bool) -> list[str]:
    """The lines as markup, their labels behind all of them; a label that finds no free place is left out."""
    taken = [_box(centre, size) for centre, size in zip(centres, sizes, strict=True)]
    drawn, labels = [], []
    for line, bend in zip(lines, _bends(lines), strict=True):
        curve = _curve(centres, sizes, line, bend)
        drawn.append(_drawn(line, curve))
        width = np.array([width_of(line.text, SIZE) + 4, SIZE + 3])
        lift = np.array([0.0, -8.0 if line.source == line.target else 0.0])
        spots = [_at(curve, share) + lift for share in TRIED] if labelled else []
        place = next((spot for spot in spots if all(_clear(_box(spot, width), other) for other in taken)), None)
        if place is not None:
            taken.append(_box(place, width))
            # Written twice: the lower one, with a thick rim in the colour of the ground, keeps lines off the text.
            labels.append(label(line.text, float(place[0]), float(place[1]), "small halo"))
            labels.append(label(line.text, float(place[0]), float(place[1]), f"small {tint(line.colour)}"))
    return [*drawn, *labels]


def _bends(lines: Sequence[Line]) -> list[float]:
    """How far each line swerves, so that lines between the same boxes are told apart; the way there bends one way."""
    between: dict[tuple[int, int], list[int]] = {}
    for place, line in enumerate(lines):
        between.setdefault((min(line.source, line.target), max(line.source, line.target)), []).append(place)
    found = [0.0] * len(lines)
    for (low, _), places in between.items():
        for rank, place in enumerate(places):
            swerve = BEND * (rank - (len(places) - 1) / 2)
            found[place] = swerve if lines[place].source == low else -swerve
            if lines[place].source == lines[place].target:
                found[place] = float(rank)
    return found


def _curve(centres: Floats, sizes: Floats, line: Line, bend: float) -> Floats:
    """Four points of a Bézier curve from the frame of one box to that of the other."""
    start, end = centres[line.source], centres[line.target]
    if line.source == line.target:
        half = sizes[line.source] / 2
        high = half[1] + 26 + 12 * bend
        wide = min(half[0] * 0.7, 18 + 7 * bend)
        corner = start + np.array([half[0] * 0.35, -half[1]])
        left, right = corner + np.array([-wide / 2, 0.0]), corner + np.array([wide / 2, 0.0])
        lift = np.array([0.0, -(high - half[1])]) * 1.3
        return np.stack([left, left + lift + [-8, 0], right + lift + [8, 0], right])
    across = end - start
    length = max(float(np.linalg.norm(across)), 1e-6)
    sideways = np.array([-across[1], across[0]]) / length
    middle = (start + end) / 2 + sideways * bend * 1.4
    first, last = _frame(start, sizes[line.source], middle), _frame(end, sizes[line.target], middle)
    return np.stack([first, first + (middle - first) * 2 / 3, last + (middle - last) * 2 / 3, last])


def _frame(centre: Floats, size: Floats, towards: Floats) -> Floats:
    """Where a straight way from the middle of a box to a point leaves the box."""
    across = towards - centre
    half = size / 2 + 1.5
    share = 1.0 / max(float((np.abs(across) / half).max()), 1e-9)
    return np.asarray(centre + across * min(share, 1.0))


def _drawn(line: Line, curve: Floats) -> str:
    """The curve with its tip."""
    towards = curve[3] - curve[2]
    towards = towards / max(float(np.linalg.norm(towards)), 1e-9)
    sideways = np.array([-towards[1], towards[0]])
    base = curve[3] - towards * TIP
    corners = [curve[3], base + sideways * TIP * 0.45, base - sideways * TIP * 0.45]
    # The line ends where the tip begins, so that it does not show beside its point.
    path = f"M{_pair(curve[0])}C{_pair(curve[1])} {_pair(curve[2])} {_pair(base)}"
    tip = "M" + "L".join(map(_pair, corners)) + "Z"
    return element(
        "g",
        {},
        told(line.told),
        element("path", {"class": f"line {tint(line.colour)}", "d": path}),
        element("path", {"class": f"tip {tint(line.colour)}", "d": tip, "stroke-dasharray": "none"}),
    )


def _at(curve: Floats, share: float) -> Floats:
    """The point of a curve at a share of its way."""
    rest = 1 - share
    weights = np.array([rest**3, 3 * rest**2 * share, 3 * rest * share**2, share**3])
    return np.asarray(weights @ curve)


def _box(centre: Floats, size: Floats) -> tuple[float, float, float, float]:
    low, high = centre - size / 2, centre + size / 2
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _clear(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def _pair(point: Floats) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
