from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.stream import stream_corpus
from maskwright.errors import CorpusError
from maskwright.preparation.splits import cut_tail, settle_valid_fraction, split_corpus
from tests.preparation.helpers import write_corpus


def split_texts(path: Path, config: CorpusConfig) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"train": [], "valid": []}
    for split, text in split_corpus([str(path)], config, Counter()):
        found[split].append(text)
    return found


def test_many_documents_are_split_by_hash(tmp_path: Path) -> None:
    path, config = write_corpus(tmp_path / "a.txt", 0.2), CorpusConfig(valid_fraction=0.1)
    expected: dict[str, list[str]] = {"train": [], "valid": []}
    for split, document in stream_corpus([str(path)], config, Counter()):
        expected[split].append(document.text)
    found = split_texts(path, config)
    assert found["valid"] == expected["valid"] != []
    assert sorted(found["train"]) == sorted(expected["train"])


def test_named_files_are_held_out_and_nothing_else(tmp_path: Path) -> None:
    path, held_out = tmp_path / "train.txt", tmp_path / "valid.txt"
    path.write_text("".join(f"sentence {number}\n" for number in range(500)))
    held_out.write_text("sentence 7\nanother one\n\n")
    config = CorpusConfig(documents="line", valid_fraction=0.5, valid_text=(str(held_out),))
    found = split_texts(path, config)
    assert found["valid"] == ["sentence 7", "another one"]
    assert len(found["train"]) == 499
    assert "sentence 7" not in found["train"]


def test_a_file_to_hold_out_must_hold_text(tmp_path: Path) -> None:
    path, held_out = tmp_path / "train.txt", tmp_path / "valid.jsonl"
    path.write_text("a sentence")
    held_out.write_text('{"text": " "}')
    with pytest.raises(CorpusError, match=r"valid\.jsonl: nothing is left to validate on"):
        split_texts(path, CorpusConfig(valid_text=(str(held_out),)))


def test_a_single_document_gives_its_end(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    lines = [f"line {number} of the book" for number in range(1000)]
    path.write_text("\n".join(lines))
    found = split_texts(path, CorpusConfig(documents="file"))
    assert [len(texts) for texts in found.values()] == [1, 1]
    train, valid = found["train"][0].split("\n"), found["valid"][0].split("\n")
    assert train + valid == lines
    assert 0.009 < len(valid) / len(lines) < 0.012


def test_of_a_few_documents_the_longest_gives_its_end(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    documents = ["short one", "a much longer one of many words " * 20, "another short one"]
    path.write_text("\n\n".join(documents))
    found = split_texts(path, CorpusConfig(documents="blank_line"))
    assert len(found["train"]) == 3
    assert len(found["valid"]) == 1
    assert documents[1].strip().endswith(found["valid"][0])
    together = " ".join(sorted([*found["train"], *found["valid"]])).split()
    assert sorted(together) == sorted(" ".join(documents).split())


def test_next_to_nothing_held_out_is_made_up_for(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    words = write_corpus(tmp_path / "a.txt", 0.03).read_text().replace("\n\n", "\n")
    # Of these short documents the hash holds some out.
    documents = [words[:20_000].strip(), *(f"short {number}" for number in range(200))]
    path.write_text("\n\n".join(documents))
    config = CorpusConfig(documents="blank_line", valid_fraction=0.02)
    found = split_texts(path, config)
    short = [text for text in found["valid"] if text.startswith("short ")]
    assert 0 < len(short) == len(found["valid"]) - 1
    total = sum(len(text) for texts in found.values() for text in texts)
    assert 0.01 < sum(map(len, found["valid"])) / total < 0.03
    assert documents[0].endswith(found["valid"][-1])


def test_what_the_hash_holds_out_is_enough_when_it_is_half_of_the_share(tmp_path: Path) -> None:
    path = tmp_path / "even.txt"
    path.write_text("\n\n".join(f"document number {number}" for number in range(300)))
    found = split_texts(path, CorpusConfig(documents="blank_line", valid_fraction=0.1))
    assert all(text.startswith("document number") for texts in found.values() for text in texts)
    assert sum(map(len, found.values())) == 300


def test_nothing_is_held_out_on_request(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text("one\n\ntwo words\n\nthree")
    found = split_texts(path, CorpusConfig(documents="blank_line", valid_fraction=0.0))
    assert sorted(found["train"]) == ["one", "three", "two words"]
    assert found["valid"] == []


def test_too_little_to_hold_any_out(tmp_path: Path) -> None:
    path = tmp_path / "tiny.txt"
    path.write_text("x")
    with pytest.raises(CorpusError, match=r"tiny\.txt: 1 characters are too few"):
        split_texts(path, CorpusConfig())


@given(st.text(min_size=2), st.integers(0, 50))
def test_cutting_loses_only_whitespace(text: str, size: int) -> None:
    head, tail = cut_tail(text, size)
    assert "".join((head + tail).split()) == "".join(text.split())
    if " " not in text and "\n" not in text:
        assert len(tail) <= max(len(text) // 2, 1)


def test_the_share_is_chosen_by_the_size_of_the_text_unless_it_is_given(tmp_path: Path) -> None:
    small = write_corpus(tmp_path / "small.txt", 0.2)
    assert settle_valid_fraction([str(small)], CorpusConfig()).valid_fraction == 0.1
    large = tmp_path / "large.txt"
    large.write_text("\n".join(f"{number} words of a line" * 20 for number in range(10_000)))
    share = settle_valid_fraction([str(large)], CorpusConfig(documents="line")).valid_fraction
    assert share == round(80_000 / (large.stat().st_size - 9_999), 4)
    given = CorpusConfig(valid_fraction=0.01)
    assert settle_valid_fraction([str(small)], given) is given
