"""Write 100,000 sentences of English Wikipedia, one per line, to three files.

The from-scratch notebook of Shreydan (see research/reproductions.md) draws 100,000 lines of a file
of sentences, with repetition, and splits them at random, so that sentences of one article, and
copies of a sentence, are in both splits: `--split sentence`. By default an article is in one split
only, by a hash of its title, and no sentence occurs twice. The result, train.txt (90,000 lines),
valid.txt (8,000), test.txt (2,000) and about.json, depends on the text alone.
"""

import argparse
import gzip
import hashlib
import json
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from benchmarks.common import WIKIPEDIA, find_corpus
from maskwright.files import hash_file, write_text
from maskwright.tokenizer.token_text import cut_sentences

# The articles of each split among 10,000: a little more than the shares of the sentences.
SHARES = {"test": 250, "valid": 950, "train": 8_800}
SIZES = {"test": 2_000, "valid": 8_000, "train": 90_000}
NUM_WORDS = range(5, 61)


def read_articles(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield title and paragraphs of each article: the title comes first, a blank line last."""
    block: list[str] = []
    for line in lines:
        if line.strip():
            block.append(line.strip())
        elif block:
            yield block[0], block[1:]
            block = []
    if block:
        yield block[0], block[1:]


def is_sentence(text: str) -> bool:
    """Return True unless this is a heading, a fragment or a list."""
    return len(text.split()) in NUM_WORDS and text[-1] in ".!?\"'" and text[0].isupper()


def choose_split(title: str) -> str:
    """Return the split that an article belongs to."""
    place = _hash(title) % sum(SHARES.values())
    for split, share in SHARES.items():
        if place < share:
            return split
        place -= share
    raise AssertionError(place)


def collect(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the different sentences of each split, in an order by their hashes."""
    found: dict[str, list[str]] = {split: [] for split in SIZES}
    for title, paragraphs in read_articles(lines):
        split = choose_split(title)
        for paragraph in paragraphs:
            found[split] += filter(is_sentence, cut_sentences(paragraph))
    seen: set[str] = set()
    for split, sentences in found.items():  # what is held out comes first and keeps its sentences
        found[split] = sorted(set(sentences) - seen, key=_hash)
        seen.update(found[split])
    return found


def draw(sentences: Sequence[str]) -> dict[str, list[str]]:
    """Return splits of sentences that are drawn with repetition, as the notebook does."""
    drawn = iter(random.Random(0).choices(sentences, k=sum(SIZES.values())))
    return {split: list(islice(drawn, size)) for split, size in SIZES.items()}


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def write_sentences(folder: Path, split: str) -> None:
    """Write the three files and about.json; `split` is the unit, ``article`` or ``sentence``."""
    source = find_corpus(WIKIPEDIA)
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        found = collect(lines)
    if split == "sentence":
        found = draw([sentence for sentences in found.values() for sentence in sentences])
    folder.mkdir(parents=True, exist_ok=True)
    about = {"source": WIKIPEDIA, "split": split, "sha256": hash_file(source), "files": {}}
    for name, size in SIZES.items():
        if len(found[name]) < size:
            sys.exit(f"{source} has {len(found[name])} sentences for {name}, {size} are needed")
        path = folder / f"{name}.txt"
        write_text(path, "\n".join(found[name][:size]) + "\n")
        about["files"][path.name] = {"sentences": size, "sha256": hash_file(path)}
    write_text(folder / "about.json", json.dumps(about, indent=2) + "\n")
    print(f"written to {folder}: {', '.join(about['files'])}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the folder to write")
    choices = ("article", "sentence")
    parser.add_argument("--split", choices=choices, default=choices[0], help="unit [article]")


def main(arguments: argparse.Namespace) -> None:
    write_sentences(arguments.folder, arguments.split)
