"""Measure MB/s, memory and files of each stage of preparation, on 1 and 2 cores.

The text is English Wikipedia, repeated; in every copy but the first, words are exchanged, so that
no article is a near duplicate. `wikitext` is a dump of it. Each run is a separate process on the
first cores; memory is the peak of its processes, with shared pages divided among them, and the peak
of the largest process. Whole preparations are measured at every size; the first stage with each
selection step alone, at the second largest size. Measurements are stored in --runs, and a second
call measures only the missing ones.
"""

import argparse
import json
import os
import re
import resource
import shutil
import sys
import time
from collections import Counter
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from maskwright.config import from_mapping
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.engines import run_locally
from maskwright.preparation.pipeline import plan_work
from maskwright.preparation.stages import Stage, list_stages, list_undone, work_through
from maskwright.preparation.work import Work
from tests.corpus.dumps import write_multistream

CORES, WHOLE = (1, 2), ("nothing", "everything")
DUMP_SUFFIX, EVALUATION_NAME, FACTS_NAME = ".xml.bz2", "evaluation.txt", "facts.json"
SELECTION: dict[str, dict[str, Any]] = {
    "repair": {"repair": True}, "language": {"language": "en", "language_confidence": 0.1},
    "boilerplate": {"drop_boilerplate": True}, "quality": {"quality": True},
    "near duplicates": {"near_duplicates": 0.8},
    "decontamination": {"decontaminate": (EVALUATION_NAME,)},
}  # fmt: skip
SELECTION["everything"] = {k: v for step in tuple(SELECTION.values()) for k, v in step.items()}
READ = "read: "  # the first stage alone
STEPS = [f"{READ}{name}" for name in ("wikitext", "nothing", *SELECTION)]
_CHANGED = 8  # of these many words one: three in eight of their 5-grams stay
_EVALUATION_ARTICLES, _EVALUATION_WORDS = 500, 60
_PAGES_A_STREAM = 100  # as in dumps of Wikipedia
_BOX = "{{정보상자\n| 이름 = %s\n}}\n{| class=wikitable\n! 해 !! 수\n|-\n| 1990 || {{한국}}\n|}\n"
_PARAGRAPH, _WRAPPED = re.compile(r"(?m)^(\S+) (.+)$"), r"[[\1]] \2<ref>{{웹 인용|제목=\1}}</ref>\n"


def change_words(text: str, copy: int) -> str:
    """Replace one word in eight by another one of the text; copy 0 is the text itself."""
    words = text.split(" ")
    if copy:
        for place in range(copy % _CHANGED, len(words), _CHANGED):
            words[place] = words[(place * 7 + copy * 13) % len(words)]
    return " ".join(words)


def write_texts(texts: list[Path]) -> list[int]:
    """Write the texts, a dump of the last but one, and an evaluation; return their documents."""
    articles = partial(common.repeat_wikipedia, change_words)
    numbers = [common.write_articles(path, articles(), float(path.stem))[0] for path in texts]
    cut = (article.partition("\n") for article in islice(articles(), numbers[-2]))
    pages = [(title, _BOX % title + _PARAGRAPH.sub(_WRAPPED, text)) for title, _, text in cut]
    write_multistream(texts[-2].with_suffix(DUMP_SUFFIX), pages, "en", _PAGES_A_STREAM)
    # Words in the wrong order: looked for in every text and never found.
    starts = (article.split()[_EVALUATION_WORDS::-1] for article in common.read_wikipedia())
    lines = map(" ".join, islice(starts, _EVALUATION_ARTICLES))
    texts[0].with_name(EVALUATION_NAME).write_text("\n".join(lines), encoding="utf-8")
    return numbers


def find_files(folder: Path) -> dict[int, Path]:
    """Return all files by inode, so that one that was moved is the same."""
    return {path.stat().st_ino: path for path in folder.rglob("*") if path.is_file()}


