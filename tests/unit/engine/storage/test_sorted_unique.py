import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from omnigraph.engine.storage.sorted_unique import sorted_unique


@given(st.sampled_from([np.int32, np.int64, np.uint64]).flatmap(lambda kind: arrays(kind, st.integers(0, 50))))
def test_each_number_is_there_once_and_in_order(numbers):
    before = numbers.copy()
    found = sorted_unique(numbers)
    assert found.tolist() == sorted(set(before.tolist()))
    assert found.dtype == before.dtype
    assert np.array_equal(numbers, before)
