import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.attention_context import context_from_lengths
from tests.model.helpers import pack


def test_padded_rows_have_a_segment_of_padding_each() -> None:
    context = context_from_lengths([2, 4, 3])
    assert context.row_length == context.max_seqlen == 4
    assert context.segment_ids.view(3, 4).tolist() == [[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert context.positions.view(3, 4).tolist() == [[0, 1, 0, 1], [0, 1, 2, 3], [0, 1, 2, 0]]
    assert context.cu_seqlens.tolist() == [0, 2, 4, 8, 8, 11, 12]
    assert context.cu_seqlens.dtype == torch.int32


def test_a_wider_row_is_padding() -> None:
    context = context_from_lengths([2], row_length=5)
    assert context.segment_ids.tolist() == [0, 0, 1, 1, 1]
    assert context.cu_seqlens.tolist() == [0, 2, 5]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(0, 12)),
)
def test_tokens_see_their_segment_within_the_window(lengths: list[int], window: int | None) -> None:
    visible = pack((tuple(lengths),)).attention_mask(window)[0, 0]
    owner = [number for number, length in enumerate(lengths) for _ in range(length)]
    for query, own in enumerate(owner):
        for key, other in enumerate(owner):
            near = window is None or abs(query - key) <= window
            assert bool(visible[query, key]) == (own == other and near)
