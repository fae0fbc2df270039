from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.packing import Packed, pack_best_fit


def pack_slowly(lengths: Sequence[int], capacity: int, max_segments: int) -> Packed:
    """Pack segments into the same rows as `pack_best_fit`, its readable twin in quadratic time."""
    rows: Packed = []
    free: list[int] = []
    touched: list[int] = []  # when each row was last added to; the latest wins a tie
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    for time, index in enumerate(order):
        open_rows = [
            row
            for row in range(len(rows))
            if free[row] >= lengths[index] and len(rows[row]) < max_segments
        ]
        if open_rows:
            row = min(open_rows, key=lambda row: (free[row], -touched[row]))
        else:
            row = len(rows)
            rows.append([])
            free.append(capacity)
            touched.append(time)
        rows[row].append(index)
        free[row] -= lengths[index]
        touched[row] = time
    return rows


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], int, int]:
    capacity = draw(st.integers(1, 30))
    lengths = draw(st.lists(st.integers(1, capacity), max_size=60))
    return lengths, capacity, draw(st.integers(1, 8))


@given(problems())
def test_the_fast_packer_equals_the_readable_one(problem: tuple[list[int], int, int]) -> None:
    assert pack_best_fit(*problem) == pack_slowly(*problem)


def test_packing_fills_nearly_all_slots() -> None:
    lengths = np.random.default_rng(0).integers(1, 129, 3000).tolist()
    rows = pack_best_fit(lengths, 128, 32)
    assert sum(lengths) / (128 * len(rows)) > 0.97
