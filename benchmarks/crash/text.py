"""Invented text with something to learn in it: every word likes some words after it."""

import random
from pathlib import Path

_SYLLABLES = ("ka", "to", "mi", "ren", "su", "lo", "vi", "nar", "pe", "dol", "ghi", "us", "an", "e")
_NUM_WORDS, _NUM_FOLLOWERS = 1500, 12


def write_text(path: Path, megabytes: float, seed: int = 0) -> Path:
    """A text file of `megabytes`, a paragraph a document; returns `path`."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(_NUM_WORDS)]
    followers = [draw.choices(words, k=_NUM_FOLLOWERS) for _ in words]
    place = {word: number for number, word in enumerate(words)}
    num_bytes = 0
    with path.open("w", encoding="utf-8") as file:
        while num_bytes < megabytes * 1e6:
            word, text = draw.choice(words), list[str]()
            for _ in range(draw.randint(5, 150)):
                text.append(word)
                word = draw.choice(followers[place[word]])
            num_bytes += file.write(" ".join(text) + ".\n\n")
    return path
