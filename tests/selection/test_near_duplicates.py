"""Near duplicates are those that a comparison of all pairs finds, but for what sketches miss."""

import random

import numpy as np
import pytest

from maskwright.selection.near_duplicates import (
    BAND_BITS,
    NUM_HASHES,
    SHINGLE,
    Signer,
    choose_rows,
    connect,
    count_bands,
    hash_bands,
    to_pairs,
)
from maskwright.selection.words import hash_words, split_words
from tests.selection.near_duplicates_twin import find_near_duplicates

VOCABULARY = [f"word{n}" for n in range(3000)]


def write_document(draw: random.Random, count: int = 200) -> list[str]:
    return draw.choices(VOCABULARY, k=count)


def change(words: list[str], share: float, draw: random.Random) -> list[str]:
    return [draw.choice(VOCABULARY) if draw.random() < share else word for word in words]


def sign(documents: list[list[str]]) -> np.ndarray:
    return Signer()([hash_words(words) for words in documents])


def shingle(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)}


def similarity(a: list[str], b: list[str]) -> float:
    first, second = shingle(a), shingle(b)
    return len(first & second) / len(first | second)


def is_dropped(signatures: np.ndarray, threshold: float) -> list[bool]:
    found = find_near_duplicates(signatures, threshold)
    return [first != number for number, first in enumerate(found)]


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
    found = is_dropped(sign(originals + copies + cousins), 0.8)
    assert not any(found[:300])  # of two the first one stays
    certain = [n for n in range(100) if similarity(copies[n], originals[n]) > 0.87]
    assert len(certain) > 60
    assert all(found[300 + n] for n in certain)
    assert max(similarity(a, b) for a, b in zip(cousins, originals[100:], strict=False)) < 0.6
    assert not any(found[400:])


def test_similarity_goes_on_from_one_to_the_next() -> None:
    draw = random.Random(1)
    first = write_document(draw, 400)
    second = first[20:] + write_document(draw, 20)
    third = second[20:] + write_document(draw, 20)
    assert similarity(first, third) < 0.85 < similarity(first, second)
    assert is_dropped(sign([third, first, second]), 0.85) == [False, True, True]


def test_short_texts_are_compared_whole() -> None:
    texts = ["One two three.", "one, two, three!", "One two four.", "…"]
    found = is_dropped(sign([split_words(text) for text in texts]), 0.8)
    assert found == [False, True, False, False]


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_a_hash_names_its_band_and_is_that_of_its_rows(threshold: float) -> None:
    draw = random.Random(4)
    words = write_document(draw)
    signatures = sign([words, change(words, 0.05, draw), write_document(draw)])
    rows, bands = choose_rows(threshold), count_bands(threshold)
    assert bands == NUM_HASHES // rows
    hashed = hash_bands(signatures, threshold, first=7).reshape(bands, 3)
    assert (hashed["key"] == [7, 8, 9]).all()
    assert (hashed["value"] >> np.uint64(BAND_BITS) == np.arange(bands)[:, None]).all()
    for band, values in enumerate(hashed["value"]):
        parts = signatures[:, band * rows : (band + 1) * rows]
        for one in range(3):
            for other in range(3):
                same = (parts[one] == parts[other]).all()
                assert (values[one] == values[other]) == same


def test_no_pairs_are_no_components() -> None:
    found = connect(to_pairs(np.empty(0, np.uint64), np.empty(0, np.uint64)))
    assert (len(found.pairs), len(found.nodes), found.changed) == (0, 0, False)
