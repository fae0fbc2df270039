import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from examples.mlm_in_one_file import pack
from maskwright.data.packing import pack_best_fit


@given(st.integers(4, 40), st.lists(st.integers(1, 40), max_size=60))
def test_the_fast_packer_equals_the_readable_one(capacity: int, lengths: list[int]) -> None:
    lengths = [min(length, capacity) for length in lengths]
    assert pack_best_fit(lengths, capacity, capacity // 4) == pack(lengths, capacity)


def test_packing_fills_nearly_all_slots() -> None:
    lengths = np.random.default_rng(0).integers(1, 129, 3000).tolist()
    rows = pack_best_fit(lengths, 128, 32)
    assert sum(lengths) / (128 * len(rows)) > 0.97
