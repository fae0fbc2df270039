"""Which documents are held out, and that some are."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import fingerprint_text
from maskwright.errors import CorpusError
from maskwright.preparation.split import (
    Split,
    choose_valid_fraction,
    cut_tail,
    estimate_tokens,
    fix_splits,
    is_validation,
    raise_valid_fraction,
)
from maskwright.preparation.work import EXACT, READ, Work
from tests.preparation.helpers import (
    cut_small,
    make_work,
    read_documents,
    small_config,
    write_corpus,
)

LINES = "blank_line"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 2_000)


def find_duplicates(path: Path, corpus: CorpusConfig) -> Work:
    """The work on `path`, after the search for exact duplicates."""
    config = replace(small_config(), corpus=corpus)
    until = EXACT if corpus.deduplicate or corpus.valid_text else READ
    return make_work(path.with_suffix(".out"), [path], config, until)


def split_texts(path: Path, corpus: CorpusConfig) -> dict[str, list[str]]:
    work = find_duplicates(path, corpus)
    splits, found = fix_splits(work), dict[str, list[str]](train=[], valid=[])
    for block in range(len(work.plan.blocks)):
        dropped = work.read_drops(block)
        for index, text in enumerate(work.read_texts(block)):
            if index not in dropped and work.is_held_out(block):
                found["valid"].append(text)
            elif index not in dropped:
                for split, part in splits.divide(text):
                    found[split].append(part)
    return found


def test_many_documents_are_split_by_hash(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt", 0.1)
    documents = read_documents(path)
    found = split_texts(path, CorpusConfig(valid_fraction=0.1))
    expected = [text for text in documents if is_validation(fingerprint_text(text), 0.1)]
    assert found["valid"] == expected != []
    assert found["train"] == [text for text in documents if text not in expected]


def test_named_files_are_held_out_and_nothing_else(tmp_path: Path) -> None:
    path, held_out = tmp_path / "train.txt", tmp_path / "valid.txt"
    path.write_text("".join(f"sentence {number}\n" for number in range(500)))
    held_out.write_text("sentence 7\nanother one\n\nanother one\n")
    config = CorpusConfig(documents="line", valid_fraction=0.5, valid_text=(str(held_out),))
    found = split_texts(path, config)
    assert found["valid"] == ["sentence 7", "another one"]
    assert len(found["train"]) == 499
    assert "sentence 7" not in found["train"]


def test_a_file_to_hold_out_must_hold_text(tmp_path: Path) -> None:
    path, held_out = tmp_path / "train.txt", tmp_path / "valid.jsonl"
    path.write_text("a sentence")
    held_out.write_text('{"text": " "}\nno JSON\n')
    with pytest.raises(CorpusError, match=r"valid\.jsonl: nothing is left to validate") as caught:
        split_texts(path, CorpusConfig(valid_text=(str(held_out),)))
    assert "bad JSON line (first valid.jsonl:2): 1" in str(caught.value)


def test_text_that_is_all_held_out_is_none_to_train_on(tmp_path: Path) -> None:
    path, held_out = tmp_path / "train.txt", tmp_path / "valid.txt"
    for each in (path, held_out):
        each.write_text("one\n\ntwo")
    with pytest.raises(CorpusError, match=r"train\.txt: nothing is left to train on"):
        split_texts(path, CorpusConfig(valid_text=(str(held_out),)))


def test_a_single_document_gives_its_end(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    lines = [f"line {number} of the book" for number in range(1000)]
    path.write_text("\n".join(lines))
    found = split_texts(path, CorpusConfig(documents="file", valid_fraction=0.01))
    assert [len(texts) for texts in found.values()] == [1, 1]
    train, valid = found["train"][0].split("\n"), found["valid"][0].split("\n")
    assert train + valid == lines
    assert 0.009 < len(valid) / len(lines) < 0.012


def test_of_a_few_documents_the_longest_gives_its_end(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    documents = ["short one", "a much longer one of many words " * 20, "another short one"]
    path.write_text("\n\n".join(documents))
    found = split_texts(path, CorpusConfig(documents=LINES))
    assert len(found["train"]) == 3
    assert len(found["valid"]) == 1
    assert documents[1].strip().endswith(found["valid"][0])
    together = " ".join([*found["train"], *found["valid"]]).split()
    assert sorted(together) == sorted(" ".join(documents).split())


def test_next_to_nothing_held_out_is_made_up_for(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    words = write_corpus(tmp_path / "a.txt", 0.03).read_text().replace("\n\n", "\n")
    # Of these short documents the hash holds some out.
    documents = [words[:20_000].strip(), *(f"short {number}" for number in range(200))]
    path.write_text("\n\n".join(documents))
    found = split_texts(path, CorpusConfig(documents=LINES, valid_fraction=0.02))
    short = [text for text in found["valid"] if text.startswith("short ")]
    assert 0 < len(short) == len(found["valid"]) - 1
    total = sum(len(text) for texts in found.values() for text in texts)
    assert 0.01 < sum(map(len, found["valid"])) / total < 0.03
    [tail] = [text for text in found["valid"] if text not in short]
    assert documents[0].endswith(tail)


def find_by_split(split: Split, characters: int) -> str:
    """A document of about this length that the hash puts into a split."""
    line = "word after word after word\n" * (characters // 27)
    texts = (f"{line}number {number}" for number in range(1_000))
    return next(t for t in texts if is_validation(fingerprint_text(t), 0.1) == (split == "valid"))


@pytest.mark.parametrize("others", [0, 1, 8])
def test_the_hash_does_not_hold_out_nearly_all(tmp_path: Path, others: int) -> None:
    book = find_by_split("valid", 60_000)
    prefaces = [f"{find_by_split('train', 500)} {number}" for number in range(others)]
    (tmp_path / "texts").mkdir()
    for number, text in enumerate([book, *prefaces]):
        (tmp_path / "texts" / f"{number}.md").write_text(text)
    found = split_texts(tmp_path / "texts", CorpusConfig(documents="file"))
    assert 0.05 < len("".join(found["valid"])) / len("".join([book, *prefaces])) < 0.2
    assert book.startswith(found["train"][0])


def test_a_copy_of_what_is_cut_is_cut(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in "ab":
        (tmp_path / "texts" / f"{name}.md").write_text(find_by_split("train", 20_000))
    corpus = CorpusConfig(documents="file", deduplicate=False)
    found = split_texts(tmp_path / "texts", corpus)
    assert (len(found["train"]), len(found["valid"])) == (2, 2)
    assert not any(tail in head for tail in found["valid"] for head in found["train"])


def test_nothing_is_held_out_on_request(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text("one\n\ntwo words\n\nthree")
    found = split_texts(path, CorpusConfig(documents=LINES, valid_fraction=0.0))
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
    assert len(tail) <= min(max(2 * size, 200), (len(text) + 1) // 2)


def test_the_share_is_chosen_by_the_size_of_the_text_unless_it_is_given(tmp_path: Path) -> None:
    small = write_corpus(tmp_path / "small.txt", 0.2)
    assert fix_splits(find_duplicates(small, CorpusConfig())).valid_fraction == 0.1
    large = tmp_path / "large.txt"
    large.write_text("\n".join(f"{number} words of a line" * 20 for number in range(10_000)))
    found = fix_splits(find_duplicates(large, CorpusConfig(documents="line")))
    assert found.valid_fraction == round(80_000 / (large.stat().st_size - 9_999), 4)


@given(st.integers(0, 2**64 - 1), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_larger_fraction_contains_the_smaller(fingerprint: int, one: float, two: float) -> None:
    small, large = sorted((one, two))
    assert is_validation(fingerprint, large) or not is_validation(fingerprint, small)


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


FILES = CorpusConfig(documents="file")
SCRIPTS = {"korean": (0xAC00, 0xD7A3, 3), "hindi": (0x0905, 0x0939, 5), "english": (97, 122, 5)}


def write_documents(
    folder: Path, script: str, num_documents: int, seed: int, megabytes: float = 2.0
) -> list[str]:
    """Files of invented words, some many times as long as others; returns their texts."""
    draw = random.Random(seed)
    first, last, length = SCRIPTS[script]
    letters = range(first, last + 1)
    words = ["".join(map(chr, draw.choices(letters, k=length))) for _ in range(2_000)]
    shares = [draw.lognormvariate(0, 1) for _ in range(num_documents)]
    num_words = megabytes * 1e6 / len(f"{words[0]} ".encode())
    folder.mkdir()
    for number, share in enumerate(shares):
        chosen = draw.choices(words, k=round(num_words * share / sum(shares)) + 1)
        lines = [" ".join(chosen[n : n + 20]) for n in range(0, len(chosen), 20)]
        (folder / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    return [path.read_text(encoding="utf-8") for path in folder.iterdir()]


@pytest.mark.parametrize(
    ("script", "num_documents", "seed"),
    [("korean", 400, 0), ("hindi", 60, 1), ("english", 9, 0), ("korean", 9, 0)],
)
def test_enough_is_held_out_of_any_script_and_of_few_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, num_documents: int, seed: int
) -> None:
    cut_small(monkeypatch, 1_000_000)
    texts, corpus = write_documents(tmp_path / "a", script, num_documents, seed), FILES
    found = split_texts(tmp_path / "a", corpus)["valid"]
    enough = min(20_000, sum(map(estimate_tokens, texts)) / 10)
    assert 0.5 < sum(map(estimate_tokens, found)) / enough < 3
    cut_small(monkeypatch, 300_000)
    (tmp_path / "b").mkdir()
    for number, text in enumerate(reversed(texts)):
        (tmp_path / "b" / f"{number}.txt").write_text(text, encoding="utf-8")
    again = split_texts(tmp_path / "b", corpus)["valid"]
    assert sorted(again) == sorted(found)  # in another order, in other blocks


def test_what_the_hash_holds_out_stays_where_it_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 1_000_000)
    texts = write_documents(tmp_path / "texts", "english", 400, 1, 4.0)
    share = choose_valid_fraction(len(text) for text in texts)
    found = split_texts(tmp_path / "texts", FILES)
    expected = [text for text in texts if is_validation(fingerprint_text(text), share)]
    assert sorted(found["valid"]) == sorted(expected)
    assert sum(map(len, expected)) > 40_000
