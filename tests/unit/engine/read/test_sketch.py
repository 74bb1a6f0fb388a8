"""Sketches: their bounds hold, and what they rule out is never among the nearest."""

import numpy as np
import pytest

from omnigraph.engine.read.vector import quantised as sketches
from omnigraph.engine.read.vector.quantised import Chosen, as_arrays, build_sketch, from_arrays, narrow


def isotropic(rng, rows, dimension):
    return rng.standard_normal((rows, dimension))


def like_embeddings(rng, rows, dimension):
    """Clusters, and directions that matter less and less."""
    weights = np.arange(1, dimension + 1) ** -0.6
    centres = rng.standard_normal((12, dimension)) * weights
    return centres[rng.integers(0, 12, rows)] + 0.5 * rng.standard_normal((rows, dimension)) * weights + 0.3


def far_from_the_origin(rng, rows, dimension):
    return 1e4 + 1e-2 * rng.standard_normal((rows, dimension))


def of_all_sizes(rng, rows, dimension):
    return rng.standard_normal((rows, dimension)) * 10.0 ** rng.integers(-20, 7, (rows, 1))


def mostly_equal(rng, rows, dimension):
    return rng.integers(0, 2, (rows, dimension)) * np.where(rng.random((rows, 1)) < 0.5, 0.0, 1.0)


SHAPES = [isotropic, like_embeddings, far_from_the_origin, of_all_sizes, mostly_equal]


def exact(matrix, query, rows=slice(None)):
    difference = matrix[rows].astype(np.float64) - query.astype(np.float64)
    return (difference * difference).sum(axis=1)


