"""Array work on positions, compared with the obvious loops."""

import numpy as np
import pytest

from omnigraph.engine.read.kernels import (
    build_csr,
    combine,
    distinct,
    expand_met,
    expand_slots,
    find_pairs,
    first_of_pair,
    plain_degrees,
    ranges,
    shortest_distances,
    slot_starts,
    sums_by_start,
)


def anything(total):
    pass


def random_edges(seed, nodes=12, edges=40):
    rng = np.random.default_rng(seed)
    return rng.integers(0, nodes, edges), rng.integers(0, nodes, edges)


@pytest.mark.parametrize("seed", range(10))
def test_expanding_lists_every_edge_of_every_node_asked_for(seed):
    starts, ends = random_edges(seed)
    csr = build_csr(starts, ends, np.arange(len(starts)))
    nodes = np.random.default_rng(seed).integers(0, 15, 9)
    slots, owner = expand_slots(csr, nodes, None, anything)
    found = sorted(zip(owner.tolist(), csr.neighbours[slots].tolist(), csr.rows[slots].tolist(), strict=True))
    expected = sorted(
        (place, int(ends[row]), row) for place, node in enumerate(nodes) for row in np.flatnonzero(starts == node)
    )
    assert found == expected


@pytest.mark.parametrize("seed", range(10))
def test_a_pair_is_met_once_and_only_through_a_live_edge(seed):
    starts, ends = random_edges(seed, nodes=4, edges=30)
    csr = build_csr(starts, ends, np.arange(len(starts)))
    live = np.random.default_rng(seed).random(len(starts)) < 0.5
    first = first_of_pair(csr, live)
    everything = np.arange(4)
    slots, owner = expand_slots(csr, everything, first, anything)
    met = list(zip(owner.tolist(), csr.neighbours[slots].tolist(), strict=True))
    alive = csr.rows[np.flatnonzero(live)]
    assert len(met) == len(set(met))
    assert set(met) == {(int(starts[row]), int(ends[row])) for row in alive}


@pytest.mark.parametrize("seed", range(10))
def test_finding_pairs_agrees_with_a_set(seed):
    starts, ends = random_edges(seed)
    csr = build_csr(starts, ends, np.arange(len(starts)))
    rng = np.random.default_rng(seed + 100)
    asked = rng.integers(0, 20, 200), rng.integers(0, 20, 200)
    known = set(zip(starts.tolist(), ends.tolist(), strict=True))
    found = find_pairs(csr, *asked) >= 0
    assert found.tolist() == [pair in known for pair in zip(asked[0].tolist(), asked[1].tolist(), strict=True)]


def test_finding_pairs_in_no_edges_finds_none():
    empty = np.empty(0, dtype=np.int64)
    assert find_pairs(build_csr(empty, empty, empty), np.array([0, 1]), np.array([0, 1])).tolist() == [-1, -1]


def test_degrees_count_only_what_the_mask_admits():
    csr = build_csr(np.array([0, 0, 2]), np.array([1, 2, 0]), np.arange(3))
    assert plain_degrees(csr, np.array([2, 1, 0, 9])).tolist() == [1, 0, 2, 0]
    assert sums_by_start(csr, np.array([True, False, True])).tolist() == [1, 0, 1]


def test_nodes_without_edges_are_addressable_and_lead_nowhere():
    csr = build_csr(np.array([0, 0, 2]), np.array([1, 2, 0]), np.arange(3), node_count=5)
    assert (csr.node_count, csr.start_bound, csr.neighbour_bound) == (5, 3, 3)
    anything = [].append
    assert expand_met(csr, np.array([4, 2, 7]), None, anything).tolist() == [0]
    assert expand_met(csr, np.array([7]), None, anything).tolist() == []
    assert expand_met(csr, np.array([0]), np.array([False, True, True]), anything).tolist() == [2]


def test_the_starts_of_few_slots_are_those_of_many(monkeypatch):
    csr = build_csr(np.array([5, 0, 0, 2]), np.array([1, 2, 0, 3]), np.arange(4), node_count=500)
    assert slot_starts(csr).tolist() == [0, 0, 2, 5]
    monkeypatch.setattr("omnigraph.engine.read.kernels.FEW_SLOTS_FACTOR", 0)
    assert slot_starts(csr).tolist() == [0, 0, 2, 5]


def test_edges_too_many_to_be_sorted_as_single_integers_are_sorted_all_the_same():
    rng = np.random.default_rng(3)
    starts, ends = rng.integers(0, 2**31 - 1, (2, 25))
    rows = rng.permutation(25).astype(np.int64) + 2**40
    csr = build_csr(starts % 1000, ends, rows)
    assert len(csr.neighbours) == 25
    assert not csr.has_parallel
    assert csr.rows.dtype == np.int64
    by_start = np.lexsort((ends, starts % 1000))
    assert csr.neighbours.tolist() == ends[by_start].tolist()
    assert csr.rows.tolist() == rows[by_start].tolist()


def test_the_number_of_slots_is_announced_before_they_are_listed():
    csr = build_csr(np.zeros(5, dtype=np.int64), np.arange(5), np.arange(5))

    def refuse(total):
        raise MemoryError(total)

    with pytest.raises(MemoryError, match="10"):
        expand_slots(csr, np.array([0, 0]), None, refuse)
    with pytest.raises(MemoryError, match="5"):
        expand_slots(csr, np.array([0]), None, refuse)


@pytest.mark.parametrize("seed", range(10))
def test_shortest_distances_agree_with_a_breadth_first_search_per_start(seed):
    starts, ends = random_edges(seed, nodes=10, edges=18)
    csr = build_csr(starts, ends, np.arange(len(starts)))

    def neighbours(nodes):
        slots, owner = expand_slots(csr, nodes, None, anything)
        return csr.neighbours[slots].astype(np.int64), owner

    sources = np.arange(10)
    met, owner, distance = shortest_distances(sources, neighbours, 10, 0, 3)
    found = sorted(zip(owner.tolist(), met.tolist(), distance.tolist(), strict=True))
    expected = []
    for source in range(10):
        seen, ring = {source: 0}, [source]
        for hop in range(1, 4):
            ring = [
                int(end)
                for node in ring
                for end in ends[starts == node]
                if int(end) not in seen and not seen.update({int(end): hop})
            ]
        expected += [(source, node, hops) for node, hops in seen.items()]
    assert found == sorted(expected)


def test_ranges_are_listed_one_after_the_other():
    values, owner = ranges(np.array([5, 0, 9]), np.array([2, 0, 3]))
    assert values.tolist() == [5, 6, 9, 10, 11]
    assert owner.tolist() == [0, 0, 2, 2, 2]


def test_distinct_numbers_rows_in_ascending_order_however_wide_the_values():
    for wide in (1, 2**40):
        a, b = np.array([3, 1, 3, 1]) * wide, np.array([0, 2, 0, 1])
        first, group = distinct([a, b], [3 * wide + 1, 3])
        assert group.tolist() == [2, 1, 2, 0]
        assert first.tolist() == [3, 1, 0]


def test_combining_columns_keeps_order_when_the_product_does_not_fit():
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 2**31, 50) for _ in range(4)]
    key = combine(columns, [2**31] * 4)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert [rows[i] for i in np.argsort(key, kind="stable")] == sorted(rows)
