import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.stream import Split
from maskwright.preparation.chunks import Chunk, gather_chunks

SPLITS: list[Split] = ["train", "valid"]
DOCUMENTS = st.lists(
    st.tuples(st.sampled_from(SPLITS), st.text(st.characters(codec="utf-8"), max_size=9))
)


@given(DOCUMENTS, st.integers(1, 20))
def test_nothing_is_lost_and_chunks_are_full(documents: list[tuple[Split, str]], size: int) -> None:
    chunks = list(gather_chunks(documents, size))
    for split in SPLITS:
        ours = [chunk for chunk in chunks if chunk.split == split]
        assert [chunk.index for chunk in ours] == list(range(len(ours)))
        texts = [document.decode() for chunk in ours for document in chunk.documents]
        assert texts == [text for side, text in documents if side == split]
        for chunk in ours[:-1]:
            assert chunk.num_bytes >= size > chunk.num_bytes - len(chunk.documents[-1])


def test_the_first_chunks_are_small_and_grow_with_the_text_before_them() -> None:
    documents: list[tuple[Split, str]] = [("train", "x" * 500_000)] * 200
    sizes = [chunk.num_bytes / 1e6 for chunk in gather_chunks(documents, 4_000_000)]
    assert sizes[:3] == [2.0, 2.0, 2.0]
    assert sizes[:-1] == sorted(sizes[:-1])
    assert max(sizes) == 4.0
    assert sum(sizes) == 100.0


def test_chunks_are_given_as_soon_as_they_are_full() -> None:
    documents: list[tuple[Split, str]] = [("train", "abc"), ("valid", "d"), ("train", "e")]
    remaining = iter(documents)
    chunks = gather_chunks(remaining, 3)
    assert next(chunks).documents == [b"abc"]
    assert len(list(remaining)) == 2


@pytest.mark.parametrize(
    "other",
    [
        Chunk("train", 0, [b"a", b"bd"]),
        Chunk("train", 0, [b"ab", b"c"]),
        Chunk("train", 0, [b"abc"]),
    ],
)
def test_hashes_tell_documents_apart(other: Chunk) -> None:
    chunk = Chunk("train", 0, [b"a", b"bc"])
    assert chunk.hash("x") != other.hash("x")
    assert chunk.hash("x") != chunk.hash("y")
    assert chunk.hash("x") == Chunk("train", 0, [b"a", b"bc"]).hash("x")
