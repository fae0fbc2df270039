import sys

from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.dedup import FingerprintSet, fingerprint_text

FINGERPRINTS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 40),  # near each other, with zero, and many collisions of low bits
    st.integers(0, 40).map(lambda n: n << 32),
)


@given(st.lists(FINGERPRINTS))
def test_it_behaves_like_a_set(fingerprints: list[int]) -> None:
    compact, plain = FingerprintSet(), set[int]()
    for fingerprint in fingerprints:
        assert compact.add(fingerprint) == (fingerprint not in plain)
        plain.add(fingerprint)
        assert fingerprint in compact
        assert len(compact) == len(plain)
    assert all((n in compact) == (n in plain) for n in range(50))


def test_growing_keeps_everything_and_stays_compact() -> None:
    compact = FingerprintSet()
    fingerprints = [fingerprint_text(str(number)) for number in range(20_000)]
    assert all(compact.add(fingerprint) for fingerprint in fingerprints)
    assert not any(compact.add(fingerprint) for fingerprint in fingerprints)
    assert len(compact) == 20_000
    assert sum(sys.getsizeof(part) for part in vars(compact).values()) <= 22 * len(compact)


def test_fingerprints_are_pinned() -> None:
    """Splits and prepared data depend on them: another value would move documents."""
    assert fingerprint_text("") == 0xB4B2797457A0A6E4
    assert fingerprint_text("maskwright") == 0x61D16321B2D662EB
