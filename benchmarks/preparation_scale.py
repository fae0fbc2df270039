"""Megabytes a second, memory and files of a preparation, stage by stage, on 1 and 2 cores.

The text is English Wikipedia, repeated; in every copy but the first, words change their places, so
that no article is like another. For `wikitext` the same articles are wrapped into a dump; megabytes
are those of their text. Each run is a process of its own, bound to its cores; memory is the peak of
all its processes, shared pages divided among them, and that of the largest process so far. The
first stage runs with each step of selection alone, on the smallest text; whole preparations on all.
Measurements are kept in --runs, and a second call measures the rest.
"""

import argparse
import json
import os
import resource
import shutil
import sys
import time
from collections import Counter, deque
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    measure_peak,
    read_wikipedia,
    recall,
    repeat_wikipedia,
    write_articles,
    write_result,
)
from maskwright.config import from_mapping
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.engines import LocalEngine
from maskwright.preparation.pipeline import plan_work
from maskwright.preparation.process_pool import work_through
from maskwright.preparation.stages import Stage, TaskRunner, list_stages
from maskwright.preparation.work import Work
from tests.corpus.dumps import NAMESPACES, Page, write_multistream

CORES = (1, 2)
DUMP_SUFFIX, EVALUATION_NAME, FACTS_NAME = ".xml.bz2", "evaluation.txt", "facts.json"
# Each step of selection alone, none of them, and all together.
SELECTION: dict[str, dict[str, object]] = {
    "nothing": {},
    "repair": {"repair": True},
    "language": {"language": "en", "language_confidence": 0.1},
    "boilerplate": {"drop_boilerplate": True},
    "quality": {"quality": True},
    "near duplicates": {"near_duplicates": 0.8},
    "decontamination": {"decontaminate": (EVALUATION_NAME,)},
}
SELECTION["everything"] = {k: v for step in tuple(SELECTION.values()) for k, v in step.items()}
READING, WIKITEXT = "read: ", "read: wikitext"  # the first stage alone
WHOLE = ("everything", "nothing")
_CHANGED = 8  # of these many words one: three in eight of their 5-grams stay
_EVALUATION_ARTICLES, _EVALUATION_WORDS = 500, 60
_PAGES_A_STREAM = 100  # as in dumps of Wikipedia
_HEADING = 20  # characters: a shorter line that ends in a full stop is one in these corpora
_BOX = f"{{{{정보상자\n| 이름 = %s\n| 그림 = [[{NAMESPACES['en'][6]}:%s.jpg|섬네일]]\n}}}}\n"
_TABLE = '{| class="wikitable"\n! 해 !! 수\n|-\n| 1990 || {{나라|한국}}\n|}\n'


def change_words(text: str, copy: int) -> str:
    """Replace one word in eight by another one of the text; copy 0 is the text itself."""
    words = text.split(" ")
    if copy:
        for place in range(copy % _CHANGED, len(words), _CHANGED):
            words[place] = words[(place * 7 + copy * 13) % len(words)]
    return " ".join(words)


def wrap(article: str) -> Page:
    """Return an article, its title in the first line, as wikitext that it may have come from."""
    title, *lines = filter(str.strip, article.split("\n"))
    wrapped = [_BOX % (title, title)]
    for number, line in enumerate(lines):
        first, _, rest = line.partition(" ")
        paragraph = f"[[{first}]] {rest}<ref name=r{number}>{{{{웹 인용|제목={title}}}}}</ref>\n"
        is_heading = len(line) < _HEADING and line.endswith(".")
        wrapped.append(f"== {line[:-1]} ==" if is_heading else paragraph)
        wrapped += [_TABLE] * (number % 10 == 5)
    return title, "\n".join(wrapped)


def write_texts(texts: list[Path]) -> list[int]:
    """Write the texts, the first as a dump, too, and an evaluation; return their documents."""
    articles = partial(repeat_wikipedia, change_words)
    numbers = [write_articles(text, articles(), float(text.stem))[0] for text in texts]
    pages = [wrap(article) for article in islice(articles(), numbers[0])]
    write_multistream(texts[0].with_suffix(DUMP_SUFFIX), pages, "en", _PAGES_A_STREAM)
    # Words in the wrong order: looked for in every text and never found.
    starts = (article.split()[_EVALUATION_WORDS::-1] for article in read_wikipedia())
    lines = map(" ".join, islice(starts, _EVALUATION_ARTICLES))
    texts[0].with_name(EVALUATION_NAME).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return numbers


