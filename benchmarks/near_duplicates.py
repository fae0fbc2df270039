"""Planted near duplicates in real text: how many are found, and how many finds are none.

    MASKWRIGHT_DATA=… python -m benchmarks.near_duplicates [--documents 5000]

Articles of English Wikipedia and, of a fifth of them, a copy each with single words replaced by
others of the text: from one in two hundred to one in ten. A pair counts as a near duplicate by its
true similarity (Jaccard, 5-grams of words), which is computed for every planted pair.
"""

import argparse
import random
import time
from itertools import islice, pairwise
from typing import Any

import numpy as np

from benchmarks.common import read_wikipedia, write_result
from maskwright.selection.near_duplicates import (
    NUM_HASHES,
    SHINGLE,
    Signer,
    choose_rows,
    find_near_duplicates,
)
from maskwright.selection.units import WordHashes, split_words

CHANGES = (0.005, 0.01, 0.02, 0.04, 0.1)  # shares of the words
_WORDS = 1_000  # of an article
_EDGES = (0.0, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)


def change(words: list[str], share: float, draw: random.Random, all_words: list[str]) -> list[str]:
    """A copy with so many of its words replaced."""
    return [draw.choice(all_words) if draw.random() < share else word for word in words]


def compare(first: list[str], second: list[str]) -> float:
    """The true similarity of two documents."""
    one, other = (
        {tuple(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)}
        for words in (first, second)
    )
    return len(one & other) / max(1, len(one | other))


def count_by_similarity(pairs: list[tuple[float, bool]]) -> list[dict[str, Any]]:
    """Of planted pairs in each span of similarity, how many were found."""
    spans: list[dict[str, Any]] = []
    for low, high in pairwise(_EDGES):
        found = [hit for value, hit in pairs if low < value <= high]
        if found:
            spans.append({"above": low, "to": high, "pairs": len(found), "found": sum(found)})
    return spans


def measure(articles: list[list[str]], threshold: float) -> dict[str, Any]:
    """Recall of planted pairs at or above the threshold, and precision of all finds."""
    draw = random.Random(0)
    all_words = sorted({word for words in articles for word in words})
    originals = range(0, len(articles), 5)
    copies = [
        change(articles[n], CHANGES[place % len(CHANGES)], draw, all_words)
        for place, n in enumerate(originals)
    ]
    hashes, sign = WordHashes(), Signer()
    documents = articles + copies
    began = time.perf_counter()
    signatures = sign([hashes.of(words) for words in documents])
    signed = time.perf_counter() - began
    is_duplicate = find_near_duplicates(signatures, threshold)
    seconds = time.perf_counter() - began
    planted = [
        (compare(articles[n], copy), bool(is_duplicate[len(articles) + place]))
        for place, (n, copy) in enumerate(zip(originals, copies, strict=True))
    ]
    wanted = [hit for value, hit in planted if value >= threshold]
    finds = [value >= threshold for value, hit in planted if hit]
    others = int(is_duplicate[: len(articles)].sum())
    return {
        "threshold": threshold,
        "rows_in_a_band": choose_rows(threshold),
        "bands": NUM_HASHES // choose_rows(threshold),
        "documents": len(documents),
        "planted_above_threshold": len(wanted),
        "recall": round(float(np.mean(wanted)), 4),
        "finds_among_planted": len(finds),
        "precision": round(float(np.mean(finds)), 4),
        "other_finds": others,
        "by_similarity": count_by_similarity(planted),
        "seconds_to_sign": round(signed, 2),
        "seconds": round(seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--documents", type=int, default=5_000)
    arguments = parser.parse_args()
    articles = [
        split_words(text)[:_WORDS] for text in islice(read_wikipedia(), arguments.documents)
    ]
    found = [measure(articles, threshold) for threshold in (0.7, 0.8, 0.9)]
    for one in found:
        print(one)
    write_result("near-duplicates", {"words_a_document": _WORDS, "thresholds": found})


if __name__ == "__main__":
    main()
