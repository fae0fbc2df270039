import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.rows import SegmentTable

lengths_of_documents = st.lists(st.integers(0, 40), max_size=30)


@given(lengths_of_documents, st.integers(1, 20))
def test_segments_cover_every_token_once_in_order(lengths: list[int], max_tokens: int) -> None:
    table = SegmentTable(np.array(lengths, dtype=np.int64), max_tokens)
    starts, sizes = table.locate(np.arange(len(table)))
    covered = [t for s, n in zip(starts, sizes, strict=True) for t in range(s, s + n)]
    assert covered == list(range(sum(lengths)))
    assert np.all((sizes >= 1) & (sizes <= max_tokens))


@given(lengths_of_documents, st.integers(1, 20))
def test_no_segment_crosses_a_document(lengths: list[int], max_tokens: int) -> None:
    table = SegmentTable(np.array(lengths, dtype=np.int64), max_tokens)
    starts, sizes = table.locate(np.arange(len(table)))
    ends = np.cumsum(lengths)
    first = np.searchsorted(ends, starts, side="right")
    last = np.searchsorted(ends, starts + sizes - 1, side="right")
    assert np.array_equal(first, last)


def test_all_segments_of_a_document_are_full_but_the_last() -> None:
    table = SegmentTable(np.array([7, 0, 3]), 3)
    starts, sizes = table.locate(np.array([3, 0, 2, 1]))
    assert starts.tolist() == [7, 0, 6, 3]
    assert sizes.tolist() == [3, 3, 1, 3]