def plan(step: str, text: Path, out: Path) -> Work:
    """Write the plan of a run; `step` is one of `WHOLE`, or names what the first stage does."""
    select = dict(SELECTION.get(step.removeprefix(READING), {}))
    if "decontaminate" in select:
        select["decontaminate"] = (str(text.with_name(EVALUATION_NAME)),)
    config = from_mapping(PrepareConfig, {"select": select, "tokenizer": {"vocab_size": 8192}})
    paths = [str(text.with_suffix(DUMP_SUFFIX) if step == WIKITEXT else text)]
    out.mkdir()
    return plan_work(paths, paths, out, config, 0, print)


def run_stage(work: Work, stage: Stage, cores: int) -> dict[str, Any]:
    """Run a stage; return its seconds, on one core those of each task, and what it wrote."""
    known, times = find_files(work.out), [time.perf_counter()]
    times += [time.perf_counter() for _ in LocalEngine(cores).run(work, stage)]
    num_bytes = Counter[str]()
    new = [path for inode, path in find_files(work.out).items() if inode not in known]
    for path in new:
        num_bytes[path.name.partition(".")[2]] += path.stat().st_size
    own = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    largest = max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    return {
        "name": stage.name,
        "tasks": stage.num_tasks,
        "seconds": round(times[-1] - times[0], 3),
        "seconds_of_tasks": np.diff(times).round(4).tolist() if cores == 1 else [],
        "process_megabytes": round(largest * 1024 / 1e6),
        "files": len(new),
        "bytes": num_bytes,
    }


def find_files(folder: Path) -> dict[int, Path]:
    """Return all files by inode, so that one that was moved is the same."""
    return {path.stat().st_ino: path for path in folder.rglob("*") if path.is_file()}


def run_alone(step: str, text: Path, cores: int) -> None:
    """Run a step on the first cores of this machine and write down what it took."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    scratch, start = text.with_name("scratch"), time.perf_counter()
    work = plan(step, text, scratch / "out")
    stages = list_stages(work) if step in WHOLE else [next(list_stages(work))]
    found = [run_stage(work, stage, cores) for stage in stages]
    end = time.perf_counter()
    done, runner = [(found[-1]["name"], 0)], partial(TaskRunner, work.folder)
    deque(work_through(done, runner, 1, str(work.out), apart=True), maxlen=0)
    blocks, megabytes = len(work.plan.blocks), text.stat().st_size / 1e6
    facts = {
        "step": step,
        "megabytes": megabytes,
        "cores": cores,
        "seconds": round(end - start, 3),
        "megabytes_per_second": round(megabytes / (end - start), 3),
        "seconds_to_start_a_process": round(time.perf_counter() - end, 3),
        "process_megabytes": found[-1]["process_megabytes"],
        "blocks": blocks,
        "files_a_block": round(sum(stage["files"] for stage in found) / blocks, 2),
        "files_left_a_block": round(len(find_files(work.out)) / blocks, 2),
        "stages": found,
    }
    (scratch / FACTS_NAME).write_text(json.dumps(facts), encoding="utf-8")


def measure(step: str, text: Path, cores: int) -> dict[str, Any]:
    """Run a step in a process of its own; return what it took, and the peak of its memory."""
    scratch = text.with_name("scratch")
    shutil.rmtree(scratch, ignore_errors=True)  # of an interrupted measurement
    scratch.mkdir()
    command = [sys.executable, "-m", "benchmarks.preparation_scale", step, str(text), str(cores)]
    peak, _ = measure_peak(command)
    facts = json.loads((scratch / FACTS_NAME).read_text(encoding="utf-8"))
    shutil.rmtree(scratch)
    return {"peak_megabytes": round(peak.proportional / 1e6), **facts}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, required=True, help="keeps texts and measurements")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[150, 600])


def main(arguments: argparse.Namespace) -> None:
    folder = arguments.runs
    folder.mkdir(parents=True, exist_ok=True)
    texts = [folder / f"{size}.txt" for size in sorted(arguments.megabytes)]
    documents = recall(folder / "texts.json", partial(write_texts, texts))
    steps = [(texts[0], f"{READING}{name}") for name in SELECTION] + [(texts[0], WIKITEXT)]
    runs: list[dict[str, Any]] = []
    for (text, step), cores in product([*steps, *product(texts, WHOLE)], CORES):
        kept = folder / f"{text.stem}-{step.replace(': ', '-').replace(' ', '-')}-{cores}.json"
        runs.append(recall(kept, partial(measure, step, text, cores)))
        print({name: value for name, value in runs[-1].items() if name != "stages"}, flush=True)
    write_result("preparation-scale", {"documents": documents, "runs": runs})


if __name__ == "__main__":
    run_alone(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
