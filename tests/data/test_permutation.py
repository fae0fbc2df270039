import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.permutation import permute


@given(st.integers(1, 3000), st.integers(-5, 2**40), st.integers(0, 100))
def test_permute_is_one_to_one_for_any_size(size: int, seed: int, epoch: int) -> None:
    order = permute(np.arange(size), size, seed, epoch)
    assert np.array_equal(np.sort(order), np.arange(size))


def test_every_small_size_is_a_permutation() -> None:
    for size in range(1, 200):
        assert len(np.unique(permute(np.arange(size), size, 1, size))) == size


@given(st.integers(1, 10**12), st.data())
def test_a_part_of_the_order_is_found_without_the_rest(size: int, data: st.DataObject) -> None:
    indices = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20)))
    order = permute(indices, size, 3)
    assert np.all((order >= 0) & (order < size))
    assert order.tolist() == [
        int(permute(indices[i : i + 1], size, 3)[0]) for i in range(len(order))
    ]
    assert len(np.unique(order)) == len(np.unique(indices))
