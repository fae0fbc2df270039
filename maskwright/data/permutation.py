"""A shuffled order of any size, computed and not stored.

`permute` is a keyed bijection of ``range(size)``: a Feistel network over a grid of ``a x b``
cells, where ``a * b`` exceeds `size` by less than ``a``. Each half round adds a hash of one
coordinate to the other. This is invertible by subtraction, hence a bijection (Black and Rogaway,
"Ciphers with arbitrary finite domains", CT-RSA 2002). The few results outside the range are
permuted again until they are inside it, which preserves the bijection.
"""

import math

import numpy as np
from numpy.typing import NDArray

from maskwright.data.counter_rng import Purpose, derive_keys, mix

# 5 suffice for statistical tests on orders of 1,000 elements; with 16, all orders of a few elements
# are also about equally frequent (research/decisions/0007-order-of-16-half-rounds.md).
_HALF_ROUNDS = 16


def permute(indices: NDArray[np.int64], size: int, *key: int) -> NDArray[np.int64]:
    """Return the position of each of `indices` in the shuffled order of ``range(size)``.

    Args:
        indices: [n], each in ``range(size)``.
        key: integers that identify the order, such as ``seed, epoch``.

    Returns:
        [n]; over all indices, every number of ``range(size)`` exactly once.
    """
    a = math.isqrt(size - 1) + 1
    a += a % 2  # with two odd sides, all permutations would be even
    b = -(-size // a)
    round_keys = derive_keys(*key, Purpose.ORDER, np.arange(_HALF_ROUNDS))
    result = _permute_grid(indices, a, b, round_keys)
    outside = np.flatnonzero(result >= size)
    while len(outside):
        result[outside] = _permute_grid(result[outside], a, b, round_keys)
        outside = outside[result[outside] >= size]
    return result


def _permute_grid(
    indices: NDArray[np.int64], a: int, b: int, round_keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return the permuted cell of each of `indices`, as the index of a grid cell."""
    column, line = np.divmod(indices.astype(np.uint64), np.uint64(b))
    for half_round, key in enumerate(round_keys):
        if half_round % 2 == 0:
            column = (column + mix(line ^ key) % np.uint64(a)) % np.uint64(a)
        else:
            line = (line + mix(column ^ key) % np.uint64(b)) % np.uint64(b)
    return (column * np.uint64(b) + line).astype(np.int64)
