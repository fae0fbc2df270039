import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.fingerprints import fingerprint_pair, fingerprint_text
from maskwright.corpus.stream import choose_valid_fraction, is_validation


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
