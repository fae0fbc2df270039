from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.readers.text import decode_text, read_lines
from maskwright.corpus.readers.unreadable import UnreadableError


def split_anywhere(content: bytes, sizes: list[int]) -> list[bytes]:
    blocks: list[bytes] = []
    for size in sizes:
        blocks.append(content[:size])
        content = content[size:]
    return [block for block in [*blocks, content] if block]


@given(st.text(min_size=1), st.lists(st.integers(1, 5)))
def test_decoding_does_not_depend_on_the_blocks(text: str, sizes: list[int]) -> None:
    content = ("x" * 400 + text).encode()  # text enough that no control character matters
    expected = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks = split_anywhere(content, [400, *sizes])
    assert "".join(decode_text(blocks, "x"))[400:] == expected


def test_bytes_that_are_no_utf8_stay_visible() -> None:
    content = "Grüße, ".encode() * 9 + b"Gr\xfc\xdfe"
    assert "".join(decode_text([content], "x")).endswith("Gr\udcfc\udcdfe")


def test_a_byte_order_mark_is_no_text() -> None:
    assert "".join(decode_text([b"\xef\xbb\xbfabc"], "x")) == "abc"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x is empty: nothing to train on."),
        (bytes(range(256)) * 20, "x is binary or not UTF-8: .*% of its first 5120 bytes"),
        ("Привет, мир".encode("cp1251") * 9, "x is binary or not UTF-8"),
        ("plain".encode("utf-16"), "x is UTF-16 text, not UTF-8. Convert it"),
        (b"a.txt".ljust(257, b"\0") + b"ustar" + b"text " * 400, "x is a tar archive"),
    ],
)
def test_what_is_no_text_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(UnreadableError, match=f"^{message}"):
        list(decode_text([content] if content else [], "x"))


def test_text_with_a_little_garbage_is_text() -> None:
    content = b"A text with one NUL \0 and one bad byte \xff in it."
    assert "\0" in "".join(decode_text([content], "x"))


@given(st.text(alphabet="ab \n", min_size=1), st.lists(st.integers(1, 5)), st.integers(3, 9))
def test_lines_do_not_depend_on_the_blocks(text: str, sizes: list[int], limit: int) -> None:
    blocks = [block.decode() for block in split_anywhere(text.encode(), sizes)]
    uncut = list(read_lines(blocks, 1_000, Counter()))
    assert uncut == text.removesuffix("\n").split("\n") or text == "\n"
    counts: Counter[str] = Counter()
    cut = list(read_lines(blocks, limit, counts))
    assert all(len(line) <= limit for line in cut)
    assert "".join(cut) == "".join(uncut)
    assert len(cut) == len(uncut) + counts["long line cut"]
