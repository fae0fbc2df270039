"""The same bytes, whoever does the tasks, in whatever order, how often, and who dies meanwhile."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from maskwright import files
from maskwright.corpus.config import CorpusConfig
from maskwright.preparation import pipeline
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.process_pool import work_through
from maskwright.preparation.stages import Stage, TaskRunner, list_stages, list_undone
from maskwright.preparation.work import CONNECT, VOCABULARY, Work
from maskwright.selection.config import SelectionConfig
from maskwright.shards.manifest import Manifest
from tests.preparation.helpers import (
    DealtTasks,
    cut_small,
    make_work,
    prepare_quietly,
    read_folder,
    small_config,
    write_lines,
)

BLOCK_BYTES = 6_000
WORDS = [f"{a}{b}{c}" for a in "klmn" for b in ("a", "ei", "o", "u") for c in ("rt", "s", "ng", "")]


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        cut_small(monkeypatch, BLOCK_BYTES)
        yield


@dataclass(frozen=True)
class Text:
    """Text of about 17 blocks, with all that may be alike in it, and what is held out of it."""

    paths: tuple[str, ...]
    config: PrepareConfig

    @property
    def arguments(self) -> list[str]:
        """Its path and those of its options on the command line of `START`."""
        return [*self.paths, *self.config.corpus.valid_text]


def configure(held_out: Path) -> PrepareConfig:
    corpus = CorpusConfig(valid_text=(str(held_out),))
    select = SelectionConfig(repair=True, drop_boilerplate=True, near_duplicates=0.9)
    return replace(small_config(), corpus=corpus, select=select)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    folder, draw = tmp_path_factory.mktemp("text"), random.Random(0)
    documents: list[str] = []
    for _ in range(200):
        words = draw.choices(WORDS, k=draw.randint(20, 160))
        kind = draw.random()
        if documents and kind < 0.15:  # a copy
            documents.append(draw.choice(documents))
            continue
        if documents and kind < 0.5:  # nearly a copy
            words = draw.choice(documents).split()
            words[draw.randrange(len(words))] = draw.choice(WORDS)
        documents.append(" ".join(words))
    broken = [f"Übung: {one}\nWe use cookies.".encode().decode("cp1252") for one in documents[:5]]
    held_out = write_lines(folder / "held-out.jsonl", [*documents[:9], *broken, *documents[30:33]])
    path = write_lines(folder / "a.jsonl", [*documents[3:], *broken])
    with path.open("a") as file:
        file.write("no JSON\n")
    (folder / "b.txt").write_text("\n\n".join([*documents[40:60], *draw.sample(documents, 20)]))
    return Text((str(path), str(folder / "b.txt")), configure(held_out))


def hash_folder(folder: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256(content).hexdigest() for name, content in read_folder(folder).items()
    }


@dataclass(frozen=True)
class Expected:
    manifest: Manifest
    hashes: dict[str, str]


@pytest.fixture(scope="module")
def expected(text: Text, tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """The folder that one process makes, task by task."""
    out = tmp_path_factory.mktemp("expected") / "out"
    manifest, _ = prepare_quietly(text.paths, out, text.config)
    return Expected(manifest, hash_folder(out))


def test_the_text_has_all_that_matters(expected: Expected) -> None:
    dropped = expected.manifest.dropped
    assert dropped.pop("bad JSON line (first a.jsonl:203)") == 1
    assert min(dropped.values()) >= 5
    assert sorted(dropped) == [
        "boilerplate lines dropped",
        "duplicate",
        "in corpus.valid_text",
        "mended by ftfy",
        "near duplicate",
    ]
    assert len(expected.manifest.splits["train"].shards) >= 15


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
def test_tasks_in_random_order_dealt_to_any_number_of_runners(
    text: Text, expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    engine = DealtTasks(ranks, random.Random(ranks))
    monkeypatch.setattr(pipeline, "choose_engine", lambda config: engine)
    prepare_quietly(text.paths, tmp_path / "out", text.config)
    assert hash_folder(tmp_path / "out") == expected.hashes


class TwiceEngine:
    """Two processes that each do all tasks, at about the same time."""

    def run(self, work: Work, stage: Stage) -> Iterator[int]:
        tasks = [task for task in list_undone(work, stage) for _ in (1, 2)]
        if stage.num_tasks == 1:
            tasks = tasks[:1]
        for _ in work_through(tasks, partial(TaskRunner, work.folder), 2, "twice", apart=True):
            yield 0
        yield stage.num_tasks


def test_tasks_done_twice_by_two_processes(
    text: Text, expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "choose_engine", lambda config: TwiceEngine())
    prepare_quietly(text.paths, tmp_path / "out", text.config)
    assert hash_folder(tmp_path / "out") == expected.hashes


class InStep:
    """Two runners that do each task at the same time: both write a file before either is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.barrier, flush = threading.Barrier(2), files.flush

        def flush_together(path: Path) -> None:
            flush(path)
            self.wait()

        monkeypatch.setattr(files, "flush", flush_together)

    def wait(self) -> None:
        with suppress(threading.BrokenBarrierError):  # the other one failed
            self.barrier.wait(60)

    def run(self, work: Work, stage: Stage) -> Iterator[int]:
        tasks, failed = list_undone(work, stage), list[Exception]()

        def do_all() -> None:
            runner = TaskRunner(work.folder)
            for task in tasks:
                self.wait()
                try:
                    runner(task)
                except Exception as error:
                    failed.append(error)
                    self.barrier.abort()

        if stage.num_tasks == 1:
            self.barrier.abort()
            do_all()
        else:
            self.barrier.reset()
            threads = [threading.Thread(target=do_all) for _ in (1, 2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert failed == []
        yield len(tasks)


def test_tasks_done_twice_file_by_file(
    text: Text, expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "choose_engine", lambda config: engine)
    engine = InStep(monkeypatch)
    engine.barrier.abort()
    prepare_quietly(text.paths, tmp_path / "out", text.config)
    assert hash_folder(tmp_path / "out") == expected.hashes


def test_a_task_that_is_done_late_once_more_changes_nothing(text: Text, tmp_path: Path) -> None:
    """By a process that was thought dead, when the stages after it are done."""
    work = make_work(tmp_path / "out", text.paths, text.config, VOCABULARY)
    before = {stage.name: hash_folder(work.folder / stage.name) for stage in list_stages(work, 1)}
    last = work.last_round()
    assert last not in (None, f"{CONNECT}-1")
    for stage in list_stages(work, 1):
        for number in range(stage.num_tasks if stage.name in before else 0):
            done = work.path(stage.name, number, "json")
            if done.exists() and stage.name != VOCABULARY:
                kept = done.rename(tmp_path / "kept.json")
                TaskRunner(work.folder)((stage.name, number))
                assert done.read_bytes() == kept.read_bytes()
    assert before == {each: hash_folder(work.folder / each) for each in before}
    assert Work(work.folder).last_round() == last


START = """
import os
import signal
import sys
from pathlib import Path
from maskwright.corpus import blocks
from maskwright.preparation import pipeline
from maskwright.preparation.pipeline import prepare
from tests.preparation.test_stages import BLOCK_BYTES, configure, replace

if __name__ == "__main__":
    out, engine, *paths, held_out = sys.argv[1:]
    blocks._FEWEST_BYTES = BLOCK_BYTES
    config = replace(configure(Path(held_out)), engine=engine, workers=2)
    prepare(paths, Path(out), config, report=lambda line: print(line, flush=True))
"""


def start(script: Path, out: Path, engine: str, text: Text) -> "subprocess.Popen[str]":
    script.write_text(START)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, str(script), str(out), engine, *text.arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def list_children(parent: int) -> list[int]:
    """The workers of a process, oldest first; not the process that tracks its resources."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return [pid for pid, command in commands.items() if b"spawn_main" in command]


ENGINES = [
    "local",
    pytest.param(
        "datatrove-local",
        marks=pytest.mark.skipif(find_spec("datatrove") is None, reason="no datatrove"),
    ),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("who", ["worker", "coordinator"])
def test_whoever_is_killed_again_and_again(
    text: Text, expected: Expected, tmp_path: Path, engine: str, who: str
) -> None:
    out, draw = tmp_path / "out", random.Random(3)
    lines: list[str] = []
    for stage in ("read", "near duplicates", "round 1", "encoded", "never"):
        with start(tmp_path / "start.py", out, engine, text) as process:
            assert process.stdout is not None
            is_killed = False
            for line in process.stdout:
                lines.append(line)
                if line.startswith(stage) and "before" not in line and not is_killed:
                    is_killed = True
                    if who == "coordinator":
                        process.kill()
                    else:
                        for worker in draw.sample(found := list_children(process.pid), len(found))[
                            :1
                        ]:
                            os.kill(worker, signal.SIGKILL)
        if stage == "never":
            assert process.returncode == 0, "".join(lines)
    assert hash_folder(out) == expected.hashes
