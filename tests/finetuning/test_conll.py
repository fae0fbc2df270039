from pathlib import Path

import pytest

from maskwright.errors import CorpusError
from maskwright.finetuning.conll import has_conll_name, read_conll, read_words


def write(folder: Path, content: str) -> Path:
    path = folder / "a.conll"
    path.write_text(content, encoding="utf-8")
    return path


def test_sentences_of_words_and_tags(tmp_path: Path) -> None:
    content = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\nUN\tI-ORG\n# O"
    first, second = read_conll(write(tmp_path, content))
    assert (first.words, first.tags) == (("EU", "rejects"), ("I-ORG", "O"))
    assert first.place.endswith("a.conll:3")
    assert (second.words, second.tags) == (("UN", "#"), ("I-ORG", "O"))


def test_other_columns(tmp_path: Path) -> None:
    [sentence] = read_conll(write(tmp_path, "1 EU NNP ORG\n"), word=1, tag=2)
    assert (sentence.words, sentence.tags) == (("EU",), ("NNP",))


def test_words_need_no_tags(tmp_path: Path) -> None:
    path = write(tmp_path, "EU NNP I-ORG\nrejects\n\nNew York\tI-LOC\nis\tO\n")
    assert list(read_words(path)) == [["EU", "rejects"], ["New York", "is"]]
    with pytest.raises(CorpusError, match=r"a\.conll:2 has 1 columns, where a word takes 2"):
        list(read_words(path, word=1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wikigold.conll", True),
        ("wikigold.conll.txt", True),
        ("A.BIO.TXT.gz", True),
        ("a.iob", True),
        ("a.txt", False),
        ("a.conll.tsv", False),
    ],
)
def test_a_name_says_that_it_has_conll_name(name: str, expected: bool) -> None:
    assert has_conll_name(Path(name)) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("EU I-ORG\nrejects\n", r"a\.conll:2 has 1 columns, where a word and its tag take 2"),
        ("\n\n-DOCSTART-\n", "holds no sentence"),
    ],
)
def test_what_is_wrong_is_named(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message):
        list(read_conll(write(tmp_path, content)))
