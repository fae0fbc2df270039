import pytest

from maskwright.corpus.readers.expansion import MAX_EXPANSION, Expansion
from maskwright.errors import CorpusError

FREE = 64 << 20


def test_text_may_unfold_to_many_times_its_size() -> None:
    expansion = Expansion("x.gz")
    for number in range(1, 1000):
        expansion.add(MAX_EXPANSION * 1_000_000, folded=number * 1_000_000)


def test_a_small_file_may_be_all_alike() -> None:
    Expansion("x.gz").add(FREE, folded=0)


def test_more_than_that_is_refused_as_soon_as_it_is_seen() -> None:
    expansion = Expansion("x.gz")
    expansion.add(FREE, folded=10)
    expansion.add(10 * MAX_EXPANSION, folded=10)
    with pytest.raises(CorpusError, match=r"x\.gz unfolds to more than 500 times .* unpack it"):
        expansion.add(1, folded=10)
