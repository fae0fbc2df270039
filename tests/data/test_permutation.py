import numpy as np
import pytest
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


@pytest.mark.parametrize("size", [1000, 1024, 10_007])
def test_neighbours_do_not_stay_together(size: int) -> None:
    order = permute(np.arange(size), size, 0, 0)
    distances = np.abs(np.diff(order))
    # Of a random order, 2 in `size` neighbors stay neighbors, and the mean distance is a third.
    assert (distances == 1).sum() < 15
    assert abs(distances.mean() / size - 1 / 3) < 0.03
    assert abs(np.corrcoef(np.arange(size), order)[0, 1]) < 5 / size**0.5


def test_any_element_may_come_first() -> None:
    size, keys = 40, 2000
    firsts = [int(permute(np.array([0]), size, 0, key)[0]) for key in range(keys)]
    counts = np.bincount(firsts, minlength=size)
    chi_square = ((counts - keys / size) ** 2 / (keys / size)).sum()
    assert chi_square < 39 + 5 * (2 * 39) ** 0.5


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {tuple(permute(np.arange(100), 100, *key)) for key in [(0, 0), (0, 1), (1, 0), (1, 1)]}
    assert len(orders) == 4
