"""How uniform the computed order of the data is: at large sizes, at tiny ones, by half rounds.

    python -m benchmarks.order_quality [--throughput]

All but the throughput is the same wherever and whenever it is run. The throughput, a ratio to
numpy's permutation, wants a machine that does nothing else.
"""

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import write_result
from benchmarks.randomness import Ints, Order, compare, examine, take_sample
from maskwright.data import permutation as order_module
from maskwright.data.permutation import permute

_LENGTH = 4_000_000
_KEYS = 3
_TIMES = 5


def shuffle_by_numpy(indices: Ints, size: int, *key: int) -> Ints:
    """A control: what the statistics say of an order that is known to be good."""
    return np.random.default_rng(key).permutation(size)[indices]


def measure_large(order: Order, size: int, length: int, seed: int) -> dict[str, Any]:
    """All statistics of three epochs, each compared with the next.

    Args:
        length: indices looked at, beginning at a third of `size`; 0 for all.
    """
    keys = [(seed, epoch) for epoch in range(_KEYS + 1)]
    both = take_sample(order, size, keys, start=size // 3 if length else 0, length=length)
    first, second = both.select(slice(_KEYS)), both.select(slice(1, None))
    p_values = dict([*examine(first), *compare(first, second)])
    smallest = min(p_values, key=lambda name: p_values[name])
    return {
        "elements": size,
        "indices": length or size,
        "seed": seed,
        "epochs": _KEYS,
        "statistics": len(p_values),
        "smallest_p_value": float(f"{p_values[smallest]:.2g}"),
        "smallest_of": smallest,
        "below_0.01": sum(p < 0.01 for p in p_values.values()),
        "p_values": {name: float(f"{p:.3g}") for name, p in p_values.items()},
    }


def measure_by_half_rounds(size: int) -> dict[str, dict[str, Any]]:
    """The smallest p-value with other numbers of half rounds, of half a million images."""
    found: dict[str, dict[str, Any]] = {}
    used = order_module._HALF_ROUNDS
    num_keys = max(4, 500_000 // size)
    for half_rounds in (1, 2, 3, 4, 5, 6, 8, used):
        order_module._HALF_ROUNDS = half_rounds
        sample = take_sample(permute, size, [(0, epoch) for epoch in range(num_keys)])
        p_values = dict(examine(sample))
        name = min(p_values, key=lambda name: p_values[name])
        found[str(half_rounds)] = {"smallest_p_value": p_values[name], "smallest_of": name}
    order_module._HALF_ROUNDS = used
    return found


def measure_bias(size: int, a: int, b: int, most_half_rounds: int) -> dict[int, float]:
    """How far the orders of a few elements are from equally likely, exactly.

    Follows all orders of the a x b cells through the half rounds, with every hash as likely as any
    other, and leaves out the cells beyond `size` as `permute` does.

    Returns:
        By half rounds, half of the summed differences to ``1 / size!`` (total variation).
    """
    cells = a * b
    orders = np.array(list(itertools.permutations(range(cells))), dtype=np.int64)
    column, line = np.divmod(np.arange(cells), b)
    turns = [
        [((column + np.array(added)[line]) % a) * b + line for added in _functions(b, a)],
        [column * b + (line + np.array(added)[column]) % b for added in _functions(a, b)],
    ]
    moves = [[_rank(turn[orders]) for turn in half] for half in turns]
    inside = orders[:, :size]
    while (inside >= size).any():
        walked = np.take_along_axis(orders, inside, axis=1)
        inside = np.where(inside >= size, walked, inside)
    names, num_orders = _rank(inside), math.factorial(size)
    shares = np.zeros(len(orders))
    shares[0] = 1.0
    bias: dict[int, float] = {}
    for half_round in range(most_half_rounds):
        half = moves[half_round % 2]
        after = np.zeros_like(shares)
        for move in half:
            after[move] += shares / len(half)
        shares = after
        of_orders = np.bincount(names, weights=shares, minlength=num_orders)
        bias[half_round + 1] = float(np.abs(of_orders - 1 / num_orders).sum() / 2)
    return bias


def _functions(arguments: int, values: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(values), repeat=arguments))


def _rank(orders: Ints) -> Ints:
    """The number of each order in the sequence of `itertools.permutations`."""
    size = orders.shape[1]
    rank = np.zeros(len(orders), np.int64)
    for place in range(size):
        smaller = (orders[:, place + 1 :] < orders[:, place : place + 1]).sum(axis=1)
        rank = rank * (size - place) + smaller
    return rank


def measure_few() -> dict[str, dict[str, Any]]:
    """The bias at 3 to 8 elements; and with sides as equal as can be, of which both may be odd."""
    found: dict[str, dict[str, Any]] = {}
    for size in range(3, 9):
        a = math.isqrt(size - 1) + 1
        even = a + a % 2
        bias = measure_bias(size, even, -(-size // even), 24)
        found[str(size)] = {
            "bias_by_half_rounds": {n: float(f"{bias[n]:.2g}") for n in (4, 8, 12, 16, 20, 24)}
        }
        if a != even:
            equal = measure_bias(size, a, -(-size // a), 24)
            found[str(size)]["bias_with_sides"] = [a, -(-size // a)]
            found[str(size)]["bias_at_24_half_rounds_with_these_sides"] = float(f"{equal[24]:.2g}")
    return found


def measure_throughput(size: int = 10**7) -> dict[str, Any]:
    """Seconds of `permute` over seconds of numpy's permutation, taken in turns."""
    ratios = [
        _seconds(lambda: permute(np.arange(size), size, 0, 0))
        / _seconds(lambda: np.random.default_rng(0).permutation(size))
        for _ in range(_TIMES)
    ]
    return {"elements": size, "times": _TIMES, "seconds_over_numpy": statistics.median(ratios)}


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--throughput", action="store_true", help="the machine does nothing else")
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "half_rounds": order_module._HALF_ROUNDS,
        "few_elements": measure_few(),
        "by_half_rounds": {str(n): measure_by_half_rounds(n) for n in (1000, 1024, 10_000)},
        "large": [
            measure_large(permute, size, length, seed)
            for size, length in ((10**7, 0), (10**8, _LENGTH), (10**12, _LENGTH))
            for seed in (0, 1)  # what is chance with one is not there with the other
        ],
        "control_numpy": measure_large(shuffle_by_numpy, 10**7, 0, 0),
    }
    if arguments.throughput:
        result["throughput"] = measure_throughput()
    write_result("order-quality", result)


if __name__ == "__main__":
    main()
