"""The computed order looks like a uniformly random one, and orders that do not are refused.

An order fails at a p-value below 1e-6. Here are about 500 of them, so that with other keys a
perfect order would fail one time in 2,000; with these it does not. A bad order is refused at a
p-value below 1e-9. research/decisions/0007-order-of-16-half-rounds.md has large orders.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from maskwright.data import permutation as order_module
from maskwright.data.permutation import permute
from tests.data import bad_orders
from tests.data.randomness import (
    Order,
    arrangements,
    compare,
    examine,
    order_types,
    parity,
    places,
    take_sample,
)

Keys = Callable[[int], list[tuple[int, int]]]

PASSES, REFUSED = 1e-6, 1e-9
# Primes, squares and their neighbors, powers of two, many factors; 160,000 images of each.
SIZES = [97, 100, 1023, 1024, 1025, 5041, 65_536, 100_003]
FEW = [6, 7, 8, 9, 12, 15, 16, 24, 25, 35, 48, 49]


def epochs(num: int) -> list[tuple[int, int]]:
    return [(11, epoch) for epoch in range(num)]


def seeds(num: int) -> list[tuple[int, int]]:
    return [(100 + seed, 0) for seed in range(num)]


def p_values(
    order: Order, size: int, keys: list[tuple[int, int]], start: int = 0, length: int = 0
) -> Iterator[tuple[str, float]]:
    """Of the orders of all keys but the last, and from each key to the next."""
    both = take_sample(order, size, keys, start, length)
    first, second = both.select(slice(len(keys) - 1)), both.select(slice(1, None))
    yield from examine(first)
    yield from compare(first, second)


def failures(named: Iterator[tuple[str, float]]) -> dict[str, float]:
    return {name: p for name, p in named if p < PASSES}


@pytest.mark.parametrize(("size", "keys"), [*((size, epochs) for size in SIZES), (1025, seeds)])
def test_nothing_tells_the_order_from_a_random_one(size: int, keys: Keys) -> None:
    assert failures(p_values(permute, size, keys(max(4, 80_000 // size)))) == {}


@pytest.mark.parametrize("keys", [epochs, seeds])
@pytest.mark.parametrize("size", [10**9 + 7, 10**12])
def test_nothing_tells_a_part_of_a_huge_order_from_a_random_one(size: int, keys: Keys) -> None:
    assert failures(p_values(permute, size, keys(4), start=size // 3, length=40_000)) == {}


@pytest.mark.parametrize("size", FEW)
def test_orders_of_few_elements_have_no_favourites(size: int) -> None:
    sample = take_sample(permute, size, epochs(300))
    for statistic in (places, order_types, parity):
        assert statistic(sample) > PASSES, statistic.__name__


@pytest.mark.parametrize(("size", "num_keys"), [(1, 3), (2, 200), (3, 300), (4, 480), (5, 1800)])
def test_all_orders_of_a_few_elements_are_equally_frequent(size: int, num_keys: int) -> None:
    orders = take_sample(permute, size, epochs(num_keys)).images
    assert len(np.unique(orders, axis=0)) == np.prod(np.arange(1, size + 1))
    if size > 1:
        assert arrangements(orders) > PASSES


def test_numpy_s_order_passes_and_its_p_values_are_uniform() -> None:
    """So the laws are right, and a refusal says something about the order."""
    found = [
        p
        for size in (97, 1024, 5041)
        for keys in (epochs, seeds)
        for _, p in p_values(bad_orders.shuffle_by_numpy, size, keys(60_000 // size))
    ]
    assert min(found) > PASSES
    for share in (0.05, 0.25, 0.5, 0.75):  # of some 200, of which some depend on one another
        assert abs(np.mean(np.array(found) < share) - share) < 0.12


REFUSALS = [
    ("places", bad_orders.shuffle_within_blocks),
    ("kept neighbors", bad_orders.shuffle_blocks),
    ("order types", bad_orders.step_around),
    ("parity", bad_orders.swap_evenly),
    ("distances at lag 1", bad_orders.shuffle_blocks),
    ("shared lines of 32 at lag 32", bad_orders.shuffle_blocks),
    ("matches", bad_orders.forget_the_key),
    ("joint places", bad_orders.turn_with_the_epoch),
]


@pytest.mark.parametrize(("statistic", "order"), REFUSALS, ids=[name for name, _ in REFUSALS])
def test_every_statistic_refuses_a_bad_order(statistic: str, order: Order) -> None:
    assert next(p for name, p in p_values(order, 1024, epochs(60)) if name == statistic) < REFUSED


@pytest.mark.parametrize("half_rounds", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [100, 256, 1024])
def test_too_few_half_rounds_are_refused(
    size: int, half_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_module, "_HALF_ROUNDS", half_rounds)
    found = p_values(permute, size, epochs(80_000 // size))
    assert any(p < REFUSED for _, p in found)


def test_half_rounds_that_are_enough_for_many_are_too_few_for_five(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_module, "_HALF_ROUNDS", 5)
    orders = take_sample(permute, 5, epochs(1800)).images
    assert arrangements(orders) < REFUSED