def run_stage(work: Work, stage: Stage, cores: int) -> dict[str, Any]:
    """Run a stage; return its seconds, on one core the processor's for each task, and its files."""
    known, num_bytes, begun = find_files(work.out), Counter[str](), time.perf_counter()
    times = [time.process_time()]
    times += [time.process_time() for _ in run_locally(cores, work, stage)]
    seconds = time.perf_counter() - begun
    new = [path for inode, path in find_files(work.out).items() if inode not in known]
    for path in new:
        num_bytes[path.name.partition(".")[2]] += path.stat().st_size
    own = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    largest = max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    return {
        "stage": stage.name, "tasks": stage.num_tasks, "seconds": round(seconds, 3),
        "seconds_of_tasks": np.diff(times).round(4).tolist() if cores == 1 else [],
        "largest_megabytes": round(largest * 1024 / 1e6), "files": len(new), "bytes": num_bytes,
    }  # fmt: skip


def run(step: str, text: Path, cores: int) -> None:
    """Run a step on the first cores of this machine and write down what it took."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    select = dict(SELECTION.get(step.removeprefix(READ), {}))
    if "decontaminate" in select:
        select["decontaminate"] = (str(text.with_name(EVALUATION_NAME)),)
    config = from_mapping(PrepareConfig, {"select": select, "tokenizer": {"vocab_size": 8192}})
    paths = [str(text.with_suffix(DUMP_SUFFIX) if step.endswith("wikitext") else text)]
    (out := text.with_name("scratch")).mkdir()
    start = time.perf_counter()
    work = plan_work(paths, paths, out, config, 0, print)
    planned, lists = time.perf_counter(), partial(partial, list_undone, work)
    list(work_through([next(list_stages(work))], lists, 1, str(out), apart=True))
    begun = time.perf_counter()
    stages = islice(list_stages(work), None if step in WHOLE else 1)
    found = [run_stage(work, stage, cores) for stage in stages]
    seconds = time.perf_counter() - begun + planned - start
    blocks, megabytes = len(work.plan.blocks), text.stat().st_size / 1e6
    facts = {
        "step": step, "megabytes": megabytes, "cores": cores, "blocks": blocks,
        "megabytes_per_second": round(megabytes / seconds, 3),
        "seconds_to_start_a_process": round(begun - planned, 3),
        "largest_megabytes": found[-1]["largest_megabytes"],
        "files_a_block": round(sum(stage["files"] for stage in found) / blocks, 2),
        "files_left_a_block": round(len(find_files(out)) / blocks, 2), "stages": found,
    }  # fmt: skip
    (out / FACTS_NAME).write_text(json.dumps(facts), encoding="utf-8")


def measure(step: str, text: Path, cores: int) -> dict[str, Any]:
    """Run a step in a process of its own; return what it took, and the peak of its memory."""
    shutil.rmtree(out := text.with_name("scratch"), ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.preparation_scale", step, str(text), str(cores)]
    peak, _ = common.measure_peak(command)
    facts = json.loads((out / FACTS_NAME).read_text(encoding="utf-8"))
    return {"peak_megabytes": round(peak.proportional / 1e6), **facts}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, required=True, help="texts and measurements")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[20, 150, 600])


def main(arguments: argparse.Namespace) -> None:
    folder, runs = arguments.runs, list[dict[str, Any]]()
    folder.mkdir(parents=True, exist_ok=True)
    texts = [folder / f"{size}.txt" for size in sorted(arguments.megabytes)]
    kept = folder / f"{'-'.join(path.stem for path in texts)}.json"
    documents = common.recall(kept, partial(write_texts, texts))
    steps = [*product(STEPS, texts[-2:-1]), *product(WHOLE, texts)]
    for (step, text), cores in product(steps, CORES):
        kept = folder / f"{text.stem}-{step.replace(': ', '-')}-{cores}.json"
        runs.append(common.recall(kept, partial(measure, step, text, cores)))
        print({name: value for name, value in runs[-1].items() if name != "stages"}, flush=True)
    common.write_result("preparation-scale", {"documents": documents, "runs": runs})


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
