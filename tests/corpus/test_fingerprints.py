import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.fingerprints import fingerprint_pair, fingerprint_text
from maskwright.corpus.stream import (
    choose_valid_fraction,
    estimate_tokens,
    is_validation,
    raise_valid_fraction,
)


def test_fingerprints_are_pinned() -> None:
    """Splits and prepared data depend on them: another value would move documents."""
    assert fingerprint_text("") == 0xB4B2797457A0A6E4
    assert fingerprint_text("maskwright") == 0x61D16321B2D662EB
    assert fingerprint_pair("maskwright") == (0x61D16321B2D662EB, 0x58B36CAA0E504398)


def test_the_share_is_the_fraction() -> None:
    num_valid = sum(is_validation(fingerprint_text(str(n)), 0.1) for n in range(20_000))
    assert 1_850 < num_valid < 2_150  # 3.5 standard deviations


@given(st.integers(0, 2**64 - 1), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_larger_fraction_contains_the_smaller(fingerprint: int, one: float, two: float) -> None:
    small, large = sorted((one, two))
    assert is_validation(fingerprint, large) or not is_validation(fingerprint, small)


@given(st.integers(0, 2**64 - 1))
def test_the_ends(fingerprint: int) -> None:
    assert not is_validation(fingerprint, 0.0)
    assert is_validation(fingerprint, 0.5) == (fingerprint < 2**63)


@pytest.mark.parametrize(
    ("num_bytes", "fraction"),
    [(0, 0.1), (200_000, 0.1), (800_000, 0.1), (2_000_000, 0.04), (8_000_000, 0.01), (9**12, 0.01)],
)
def test_more_of_a_small_text_is_held_out(num_bytes: int, fraction: float) -> None:
    assert choose_valid_fraction([num_bytes]) == fraction


@pytest.mark.parametrize(
    ("text", "num_tokens"),
    [
        ("the cat is on the mat", 5),
        ("рыжий кот на окне", 4),
        ("지미 카터는 조지아주", 5),
        ("我们走路", 4),
        ("ひらカナ", 4),
        ("", 0),
    ],
)
def test_tokens_are_estimated_by_script(text: str, num_tokens: int) -> None:
    assert round(estimate_tokens(text)) == num_tokens


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([5_000] * 100, 0.0351),
        ([11_000] * 100, 0.01),  # one document is more than half
        ([2_000] * 100, 0.0951),
        ([1_000] * 100, 0.0951),  # of what may be held out, all
        ([5_000, 5_000, 50_000, *[5_000] * 97], 0.0151),  # the third is too long
    ],
)
def test_more_is_held_out_if_a_share_is_far_from_enough(sizes: list[int], expected: float) -> None:
    documents = [((2 * number + 1) * 2**64 // 200, size) for number, size in enumerate(sizes)]
    assert raise_valid_fraction(0.01, 20_000, documents) == expected
    assert raise_valid_fraction(0.01, 20_000, reversed(documents)) == expected
