"""Places for boxes that lines join: near what they are joined to, and never on top of each other.

Each connected part is laid out by itself, by stress majorisation: distances on paper follow those along the lines. It
begins with the same spiral every time, so one graph has one picture. Boxes that still overlap are pushed apart, and the
parts are then put side by side. Everything is done on whole matrices; pictures have a few hundred boxes at most.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ROUNDS = 200
SETTLED = 1e-4
PUSHES = 400
MARGIN = np.array([22.0, 18.0])
"""What stays free between two boxes, across and down."""
LOOSE = 2.2
"""How much more room than the boxes themselves a connected part has at least."""
APART = 36.0
"""What stays free between two connected parts."""
STRETCH_MAX = 1.4
LONG = 1_400.0
"""How wide a connected part may become before it is laid out in rows, as a long chain is."""
ROWS_APART = 70.0
ASPECT = 1.5
"""How much wider than high a picture should be."""


def place(sizes: Floats, pairs: Ints, gaps: Floats) -> tuple[Floats, Floats]:
    """The centre of each box, and the size of the whole.

    `pairs` are the boxes that lines join, `gaps` how long each line should be outside of its boxes.

    >>> centres, whole = place(np.array([[80.0, 20.0]] * 2), np.array([[0, 1]]), np.array([50.0]))
    >>> bool(np.linalg.norm(centres[0] - centres[1]) > 50), bool((whole > 0).all())
    (True, True)
    """
    if not len(sizes):
        return np.zeros((0, 2)), np.zeros(2)
    parts = []
    for members in _connected(len(sizes), pairs):
        chosen = np.isin(pairs[:, 0], members)
        inside = np.searchsorted(members, pairs[chosen])
        places = _upright(_stressed(sizes[members], inside, gaps[chosen])) * _stretch(sizes)
        places = _folded(_roomy(places, sizes[members]))
        parts.append((members, _separate(places, sizes[members])))
    return _side_by_side(parts, sizes)


def _stretch(sizes: Floats) -> Floats:
    """How much wider than high everything becomes, so that wide boxes have as much room beside them as above."""
    shape = float(sizes[:, 0].sum() / sizes[:, 1].sum())
    return np.array([min(max(shape, 1.0), STRETCH_MAX), 1.0])


def _connected(count: int, pairs: Ints) -> list[Ints]:
    """The members of each connected part, the largest part first."""
    labels = np.arange(count)
    while True:
        lowest = labels.copy()
        np.minimum.at(lowest, pairs[:, 0], labels[pairs[:, 1]])
        np.minimum.at(lowest, pairs[:, 1], labels[pairs[:, 0]])
        if np.array_equal(lowest, labels):
            break
        labels = lowest
    parts = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return sorted(parts, key=lambda members: (-len(members), int(members[0])))


def _stressed(sizes: Floats, pairs: Ints, gaps: Floats) -> Floats:
    """Places whose distances come as near as they can to the lengths of the shortest ways."""
    count = len(sizes)
    if count == 1:
        return np.zeros((1, 2))
    wanted = _ways(sizes, pairs, gaps)
    weights = 1.0 / (wanted + np.eye(count)) ** 2 * (1 - np.eye(count))
    # Shifting everything changes nothing, so the matrix has no inverse; with the shift added it has one.
    inverse = np.linalg.inv(np.diag(weights.sum(axis=1)) - weights + 1.0 / count) - 1.0 / count
    places = _spiral(wanted)
    before = np.inf
    for _ in range(ROUNDS):
        distances = np.maximum(_distances(places), 1e-9)
        stress = float((weights * (distances - wanted) ** 2).sum())
        if before - stress < SETTLED * stress:
            break
        before = stress
        pull = -weights * wanted / distances * (1 - np.eye(count))
        places = inverse @ ((pull - np.diag(pull.sum(axis=1))) @ places)
    return places


def _ways(sizes: Floats, pairs: Ints, gaps: Floats) -> Floats:
    """The length of the shortest way between any two boxes, each line as long as its boxes and its gap ask for."""
    reach = np.sqrt(sizes[:, 0] * sizes[:, 1])
    ways = np.full((len(sizes), len(sizes)), np.inf)
    np.fill_diagonal(ways, 0.0)
    lengths = gaps + (reach[pairs[:, 0]] + reach[pairs[:, 1]]) / 2
    joined = pairs[:, 0] != pairs[:, 1]
    for one, other in ((0, 1), (1, 0)):
        np.minimum.at(ways, (pairs[joined, one], pairs[joined, other]), lengths[joined])
    for middle in range(len(sizes)):
        np.minimum(ways, ways[:, middle, None] + ways[None, middle], out=ways)
    return ways


def _spiral(ways: Floats) -> Floats:
    """A beginning: the box nearest to all others in the middle, the others around it by their distance from it."""
    order = np.argsort(ways[int(np.argmin(ways.sum(axis=1)))], kind="stable")
    turns = np.arange(len(ways)) * np.pi * (3 - np.sqrt(5))
    radius = ways.max() / 2 * np.sqrt(np.arange(len(ways)) / len(ways))
    places = np.empty((len(ways), 2))
    places[order] = np.stack([radius * np.cos(turns), radius * np.sin(turns)], axis=1)
    return places


def _distances(places: Floats) -> Floats:
    across, down = (places[:, axis, None] - places[None, :, axis] for axis in (0, 1))
    return np.sqrt(across * across + down * down)


def _upright(places: Floats) -> Floats:
    """Turned so that it is wider than high."""
    centred = places - places.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    # The direction of an axis is arbitrary: one that points to the right and down is taken.
    long, short = axes[:, 1], axes[:, 0]
    long = long if long[np.argmax(np.abs(long))] > 0 else -long
    short = short if short[np.argmax(np.abs(short))] > 0 else -short
    return np.asarray(centred @ np.stack([long, short], axis=1))


def _roomy(places: Floats, sizes: Floats) -> Floats:
    """Larger, where the boxes need more room than there is between them all."""
    needed = float((sizes + MARGIN).prod(axis=1).sum()) * LOOSE
    given = float((np.ptp(places, axis=0) + sizes.mean(axis=0)).prod())
    return np.asarray(places * max(1.0, float(np.sqrt(needed / given))))


def _folded(places: Floats) -> Floats:
    """A long and narrow part in rows that run to and fro, because as a strip it would be shown too small to read."""
    wide, high = np.ptp(places, axis=0) + np.array([0.0, ROWS_APART])
    count = round(float(np.sqrt(wide / (ASPECT * high))))
    if wide <= LONG or count < 2:
        return places
    across = places[:, 0] - places[:, 0].min()
    row = np.minimum(across // (wide / count), count - 1)
    within = across - row * (wide / count)
    back = row % 2 == 1
    return np.stack([np.where(back, wide / count - within, within), places[:, 1] + row * high], axis=1)


def _separate(places: Floats, sizes: Floats) -> Floats:
    """Pushed apart, along the direction that needs less of it, until no two boxes overlap."""
    count = len(places)
    one, other = np.triu_indices(count, 1)
    room = (sizes[one] + sizes[other]) / 2 + MARGIN
    for _ in range(PUSHES):
        apart = places[one] - places[other]
        near = np.flatnonzero((np.abs(apart) < room - 0.01).all(axis=1))
        if not len(near):
            break
        overlap = room[near] - np.abs(apart[near])
        # Of two boxes in the very same place, the later one goes right or down.
        push = overlap * np.where(apart[near] > 0, 0.5, -0.5)
        across = overlap[:, 0] < overlap[:, 1]
        push[across, 1], push[~across, 0] = 0.0, 0.0
        ends = np.concatenate([one[near], other[near]])
        # Less where many push at once, so that nothing is thrown about.
        crowd = np.sqrt(np.maximum(np.bincount(ends, minlength=count), 1.0))
        for axis in (0, 1):
            both = np.concatenate([push[:, axis], -push[:, axis]])
            places[:, axis] += np.bincount(ends, both, minlength=count) / crowd
    return places


def _side_by_side(parts: list[tuple[Ints, Floats]], sizes: Floats) -> tuple[Floats, Floats]:
    """The parts in rows, the largest first, smaller ones below each other, in about the shape of a page."""
    boxes = []
    for members, places in parts:
        low = (places - sizes[members] / 2).min(axis=0)
        high = (places + sizes[members] / 2).max(axis=0)
        boxes.append((members, places - low, high - low))
    area = sum(float(np.prod(size + APART)) for *_, size in boxes)
    width = max(float(np.sqrt(area * ASPECT)), max(float(size[0]) for *_, size in boxes))
    centres = np.zeros_like(sizes)
    left = top = row_height = right = 0.0
    column_top = column_width = 0.0
    for members, places, size in boxes:
        if column_top + float(size[1]) > row_height or float(size[0]) > column_width:
            # It does not fit below the one before it: a new column, or a new row.
            left, column_top, column_width = left + column_width + (APART if column_width else 0), 0.0, float(size[0])
            if left > 0 and left + column_width > width:
                left, top, row_height = 0.0, top + row_height + APART, 0.0
        centres[members] = places + np.array([left, top + column_top])
        column_top += float(size[1]) + APART
        row_height = max(row_height, column_top - APART)
        right = max(right, left + float(size[0]))
    return centres, np.array([right, top + row_height])
