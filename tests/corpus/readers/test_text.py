import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.documents import UnreadableError
from maskwright.corpus.encoding import decode_text
from maskwright.errors import CorpusError
from tests.corpus.helpers import read_all, split_anywhere, write


@given(st.text(min_size=1), st.lists(st.integers(1, 5)))
def test_decoding_does_not_depend_on_the_blocks(text: str, sizes: list[int]) -> None:
    content = ("x" * 400 + text).encode()  # text enough that no control character matters
    expected = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks = split_anywhere(content, [400, *sizes])
    assert "".join(decode_text(blocks, "x"))[400:] == expected


def test_bytes_that_are_no_utf8_stay_visible() -> None:
    content = "Grüße, ".encode() * 900 + b"Gr\xfc\xdfe"
    assert "".join(decode_text([content], "x")).endswith("Gr\udcff\udcffe")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x is empty: it has no text."),
        (bytes(range(256)) * 20, "x is binary: .*% of its first 5,120 char"),
        (b"%PDF-1.7\n" + b"text " * 400, "x is a PDF document"),
        (gzip.compress(b"text", mtime=0), r"x is compressed by gzip \(.gz\).* suffix"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "x is binary"),
        (b"a.txt".ljust(257, b"\0") + b"ustar" + b"text " * 400, "x is binary"),
    ],
)
def test_what_is_no_text_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(UnreadableError, match=f"^{message}"):
        list(decode_text([content] if content else [], "x"))


def test_text_with_a_little_garbage_is_text() -> None:
    content = b"A text with one NUL \0 and one bad byte \xff in it." + b" More of it." * 100
    assert "\0" in "".join(decode_text([content], "x"))


GERMAN = "Die Übertragung wäre schön für große Körper, sagt der Ärger über die Brücke. " * 30
RUSSIAN = "Привет, это обычный русский текст о том, как люди живут и работают. " * 30
TEXTS = {
    "cp1252": GERMAN,
    "cp1250": "Zażółć gęślą jaźń, powiedział mąż, który był właśnie w domu. " * 30,
    "cp1251": RUSSIAN,
    "koi8-r": RUSSIAN,
    "cp1253": "Αυτό είναι ένα απλό κείμενο για τους ανθρώπους και τη ζωή τους. " * 30,
    "shift_jis": "これは日本語の文章です。東京は日本の首都です。" * 30,
    "euc_jp": "これは日本語の文章です。東京は日本の首都です。" * 30,
    "cp949": "안녕하세요 이것은 한국어 문장이고 서울은 한국의 수도입니다. " * 30,
    "gb18030": "这是一个中文句子，北京是中国的首都。人们在这里生活和工作。" * 30,
    "utf-16-le": GERMAN,
    "utf-16-be": RUSSIAN,
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_another_encoding_is_named_and_read_if_it_is_given(encoding: str) -> None:
    content = TEXTS[encoding].encode(encoding)
    with pytest.raises(CorpusError, match=rf"--corpus\.encoding {encoding},") as caught:
        list(decode_text([content], "x"))
    assert not isinstance(caught.value, UnreadableError)  # in a folder it is not skipped either
    assert "".join(decode_text([content], "x", encoding)) == TEXTS[encoding]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_counts_more_than_the_encoding(encoding: str) -> None:
    content = GERMAN.encode(encoding)
    assert "".join(decode_text(split_anywhere(content, [7, 100, 1]), "x", "cp1252")) == GERMAN


def test_the_limit_counts_all_bytes_so_far() -> None:
    good = [b"plain text " * 1_000] * 3
    assert list(decode_text([*good, b"f\xfcr"], "x"))
    with pytest.raises(CorpusError, match=r"likely cp1252.*--corpus.encoding cp1252"):
        list(decode_text([*good, GERMAN.encode("cp1252")], "x"))


def test_damaged_utf8_is_not_taken_for_another_encoding() -> None:
    with pytest.raises(CorpusError, match=r"mostly UTF-8.*Repair"):
        list(decode_text([GERMAN.encode() + b"\xfc" * 20], "x"))


@pytest.mark.parametrize("encoding", [*TEXTS, "utf-16"])
@pytest.mark.parametrize("sizes", [[], [100], [200, 213], [1000, 20, 20, 20]])
def test_ascii_before_utf8_does_not_decide_the_encoding(encoding: str, sizes: list[int]) -> None:
    text = "plain text " * 20 + GERMAN
    blocks = split_anywhere(text.encode(), sizes)
    assert "".join(decode_text(blocks, "x", encoding)) == text


def test_a_first_letter_that_is_cut_off_decides_once_it_is_whole() -> None:
    for encoding in ("utf-8", "cp1252"):
        blocks = split_anywhere(f"plain {GERMAN}".encode(encoding), [12])  # amid the first letter
        assert "".join(decode_text(blocks, "x", "cp1252")) == f"plain {GERMAN}"
    assert "".join(decode_text([b"plain", b"\xc3"], "x", "cp1252")) == "plainÃ"


def test_damaged_utf8_stays_utf8_where_another_encoding_is_given() -> None:
    content = GERMAN.encode() + b"\xfc"
    assert "".join(decode_text([content], "x", "cp1252")) == f"{GERMAN}\udcff"


def test_a_file_that_changes_its_encoding_is_refused() -> None:
    both = [GERMAN.encode("cp1252"), GERMAN.encode()]
    for blocks in (both, both[::-1]):
        with pytest.raises(CorpusError, match=r"text in cp1252 and text in UTF-8"):
            list(decode_text(blocks, "x", "cp1252"))


def test_a_bad_byte_of_a_short_file_is_damage_only_beside_utf8() -> None:
    assert "".join(decode_text(["Grüße, ".encode() + b"Gr\xfcn"], "x")) == "Grüße, Gr\udcffn"
    for content in (b"Gr\xfcn", "ß".encode() + b"\xfc\xfc\xfc\xfc"):
        with pytest.raises(CorpusError, match=r"^x:1 is "):
            list(decode_text([content], "x"))


def test_the_wrong_encoding_is_refused_too() -> None:
    with pytest.raises(CorpusError, match="not ascii but likely cp1252"):
        list(decode_text([GERMAN.encode("cp1252")], "x", "ascii"))


def test_one_enormous_line_is_cut_and_nothing_is_lost(tmp_path: Path) -> None:
    text = " ".join(str(number) for number in range(400_000))
    counts: Counter[str] = Counter()
    documents = read_all(write(tmp_path / "x.txt", text), counts, max_document_characters=100_000)
    assert "".join(documents) == text
    assert max(map(len, documents)) <= 100_000
    assert counts["long line cut"] == len(documents) - 1


def test_a_markdown_file_is_one_document_unless_told_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path / "x.md", "# Title\n\nText.\n\nMore.\n")
    assert read_all(path) == ["# Title\n\nText.\n\nMore."]
    assert len(read_all(path, documents="blank_line")) == 3


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
def test_an_empty_file_is_an_error_if_named_and_counted_in_a_folder(
    tmp_path: Path, content: str
) -> None:
    path = write(tmp_path / "notes.txt", content)
    with pytest.raises(CorpusError, match=r"notes\.txt is empty: it has no text\.$"):
        read_all(path)
    counts: Counter[str] = Counter()
    assert read_all(str(tmp_path), counts) == []
    assert sum(counts.values()) == 1
