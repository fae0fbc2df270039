from itertools import count, islice

from hypothesis import given
from hypothesis import strategies as st

from maskwright.inference.text_model import split_blocks


@given(st.lists(st.integers(0, 3_000_000), max_size=30))
def test_blocks_are_the_items_in_order_and_small(sizes: list[int]) -> None:
    blocks = list(split_blocks(sizes, lambda size: size))
    assert [size for block in blocks for size in block] == sizes
    assert all(sum(block[:-1]) < 4_000_000 for block in blocks)
    assert [] not in blocks


def test_many_small_texts_are_split_too() -> None:
    assert [len(block) for block in split_blocks(["a"] * 10_000)] == [4096, 4096, 1808]


def test_no_more_is_read_than_a_block() -> None:
    numbers = count()
    first = next(split_blocks(str(n) for n in numbers))
    assert first == [str(n) for n in range(4096)]
    assert list(islice(numbers, 1)) == [4096]
