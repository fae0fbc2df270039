"""Text, configurations and engines for the tests of this package."""

import json
import multiprocessing
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maskwright.corpus import blocks
from maskwright.preparation import processes
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.folder import list_blocks
from maskwright.preparation.pipeline import prepare_folder
from maskwright.preparation.stages import Stage, list_stages, list_undone, start_runner
from maskwright.preparation.work import PLAN_NAME, Facts, Plan, Work
from maskwright.shards.manifest import Manifest
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.forked import Forked

_SYLLABLES = ["ka", "to", "mi", "ren", "su", "lo", "vi", "nar", "pe", "dol", "ghi", "us"]


def write_corpus(path: Path, megabytes: float = 0.05, seed: int = 0) -> Path:
    """A text file of invented words, a document a paragraph; returns `path`."""
    generator = random.Random(seed)
    words = ["".join(generator.choices(_SYLLABLES, k=generator.randint(1, 4))) for _ in range(900)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    num_bytes = 0
    with path.open("w", encoding="utf-8") as file:
        while num_bytes < megabytes * 1e6:
            text = " ".join(generator.choices(words, weights, k=generator.randint(5, 150)))
            num_bytes += file.write(text + ".\n\n")
    return path


def read_documents(path: Path) -> list[str]:
    """The documents of a file of `write_corpus`."""
    return path.read_text(encoding="utf-8").strip().split("\n\n")


def write_lines(path: Path, texts: Sequence[str]) -> Path:
    """The texts as JSON lines; returns `path`."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def small_config(block_megabytes: int = 1, workers: int = 1) -> PrepareConfig:
    tokenizer = TokenizerConfig(vocab_size=256)
    return PrepareConfig(tokenizer=tokenizer, block_megabytes=block_megabytes, workers=workers)


def prepare_quietly(
    paths: Sequence[Path | str], out: Path, config: PrepareConfig, seed: int = 0
) -> tuple[Manifest, list[str]]:
    """Prepares text; returns the manifest and the lines of the report."""
    lines: list[str] = []
    manifest = prepare_folder([str(path) for path in paths], out, config, seed, report=lines.append)
    assert manifest is not None
    return manifest, lines


def cut_small(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    """Has text cut into blocks of at least `num_bytes`, so that a little gives many."""
    monkeypatch.setattr(blocks, "_MIN_BYTES", num_bytes)


def make_work(
    folder: Path,
    paths: Sequence[Path | str],
    config: PrepareConfig,
    until: str = "",
    sample_share: float = 1.0,
) -> Work:
    """Plans the work on text below `folder`, and does it up to the stage `until`, inclusive."""
    listed, ignored = [str(path) for path in paths], Counter[str]()
    found, num_held_out = list_blocks(listed, config, ignored)
    work = Work(folder / ".work-0")
    work.folder.mkdir(parents=True)
    Plan(listed, found, num_held_out, dict(ignored), config, 0, sample_share, "/").write(
        work.folder / PLAN_NAME
    )
    if until:
        run_stages(work, until)
    return work


def run_stages(work: Work, until: str) -> None:
    """Does the stages up to `until`, inclusive."""
    engine = DealtTasks(1)
    for stage in list_stages(work):
        list(engine(work, stage))
        if stage.name == until:
            return
    raise AssertionError(f"{until} is no stage")


@dataclass(frozen=True)
class DealtTasks:
    """An engine that deals the tasks of each stage to N runners, in random order if it draws."""

    ranks: int
    draw: random.Random | None = field(default=None)

    def __call__(self, work: Work, stage: Stage) -> Iterator[int]:
        """Does the tasks one after the other."""
        runners = [start_runner(work.folder) for _ in range(self.ranks)]
        tasks = list_undone(work, stage)
        if self.draw is not None:
            self.draw.shuffle(tasks)
        for number, task in enumerate(tasks):
            runners[number % self.ranks](task)
            yield 1


def run_prepare(arguments: Sequence[str], block_bytes: int, mishap: str = "") -> tuple[int, str]:
    """Runs ``maskwright prepare`` in processes that cut small blocks and meet with a mishap.

    Returns its exit code and what it said, when all of them have ended.
    """
    command = [sys.executable, "-m", "maskwright", "prepare", *arguments]
    with Forked(command, prepare=partial(meet_with, mishap, block_bytes)) as process:
        said = "".join(process.communicate())
        return process.wait(), said


def meet_with(mishap: str, block_bytes: int) -> None:
    """Changes a process, and the workers that it forks, so that they meet with it.

    Args:
        mishap: ``STAGE:NUMBER:SIGNAL:WHO``: when that task is about to be reported as done, WHO
            (worker or coordinator) gets the signal of that number.
    """
    report_done = Work.report_done

    def report_unless_hit(self: Work, stage: str, number: int, facts: Facts) -> None:
        at_stage, at_number, signum, who = mishap.split(":")
        if (stage, str(number)) == (at_stage, at_number):
            os.kill(os.getpid() if who == "worker" else os.getppid(), int(signum))
            signal.pause()  # workers end with their coordinator
        report_done(self, stage, number, facts)

    blocks.__dict__["_MIN_BYTES"] = block_bytes
    processes.__dict__["get_context"] = lambda _: multiprocessing.get_context("fork")
    if mishap:
        Work.report_done = report_unless_hit


def interrupt_at(monkeypatch: pytest.MonkeyPatch, worker: type[Any], count: int) -> list[int]:
    """Has Ctrl-C come when `count` tasks have been begun; returns the numbers of all that are."""
    work, begun = worker.__call__, list[int]()

    def work_or_stop(self: Any, number: int) -> Any:
        begun.append(number)
        if len(begun) == count:
            raise KeyboardInterrupt
        return work(self, number)

    monkeypatch.setattr(worker, "__call__", work_or_stop)
    return begun


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def read_shards(out: Path, split: str) -> list[str]:
    """The documents of a split, decoded, in order."""
    tokenizer, store = Tokenizer.load(out / "tokenizer"), TokenStore.open(out, split)
    ends = store.document_lengths.cumsum().tolist()
    return [
        tokenizer.decode(store.tokens(start, end))
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def described(config: PrepareConfig) -> PrepareConfig:
    """The same configuration, with counts of languages and lengths."""
    return replace(config, select=replace(config.select, describe=True))