def queries(rng, matrix):
    """Stored vectors, vectors near them, and vectors anywhere."""
    picks = matrix[rng.integers(0, len(matrix), 3)]
    spread = np.abs(matrix).max()
    return [*picks, *(picks * np.float32(1.01)), *(rng.standard_normal((2, matrix.shape[1])) * spread)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("dimension", [1, 3, 65, 128])
def test_no_bound_is_above_the_exact_distance(shape, dimension):
    rng = np.random.default_rng(dimension)
    matrix = shape(rng, 3000, dimension).astype(np.float32)
    sketch = build_sketch(matrix, None)
    for query in queries(rng, matrix):
        query = query.astype(np.float32)
        distances = exact(matrix, query)
        for level in sketch.levels():
            bounds = sketches._bounds(sketch, level, query.astype(np.float64) - sketch.centre, None)
            assert (bounds.least() <= distances).all()
            for known in (0.0, *np.quantile(distances, [0.001, 0.1, 1.0]).tolist(), np.inf):
                assert bounds.close(known).tolist() == np.flatnonzero(bounds.least() <= known).tolist()
            some = np.flatnonzero(rng.random(len(matrix)) < 0.1)
            fewer = sketches._bounds(sketch, level, query.astype(np.float64) - sketch.centre, some)
            assert (fewer.least() <= distances[some]).all()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("count", [1, 10, 100])
def test_the_nearest_are_always_left(shape, count):
    rng = np.random.default_rng(count)
    matrix = shape(rng, 5000, 96).astype(np.float32)
    valid = rng.random(len(matrix)) < 0.9
    matrix[~valid] = np.nan
    sketch = build_sketch(matrix, valid)
    for query in queries(rng, matrix[valid]):
        query = query.astype(np.float32)
        for asked in (None, np.flatnonzero(rng.random(len(matrix)) < 0.5), np.flatnonzero(rng.random(5000) < 0.05)):

            def measure(rows, query=query):
                return np.where(valid[rows], exact(matrix, query, rows), np.inf)

            left, known = narrow(sketch, query, Chosen(asked), count, np.inf, measure)
            everyone = np.arange(len(matrix)) if asked is None else asked
            distances = measure(everyone)
            last = np.partition(distances, count - 1)[count - 1]
            assert known >= last
            assert set(everyone[distances <= last]) <= set(left)
        gone = np.flatnonzero(rng.random(len(matrix)) < 0.02)
        left, known = narrow(sketch, query, Chosen(without=gone), count, np.inf, measure)
        distances = measure(np.arange(len(matrix)))
        distances[gone] = np.inf
        last = np.partition(distances, count - 1)[count - 1]
        assert known >= last
        assert set(np.flatnonzero(distances <= last)) <= set(left)
        assert not set(left) & set(gone)


def test_directions_are_found_where_there_are_some_and_only_there():
    rng = np.random.default_rng(0)
    assert build_sketch(like_embeddings(rng, 9000, 128).astype(np.float32), None).head is not None
    assert build_sketch(isotropic(rng, 9000, 128).astype(np.float32), None).head is None


def test_few_rows_of_vectors_like_embeddings_are_left():
    rng = np.random.default_rng(1)
    matrix = like_embeddings(rng, 20_000, 128).astype(np.float32)
    sketch = build_sketch(matrix[20:], None)
    for query in matrix[:20]:
        left, _ = narrow(sketch, query, Chosen(), 10, np.inf, lambda rows, q=query: exact(matrix[20:], q, rows))
        assert len(left) < 300


def test_a_distance_known_before_rules_out_everything_beyond_it():
    rng = np.random.default_rng(2)
    matrix = isotropic(rng, 4000, 32).astype(np.float32)
    sketch = build_sketch(matrix, None)
    query = matrix[7]
    left, known = narrow(sketch, query, Chosen(), 5, 0.0, lambda rows: exact(matrix, query, rows))
    assert left.tolist() == [7]
    assert known == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_vectors_that_cannot_be_squared_have_no_sketch(bad):
    matrix = np.ones((100, 4), dtype=np.float32)
    matrix[50, 2] = bad
    assert build_sketch(matrix, None) is None


def test_rows_without_a_vector_do_not_count():
    matrix = np.ones((100, 4), dtype=np.float32)
    assert build_sketch(matrix, np.zeros(100, dtype=bool)) is None
    matrix[50] = np.nan
    sketch = build_sketch(matrix, np.arange(100) != 50)
    assert np.flatnonzero(np.isinf(sketch.body.squares)).tolist() == [50]


@pytest.mark.parametrize("left", [1, 3, 9, 10, 11])
def test_deleted_rows_rule_out_nothing_where_fewer_are_left_than_wanted(left):
    rng = np.random.default_rng(left)
    matrix = like_embeddings(rng, 5000, 96).astype(np.float32)
    sketch = build_sketch(matrix, None)
    assert sketch.head is not None
    kept = np.sort(rng.choice(5000, left, replace=False))
    gone = np.setdiff1d(np.arange(5000), kept)
    for query in queries(rng, matrix):
        query = query.astype(np.float32)
        found, known = narrow(
            sketch, query, Chosen(without=gone), 10, np.inf, lambda rows, query=query: exact(matrix, query, rows)
        )
        nearest = kept[np.argsort(exact(matrix, query, kept))[:10]]
        assert set(nearest.tolist()) <= set(found.tolist()) <= set(kept.tolist())
        assert known >= (exact(matrix, query, nearest).max() if left > 9 else np.inf)


def test_a_sketch_survives_being_taken_apart_and_a_wrong_one_is_refused():
    rng = np.random.default_rng(3)
    sketch = build_sketch(like_embeddings(rng, 9000, 128).astype(np.float32), None)
    arrays = as_arrays(sketch)
    again = from_arrays(arrays, 9000)
    assert all(np.array_equal(one, two) for one, two in zip(arrays.values(), as_arrays(again).values(), strict=True))
    assert from_arrays(arrays, 8999) is None
    assert from_arrays({**arrays, "centre": arrays["centre"][:5]}, 9000) is None
    assert from_arrays({**arrays, "head_codes": arrays["head_codes"][:, :4]}, 9000) is None
    assert from_arrays({name: array for name, array in arrays.items() if name != "body_lost"}, 9000) is None
