"""Megabytes a second and memory of each step of a preparation, on 1 and 2 cores.

    MASKWRIGHT_DATA=… python -m benchmarks.preparation_scale --runs runs/scale [--megabytes 150 600]

The text is English Wikipedia as often as it takes; in every copy but the first, words change their
places, so that no article is like another. For the step `wikitext` the same articles are wrapped
into a dump; megabytes are those of their text in all steps. Each step runs alone in a process of
its own, bound to so many cores; memory is the peak of it and of the processes that it starts,
shared pages divided among them. What is measured is kept in RUNS, and not measured again by a
second call. docs/scale.md works out from this what a larger text takes on a
cluster (`benchmarks.scale_page`).
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from benchmarks.common import read_wikipedia, write_result
from benchmarks.preparation_step import (
    DUMP_SUFFIX,
    EVALUATION_NAME,
    FACTS_NAME,
    SEQUENTIAL,
    STEPS,
    TOKENIZER_NAME,
)
from benchmarks.processes import measure_peak
from benchmarks.wikitext import wrap, write_stream
from maskwright.files import read_json, write_json
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer

CORES = (1, 2)
_CHANGED = 8  # of so many words one: three in eight of their 5-grams stay
_EVALUATION_ARTICLES, _EVALUATION_WORDS = 500, 60


def change_words(text: str, copy: int) -> str:
    """`text` with one word in eight replaced by another one of it; copy 0 is the text itself."""
    words = text.split(" ")
    if copy:
        for place in range(copy % _CHANGED, len(words), _CHANGED):
            words[place] = words[(place * 7 + copy * 13) % len(words)]
    return " ".join(words)


def list_articles() -> Iterator[str]:
    """The articles again and again, without end."""
    for copy in count():
        for text in read_wikipedia():
            yield change_words(text, copy)


def write_texts(folder: Path, sizes: list[int]) -> dict[int, int]:
    """``FOLDER/N.txt`` of N megabytes for each size, also as a dump, and an evaluation.

    Returns:
        The documents of each size.
    """
    numbers: dict[int, int] = {}
    for size in sizes:
        num_bytes = num_documents = 0
        with (folder / f"{size}.txt").open("w", encoding="utf-8") as file:
            for text in list_articles():
                num_bytes += len(text.encode()) + file.write("\n\n")
                file.write(text)
                num_documents += 1
                if num_bytes >= size * 1e6:
                    break
        numbers[size] = num_documents
        lines = (text.split("\n") for text in islice(list_articles(), num_documents))
        pages = (wrap([line for line in each if line.strip()], "en") for each in lines)
        write_stream((folder / f"{size}.txt").with_suffix(DUMP_SUFFIX), pages, "en")
    # Words in the wrong order: what is looked for in every text and never found.
    articles = zip(read_wikipedia(), range(_EVALUATION_ARTICLES), strict=False)
    lines = (" ".join(text.split()[_EVALUATION_WORDS::-1]) for text, _ in articles)
    (folder / EVALUATION_NAME).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return numbers


def measure(step: str, text: Path, cores: int) -> dict[str, Any]:
    """Runs a step; its seconds and its peak of memory."""
    scratch = text.parent / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)  # of a measurement that was cut off
    scratch.mkdir()
    command = [sys.executable, "-m", "benchmarks.preparation_step", step, str(text), str(scratch)]
    peak, _ = measure_peak([*command, "--cores", str(cores)])
    facts = json.loads((scratch / FACTS_NAME).read_text(encoding="utf-8"))
    shutil.rmtree(scratch)
    size = text.stat().st_size / 1e6
    return {
        "seconds": round(facts["seconds"], 3),
        "megabytes_per_second": round(size / facts["seconds"], 3),
        "seconds_apart": {name: round(seconds, 3) for name, seconds in facts["apart"].items()},
        "peak_megabytes": round(peak.proportional / 1e6),
    }


def recall(kept: Path, work: Callable[[], Any]) -> Any:
    """What `work` gives, from the file `kept` if it has been done before."""
    if not kept.exists():
        write_json(kept, work())
    return read_json(kept, 1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="keeps what has been measured")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[150, 600])
    arguments = parser.parse_args()
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
        megabytes = text.stat().st_size / 1e6
        texts.append({"megabytes": megabytes, "documents": numbers[str(size)], "steps": steps})
    write_result("preparation-scale", {"texts": texts})


if __name__ == "__main__":
    main()
