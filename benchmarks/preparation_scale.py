"""Megabytes a second and memory of each step of a preparation, on 1 and 2 cores.

The text is English Wikipedia, repeated; in every copy but the first, words change their places, so
that no article is like another. For the step `wikitext` the same articles are wrapped into a dump;
megabytes are those of their text in all steps. Each step runs alone in a process of its own, bound
to its cores; memory is the peak of the process and its children, shared pages divided among them.
Measurements are kept in --runs, and a second call measures the rest. docs/scale.md estimates from
them what a larger text takes on a cluster (`cluster_estimate`).
"""

import argparse
import bz2
import json
import shutil
import sys
from collections.abc import Iterable
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from benchmarks.common import (
    measure_peak,
    read_wikipedia,
    recall,
    repeat_wikipedia,
    write_articles,
    write_result,
)
from benchmarks.preparation_step import (
    DUMP_SUFFIX,
    EVALUATION_NAME,
    FACTS_NAME,
    SEQUENTIAL,
    STEPS,
    TOKENIZER_NAME,
)
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer
from tests.corpus.dumps import NAMESPACES, Page, head, page

CORES = (1, 2)
_CHANGED = 8  # of these many words one: three in eight of their 5-grams stay
_EVALUATION_ARTICLES, _EVALUATION_WORDS = 500, 60
_PAGES_A_STREAM = 100  # as in dumps of Wikipedia
_HEADING = 20  # characters: a shorter line that ends in a full stop is one in these corpora
_FILE = 6  # the number of a namespace
_BOX = "{{정보상자\n| 이름 = %s\n| 그림 = [[%s:%s.jpg|섬네일]]\n}}\n"
_TABLE = '{| class="wikitable"\n! 해 !! 수\n|-\n| 1990 || {{나라|한국}}\n|}\n'


def change_words(text: str, copy: int) -> str:
    """Replace one word in eight by another one of the text; copy 0 is the text itself."""
    words = text.split(" ")
    if copy:
        for place in range(copy % _CHANGED, len(words), _CHANGED):
            words[place] = words[(place * 7 + copy * 13) % len(words)]
    return " ".join(words)


def wrap(lines: list[str], language: str) -> Page:
    """Return an article, its title in the first line, as wikitext that it may have come from."""
    title, *paragraphs = lines
    wrapped = [_BOX % (title, NAMESPACES[language][_FILE], title)]
    for number, line in enumerate(paragraphs):
        if len(line) < _HEADING and line.endswith("."):
            wrapped.append(f"== {line[:-1]} ==")
            continue
        first, _, rest = line.partition(" ")
        reference = f"<ref name=r{number}>{{{{웹 인용|제목={title}}}}}</ref>"
        wrapped.append(f"[[{first}]] {rest}{reference}\n")
        if number % 10 == 5:
            wrapped.append(_TABLE)
    return title, "\n".join(wrapped)


def write_stream(path: Path, pages: Iterable[Page], language: str) -> None:
    """Write a multistream dump without its index, as the pages come."""
    numbers, remaining = count(1), iter(pages)
    with path.open("wb") as file:
        file.write(bz2.compress(head(language).encode()))
        while some := list(islice(remaining, _PAGES_A_STREAM)):
            written = (page(next(numbers), title, text) for title, text in some)
            file.write(bz2.compress("".join(written).encode()))
        file.write(bz2.compress(b"</mediawiki>\n"))


def write_texts(folder: Path, sizes: list[int]) -> dict[int, int]:
    """Write ``FOLDER/N.txt`` of N megabytes for each size, the same as a dump, and an evaluation.

    Returns:
        The documents of each size.
    """
    numbers: dict[int, int] = {}
    for size in sizes:
        text = folder / f"{size}.txt"
        numbers[size], _ = write_articles(text, repeat_wikipedia(change_words), size)
        articles = islice(repeat_wikipedia(change_words), numbers[size])
        lines = ([line for line in text.split("\n") if line.strip()] for text in articles)
        write_stream(text.with_suffix(DUMP_SUFFIX), (wrap(each, "en") for each in lines), "en")
    # Words in the wrong order: looked for in every text and never found.
    articles = islice(read_wikipedia(), _EVALUATION_ARTICLES)
    reversed_starts = (" ".join(text.split()[_EVALUATION_WORDS::-1]) for text in articles)
    (folder / EVALUATION_NAME).write_text("\n".join(reversed_starts) + "\n", encoding="utf-8")
    return numbers


def measure(step: str, text: Path, cores: int) -> dict[str, Any]:
    """Run a step; return its seconds and its peak of memory."""
    scratch = text.parent / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)  # of an interrupted measurement
    scratch.mkdir()
    command = [sys.executable, "-m", "benchmarks.preparation_step", step, str(text), str(scratch)]
    peak, _ = measure_peak([*command, str(cores)])
    facts = json.loads((scratch / FACTS_NAME).read_text(encoding="utf-8"))
    shutil.rmtree(scratch)
    return {
        "seconds": round(facts["seconds"], 3),
        "megabytes_per_second": round(text.stat().st_size / 1e6 / facts["seconds"], 3),
        "seconds_apart": {name: round(seconds, 3) for name, seconds in facts["apart"].items()},
        "peak_megabytes": round(peak.proportional / 1e6),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, required=True, help="keeps texts and measurements")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[150, 600])


def main(arguments: argparse.Namespace) -> None:
    folder, sizes = arguments.runs, sorted(arguments.megabytes)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = recall(folder / "texts.json", lambda: write_texts(folder, sizes))
    if not (folder / TOKENIZER_NAME).exists():
        sample = (folder / f"{sizes[0]}.txt").read_text(encoding="utf-8")
        train_tokenizer([sample], TokenizerConfig(vocab_size=8192)).save(folder / TOKENIZER_NAME)
    texts: list[dict[str, Any]] = []
    for size in sizes:
        text, steps = folder / f"{size}.txt", dict[str, dict[str, Any]]()
        for step in STEPS:
            steps[step] = {}
            for cores in CORES[:1] if step in SEQUENTIAL else CORES:
                name = f"{size}-{step.replace(': ', '-').replace(' ', '-')}-{cores}.json"
                steps[step][str(cores)] = recall(folder / name, partial(measure, step, text, cores))
            print(size, step, json.dumps(steps[step]), flush=True)
        about = {"megabytes": text.stat().st_size / 1e6, "documents": numbers[str(size)]}
        texts.append({**about, "steps": steps})
    write_result("preparation-scale", {"texts": texts})
