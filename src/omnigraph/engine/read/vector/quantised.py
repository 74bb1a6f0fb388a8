"""Sketches: vectors in a byte per number, good enough to prove most of them too far away to matter.

A sketch holds the vectors of some data files, seen from their centre. Its *body* is every number as a byte, with a
scale per row. Where a few directions hold most of what tells the vectors apart, its *head* is their coordinates in
those directions, as bytes too, and a search reads the head first. Both give a lower bound of every distance, because
the length of what the bytes leave out is known, and so is the length outside the directions of the head: two vectors
are no nearer than their bytes are, less those lengths. Rows whose bound is above distances that are known already need
not be measured. The bounds allow for every rounding, so a sketch changes what a search costs and never what it finds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import simsimd
from msgspec import Struct

from omnigraph.engine.read.kernels import Bools, Ints

Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.int8]

EPS = float(np.finfo(np.float32).eps)
ROUNDING = 32 * EPS
"""Share of the squared lengths that all roundings of one estimate together stay far below."""
LENGTH_MAX = 1e15
"""Vectors longer than this would overflow when squared in single precision; they are measured one by one."""
TINY = 1e-30
FINITE_MAX = float(np.finfo(np.float32).max)
LEVEL_MAX = 127
DIMENSION_MAX = 16_384
"""Longer vectors are measured: the sum of so many products of bytes would not be exact."""
HEAD_STEP = 32
HEAD_SHARE = 0.6
"""How much of the spread of the vectors a head has to hold."""
HEAD_WIDTH_SHARE = 2
"""A head is at most one part in so many of the numbers: a wider one saves too little."""
SAMPLE_ROWS = 4096
BLOCK_ROWS = 16_384
SEED_BLOCK = 256
SHARED_BYTES_MIN = 8 << 20
"""From so many bytes on several threads multiply them, which reads memory quicker than one does."""
THREADS = min(os.cpu_count() or 1, 8)
MEASURED_AT_ONCE = 64
"""So few rows, or twice the number wanted, are measured without narrowing them further."""


class Level(Struct, frozen=True, dict=True):
    """Vectors of one width as bytes: number j of row i is about `scales[i] * codes[i, j]`."""

    codes: Bytes
    scales: Singles
    squares: Singles
    """Squared length of what the bytes hold, less the share for rounding; infinite where there is no vector."""
    lost: Singles
    """At least the length of what the bytes leave out."""
    outside: Singles
    """About the length outside the directions of a head; nothing in a body."""

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        return sum(int(getattr(self, name).nbytes) for name in PARTS)

    @cached_property
    def most_lost(self) -> float:
        """What the bytes of no row leave out more than."""
        return float(self.lost.max(initial=0.0))


PARTS = ("codes", "scales", "squares", "lost", "outside")


class Sketch(Struct, frozen=True):
    """The vectors of one group of fragments, deleted rows included."""

    centre: Singles
    basis: Singles
    """The directions of the head, one per column; none when there is no head."""
    head: Level | None
    body: Level
    longest: float
    """No vector is longer, seen from the centre."""

    def __len__(self) -> int:
        return len(self.body.scales)

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        return int(self.centre.nbytes + self.basis.nbytes + sum(level.nbytes for level in self.levels()))

    def levels(self) -> list[Level]:
        """The levels in the order a search asks them."""
        return [self.body] if self.head is None else [self.head, self.body]


def build_sketch(matrix: Singles, valid: Bools | None) -> Sketch | None:
    """Sketch a matrix; None when its vectors are too long or not finite, and have to be measured instead."""
    rows, dimension = matrix.shape
    if dimension > DIMENSION_MAX:
        return None
    held = np.arange(rows) if valid is None else np.flatnonzero(valid)
    if not len(held):
        return None
    generator = np.random.default_rng(len(held))
    sample = matrix[np.sort(generator.permutation(held)[: 2 * SAMPLE_ROWS])]
    if not _is_tame(sample):
        return None
    centre = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    basis = _directions(sample - centre, generator)
    body, head = _empty_level(rows, dimension), _empty_level(rows, basis.shape[1])
    longest = 0.0
    for begin in range(0, rows, BLOCK_ROWS):
        span = slice(begin, min(begin + BLOCK_ROWS, rows))
        moved = matrix[span] - centre
        if valid is not None:
            moved[~valid[span]] = 0
        if not _is_tame(moved):
            return None
        lengths = _lengths(moved)
        longest = max(longest, float(lengths.max()))
        _fill(body, span, moved, lengths, 0.0)
        if basis.shape[1]:
            coordinates = moved.astype(np.float64) @ basis
            _fill(head, span, coordinates.astype(np.float32), lengths, _basis_error(basis))
    if valid is not None:
        for level in (body, head):
            level.squares[~valid] = np.inf
    return Sketch(centre, basis, head if basis.shape[1] else None, body, longest * (1 + 8 * EPS))


def _is_tame(block: Singles) -> bool:
    top = float(np.abs(block).max(initial=0.0))
    return math.isfinite(top) and top * math.sqrt(block.shape[1]) < LENGTH_MAX


def _empty_level(rows: int, width: int) -> Level:
    scales, squares, lost, outside = (np.zeros(rows, dtype=np.float32) for _ in range(4))
    return Level(np.empty((rows, width), dtype=np.int8), scales, squares, lost, outside)


def _basis_error(basis: Singles) -> float:
    """How far coordinates may be from those in truly orthonormal directions, as a share of the vector's length.

    Directions are orthonormal up to the rounding of their numbers to single precision, which is half of this.
    """
    return EPS * math.sqrt(basis.shape[1])


def _outside_error(error: float) -> float:
    """How far the length outside the head's directions may be from the truth, as a share of the vector's length."""
    return math.sqrt(2 * error + error * error + 8 * EPS)


def _fill(level: Level, span: slice, numbers: Singles, lengths: Doubles, error: float) -> None:
    """Put rows into a level. `lengths` are those of the whole vectors, `error` how far the numbers may be off."""
    top = np.abs(numbers).max(axis=1)
    scales = np.where(top > TINY, top / np.float32(LEVEL_MAX), 0).astype(np.float32)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    codes = np.rint(numbers * inverse[:, None])
    np.clip(codes, -LEVEL_MAX, LEVEL_MAX, out=codes)
    level.codes[span] = codes
    level.scales[span] = scales
    codes *= scales[:, None]
    level.squares[span] = _lengths(codes) ** 2 * (1 - ROUNDING)
    numbers = numbers - codes
    level.lost[span] = _lengths(numbers) + (error + 8 * EPS) * lengths
    if error:
        level.outside[span] = np.sqrt(np.maximum(lengths**2 - _lengths(numbers + codes) ** 2, 0))


def _lengths(block: Singles) -> Doubles:
    squares: Doubles = np.einsum("ij,ij->i", block, block, dtype=np.float64)
    return np.sqrt(squares)


def _directions(sample: Singles, generator: np.random.Generator) -> Singles:
    """Directions that hold most of the spread, the strongest first; none when too many would be needed.

    They are found on one half of a sample and judged on the other, so that noise does not look like structure. Any
    orthonormal directions are right; good ones only make the bounds tighter.
    """
    fit, judge = sample[::2].astype(np.float64), sample[1::2].astype(np.float64)
    dimension = sample.shape[1]
    most = dimension // HEAD_WIDTH_SHARE // HEAD_STEP * HEAD_STEP
    none = np.empty((dimension, 0), dtype=np.float32)
    if not most or len(judge) < 2 * dimension:
        return none
    basis = np.linalg.qr(generator.standard_normal((dimension, most)))[0]
    for _ in range(3):
        basis = np.linalg.qr(fit.T @ (fit @ basis))[0]
    spread, turn = np.linalg.eigh((coordinates := fit @ basis).T @ coordinates)
    basis = basis @ turn[:, np.argsort(spread)[::-1]]
    shares = np.cumsum(((judge @ basis) ** 2).sum(axis=0)) / max(float((judge**2).sum()), TINY)
    widths = np.arange(HEAD_STEP, most + 1, HEAD_STEP)
    enough = widths[shares[widths - 1] >= HEAD_SHARE]
    return np.ascontiguousarray(basis[:, : enough[0]], dtype=np.float32) if len(enough) else none


# --- searching --------------------------------------------------------------------------------------------------------

Measure = Callable[[Ints], Doubles]
"""The exact squared distances of some rows, infinite where there is no vector."""


class Bounds(Struct, frozen=True):
    """What one level knows of the squared distances of some rows, or of all."""

    level: Level
    rows: Ints | None
    core: Singles
    """The squared distance between what the bytes hold, rounded down."""
    estimate: Singles
    """About the squared distance."""
    lost: float
    """At least the length of what the bytes of the query leave out."""
    beyond: float = 0.0
    """About the length of the query outside the directions of a head."""
    slack: float | None = None
    """How far lengths outside may be off; None for a body."""

    def least(self, which: Ints | None = None) -> Singles:
        """What the squared distances are no less than, of some of the rows or of all."""
        rows = which if self.rows is None else self.rows if which is None else self.rows[which]
        missing = self.level.lost if rows is None else self.level.lost[rows]
        least: Singles = np.sqrt(np.maximum(self.core if which is None else self.core[which], 0))
        least -= missing
        least -= np.float32(self.lost)
        np.maximum(least, 0, out=least)
        least *= least
        if self.slack is not None:
            outside = self.level.outside if rows is None else self.level.outside[rows]
            gap = np.abs(outside - np.float32(self.beyond))
            gap -= np.float32(self.slack)
            np.maximum(gap, 0, out=gap)
            gap *= gap
            least += gap
        least *= np.float32(1 - ROUNDING)
        return least

    def close(self, known: float) -> Ints:
        """The rows that may be within a known squared distance; what is known of most is asked of them alone.

        No row loses more than the one that loses most, so a distance of bytes above all of it settles the matter. Rows
        infinitely far are deleted or have no vector: they never stay, so that the next level, which does not know
        of deletions, cannot take them for near ones.
        """
        reach = (math.sqrt(known / (1 - ROUNDING)) + self.level.most_lost + self.lost) * (1 + 16 * EPS)
        which = np.flatnonzero(self.core <= min(reach * reach * (1 + 16 * EPS), FINITE_MAX))
        return np.asarray(which[self.least(which) <= known])


class Chosen(Struct, frozen=True):
    """Which rows a search is about: some, ascending, or all of them but a few."""

    rows: Ints | None = None
    without: Ints | None = None

    def count_of(self, total: int) -> int:
        """How many those are."""
        if self.rows is not None:
            return len(self.rows)
        return total - (0 if self.without is None else len(self.without))


def narrow(
    sketch: Sketch, query: Singles, chosen: Chosen, count: int, known: float, measure: Measure
) -> tuple[Ints, float]:
    """The rows that may be among the `count` nearest; as long as nothing is known, those left out may be among them.

    `known` is a distance that so many rows are known to be within, infinite at first; a smaller one comes back.
    """
    rows = chosen.rows
    moved = query.astype(np.float64) - sketch.centre
    for level in sketch.levels():
        if rows is not None and len(rows) <= max(MEASURED_AT_ONCE, 2 * count):
            break
        bounds = _bounds(sketch, level, moved, rows)
        if rows is None and chosen.without is not None:
            bounds.estimate[chosen.without] = np.inf
            bounds.core[chosen.without] = np.inf
        known = min(known, distance_within(bounds.estimate, rows, count, measure))
        close = bounds.close(known)
        rows = close if rows is None else rows[close]
    return np.arange(len(sketch)) if rows is None else rows, known


def distance_within(estimate: Singles, rows: Ints | None, count: int, measure: Measure) -> float:
    """A distance that at least `count` rows are within, found by measuring those that look nearest."""
    seeds = _smallest(estimate, count)
    seeds = seeds[np.isfinite(estimate[seeds])]
    if len(seeds) < count:
        return math.inf
    return float(np.partition(measure(seeds if rows is None else rows[seeds]), count - 1)[count - 1])


def _smallest(values: Singles, count: int) -> Ints:
    """About the places of the `count` smallest values, and exactly so many (if there are).

    The smallest of each block is nearly as good as the smallest of all, and found without sorting.
    """
    blocks = len(values) // SEED_BLOCK
    if blocks < 4 * count:
        return np.argpartition(values, count - 1)[:count] if count < len(values) else np.arange(len(values))
    folded = values[: blocks * SEED_BLOCK].reshape(SEED_BLOCK, blocks)
    chosen = np.argpartition(folded.min(axis=0), count - 1)[:count]
    return np.asarray(np.argmin(folded[:, chosen], axis=0) * blocks + chosen)


def _bounds(sketch: Sketch, level: Level, moved: Doubles, rows: Ints | None) -> Bounds:
    """Estimate distances from one level, for some rows or for all."""
    if rows is not None and 4 * len(rows) >= len(sketch):
        whole = _bounds(sketch, level, moved, None)
        core = whole.core[rows]
        estimate = core if whole.estimate is whole.core else whole.estimate[rows]
        return Bounds(level, rows, core, estimate, whole.lost, whole.beyond, whole.slack)
    error = _basis_error(sketch.basis) if level is sketch.head else 0.0
    # Not by the matrix library: waking its threads takes longer than such a small product.
    numbers = np.einsum("i,ij->j", moved, sketch.basis) if error else moved
    scale = float(np.abs(numbers).max()) / LEVEL_MAX
    asked = np.rint(numbers / scale).astype(np.int8) if scale > TINY else np.zeros(len(numbers), dtype=np.int8)
    held = scale * asked.astype(np.float64)
    length = math.sqrt(float(np.vdot(moved, moved)))
    lost = math.sqrt(float(((numbers - held) ** 2).sum())) + (error + EPS) * length
    codes, scales, squares = level.codes, level.scales, level.squares
    if rows is not None:
        codes, scales, squares = codes[rows], scales[rows], squares[rows]
    core = _products(asked, codes)
    core *= scales
    core *= np.float32(-2 * scale)
    core += squares
    core += np.float32(float(np.vdot(held, held)) * (1 - ROUNDING))
    lost *= 1 + 8 * EPS
    if not error:
        return Bounds(level, rows, core, core, lost)
    outside = level.outside if rows is None else level.outside[rows]
    beyond = math.sqrt(max(length * length - float(np.vdot(numbers, numbers)), 0.0))
    slack = _outside_error(error) * (sketch.longest + length)
    return Bounds(level, rows, core, core + outside * outside, lost, beyond, slack)


def _products(asked: Bytes, codes: Bytes) -> Singles:
    """The scalar product of one row of bytes with each of many."""
    found: Singles = np.empty(len(codes), dtype=np.float32)
    if len(codes):
        threads = THREADS if codes.nbytes >= SHARED_BYTES_MIN else 1
        simsimd.cdist(asked[None], codes, metric="dot", out=found[None], out_dtype="f32", threads=threads)
    return found


def as_arrays(sketch: Sketch) -> dict[str, Any]:
    """The arrays of a sketch, by the names `from_arrays` knows."""
    arrays: dict[str, Any] = {"centre": sketch.centre, "basis": sketch.basis, "longest": np.array([sketch.longest])}
    for name, level in (("body", sketch.body), ("head", sketch.head)):
        if level is not None:
            arrays |= {f"{name}_{part}": getattr(level, part) for part in PARTS}
    return arrays


def from_arrays(arrays: dict[str, Any], rows: int) -> Sketch | None:
    """A sketch that was kept, or None when the arrays are not those of one."""
    try:
        centre, basis, longest = arrays["centre"], arrays["basis"], float(arrays["longest"][0])
        body, head = _level(arrays, "body"), _level(arrays, "head") if "head_codes" in arrays else None
    except (KeyError, IndexError):
        return None
    sketch = Sketch(centre, basis, head, body, longest)
    whole = all(len(getattr(level, part)) == rows for level in sketch.levels() for part in PARTS)
    widths = body.codes.shape[1] == len(centre) == len(basis)
    width = 0 if head is None else head.codes.shape[1]
    return sketch if whole and widths and basis.shape[1] == width else None


def _level(arrays: dict[str, Any], name: str) -> Level:
    return Level(*(arrays[f"{name}_{part}"] for part in PARTS))
