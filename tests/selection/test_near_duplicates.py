"""Near duplicates are those that a comparison of all pairs finds, but for what sketches miss."""

import random

import numpy as np
import pytest

from maskwright.selection.near_duplicates import (
    NUM_HASHES,
    SHINGLE,
    Signer,
    choose_rows,
    find_near_duplicates,
)
from maskwright.selection.words import WordHashes, split_words

VOCABULARY = [f"word{n}" for n in range(3000)]


def write_document(draw: random.Random, count: int = 200) -> list[str]:
    return draw.choices(VOCABULARY, k=count)


def change(words: list[str], share: float, draw: random.Random) -> list[str]:
    return [draw.choice(VOCABULARY) if draw.random() < share else word for word in words]


def sign(documents: list[list[str]]) -> np.ndarray:
    hashes = WordHashes()
    return Signer()([hashes.of(words) for words in documents])


def shingle(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)}


def similarity(a: list[str], b: list[str]) -> float:
    first, second = shingle(a), shingle(b)
    return len(first & second) / len(first | second)


def test_bands_let_nearly_all_pairs_meet() -> None:
    for threshold in (0.5, 0.7, 0.8, 0.9):
        rows = choose_rows(threshold)
        meets = 1 - (1 - threshold**rows) ** (NUM_HASHES // rows)
        assert meets >= 0.99
    assert choose_rows(0.8) == 6


def test_planted_duplicates_are_found_and_others_are_not() -> None:
    draw = random.Random(0)
    originals = [write_document(draw) for _ in range(300)]
    copies = [change(words, 0.01, draw) for words in originals[:100]]
    cousins = [change(words, 0.2, draw) for words in originals[100:200]]
    documents = originals + copies + cousins
    found = find_near_duplicates(sign(documents), 0.8)
    assert not found[:300].any()  # of two the first one stays
    certain = [n for n in range(100) if similarity(copies[n], originals[n]) > 0.87]
    assert len(certain) > 60
    assert all(found[300 + n] for n in certain)
    assert max(similarity(a, b) for a, b in zip(cousins, originals[100:], strict=False)) < 0.6
    assert not found[400:].any()


def test_likeness_goes_on_from_one_to_the_next() -> None:
    draw = random.Random(1)
    first = write_document(draw, 400)
    second = first[20:] + write_document(draw, 20)
    third = second[20:] + write_document(draw, 20)
    assert similarity(first, third) < 0.85 < similarity(first, second)
    found = find_near_duplicates(sign([third, first, second]), 0.85)
    assert found.tolist() == [False, True, True]


def test_the_order_of_documents_decides_which_one_stays() -> None:
    draw = random.Random(2)
    words = write_document(draw)
    found = find_near_duplicates(sign([words, write_document(draw), words, words]), 0.8)
    assert found.tolist() == [False, False, True, True]


@pytest.mark.parametrize("count", [0, 1])
def test_few_documents(count: int) -> None:
    signatures = sign([write_document(random.Random(3))] * count)
    assert signatures.shape == (count, NUM_HASHES)
    assert find_near_duplicates(signatures, 0.8).tolist() == [False] * count


def test_short_texts_are_compared_whole() -> None:
    texts = ["One two three.", "one, two, three!", "One two four.", "…"]
    found = find_near_duplicates(sign([split_words(text) for text in texts]), 0.8)
    assert found.tolist() == [False, True, False, False]
