from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.documents import cut_text


@given(st.text(alphabet="ab \n"), st.integers(2, 9))
def test_cutting_loses_nothing_and_keeps_to_the_limit(text: str, limit: int) -> None:
    pieces = list(cut_text(text, limit))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= limit for piece in pieces) or not text
    assert len(pieces) <= 1 + len(text) // (limit // 2)


def test_a_cut_prefers_a_line_end_then_a_blank() -> None:
    assert list(cut_text("one two\nthree four", 13)) == ["one two\n", "three four"]
    assert list(cut_text("one two three", 12)) == ["one two ", "three"]
    assert list(cut_text("abcdefgh", 5)) == ["abcde", "fgh"]
