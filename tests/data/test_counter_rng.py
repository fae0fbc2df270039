import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.counter_rng import Purpose, derive_keys, draw_bits, mix, to_unit

int64s = st.integers(-(2**63), 2**63 - 1)


def test_mix_is_splitmix64() -> None:
    # First outputs of the reference generator (Vigna, splitmix64.c) with state 0.
    golden = np.uint64(0x9E3779B97F4A7C15)
    states = np.arange(1, 4, dtype=np.uint64) * golden
    assert [hex(int(x)) for x in mix(states)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


@given(int64s, int64s, st.lists(int64s, min_size=1, max_size=5))
def test_keys_of_an_array_are_the_keys_of_its_parts(seed: int, epoch: int, rows: list[int]) -> None:
    together = derive_keys(seed, epoch, rows)
    assert together.tolist() == [int(derive_keys(seed, epoch, row)[0]) for row in rows]


def test_keys_differ_by_every_part_and_by_their_order() -> None:
    grid = np.stack(np.meshgrid(*3 * [np.arange(-8, 8)], indexing="ij")).reshape(3, -1)
    assert len(np.unique(derive_keys(*grid))) == 16**3


def test_a_draw_depends_on_key_purpose_and_position_alone() -> None:
    keys, positions = derive_keys(0, np.arange(6)), np.arange(-3, 20)
    table = draw_bits(keys, Purpose.CORRUPTION, positions)
    assert table.shape == (6, 23)
    part = draw_bits(keys[4:5], Purpose.CORRUPTION, positions[7:9])
    assert part.tolist() == table[4:5, 7:9].tolist()
    assert not np.any(table == draw_bits(keys, Purpose.REPLACEMENT, positions))
    assert len(np.unique(table)) == table.size


def test_unit_numbers_stay_below_one() -> None:
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert to_unit(ends).tolist() == [0.0, 1 - 2.0**-53]
