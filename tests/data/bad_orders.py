"""Orders that are bad on purpose, and numpy's, which is good: for tests of the tests."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Order = Callable[..., Ints]

_BLOCK = 32


def shuffle_by_numpy(indices: Ints, size: int, *key: int) -> Ints:
    return np.random.default_rng([1, *key]).permutation(size)[indices]


def shuffle_blocks(indices: Ints, size: int, *key: int) -> Ints:
    """Blocks change their places, what is inside stays together."""
    blocks = np.array_split(np.arange(size), size // _BLOCK)
    order = np.random.default_rng([2, *key]).permutation(len(blocks))
    return np.concatenate([blocks[i] for i in order])[indices]


def shuffle_within_blocks(indices: Ints, size: int, *key: int) -> Ints:
    """As a shuffle buffer does: nothing goes far."""
    generator = np.random.default_rng([3, *key])
    blocks = np.array_split(np.arange(size), size // _BLOCK)
    return np.concatenate([generator.permutation(block) for block in blocks])[indices]


def step_around(indices: Ints, size: int, *key: int) -> Ints:
    """A random beginning and a random step: too regular."""
    begin, step = np.random.default_rng([4, *key]).integers(1, size, 2).tolist()
    while np.gcd(step, size) != 1:
        step += 1
    return (begin + indices * step) % size


def swap_evenly(indices: Ints, size: int, *key: int) -> Ints:
    """A random order that an even number of swaps makes."""
    order = shuffle_by_numpy(np.arange(size), size, *key)
    seen, num_cycles = np.zeros(size, dtype=bool), 0
    for place in range(size):
        num_cycles += not seen[place]
        while not seen[place]:
            seen[place] = True
            place = order[place]
    if (size - num_cycles) % 2:
        order[[0, 1]] = order[[1, 0]]
    return order[indices]


def forget_the_key(indices: Ints, size: int, *key: int) -> Ints:
    """A random order, the same for each epoch."""
    return shuffle_by_numpy(indices, size, 0)


def turn_with_the_epoch(indices: Ints, size: int, *key: int) -> Ints:
    """A random order that each epoch begins at another place."""
    return (forget_the_key(indices, size) + key[-1]) % size
