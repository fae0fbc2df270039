from hypothesis import given
from hypothesis import strategies as st

from maskwright.tokenizer.learning import sample_texts

TEXTS = st.lists(st.text(min_size=1, max_size=30), max_size=30)


@given(TEXTS)
def test_everything_is_kept_if_it_fits(texts: list[str]) -> None:
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    assert sample_texts(texts, 10_000, seed=1) == clean


@given(TEXTS, st.integers(0, 200), st.integers(0, 3))
def test_bounded_in_order_and_repeatable(texts: list[str], limit: int, seed: int) -> None:
    numbered = [f"{index:03d}{text}" for index, text in enumerate(texts)]
    sample = sample_texts(iter(numbered), limit, seed)
    assert sum(len(text.encode()) for text in sample) <= limit
    assert sample == sorted(sample)
    assert sample == sample_texts(numbered, limit, seed)


def test_early_and_late_texts_are_equally_likely() -> None:
    texts = [f"{index:04d}" for index in range(1000)]
    kept = [text for seed in range(40) for text in sample_texts(texts, 400, seed)]
    assert len(kept) == 40 * 100
    early = sum(text < "0500" for text in kept)
    assert abs(early - 2000) < 150  # five standard deviations
    assert sample_texts(texts, 400, 1) != sample_texts(texts, 400, 2)


def test_long_texts_are_cut_at_blanks_and_nothing_is_lost() -> None:
    text = "word " * 20_000 + "x" * 40_000
    sample = sample_texts([text], 1_000_000, 0)
    assert "".join(sample) == text
    assert max(map(len, sample)) <= 16_384
    assert all(piece.startswith((" ", "x")) for piece in sample[1:])
