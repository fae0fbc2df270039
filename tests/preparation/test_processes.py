"""The same bytes, whoever does the tasks, in whatever order, how often, and who dies meanwhile."""

import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from maskwright import files
from maskwright.corpus.config import CorpusConfig
from maskwright.errors import ConfigError, ShardError
from maskwright.preparation import pipeline
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.processes import work_through
from maskwright.preparation.stages import Stage, list_undone, start_runner
from maskwright.preparation.tasks import BlockReader, connect_range, find_exact, find_near
from maskwright.preparation.work import CONNECT, EXACT, NEAR, READ, VOCABULARY, Facts, Work
from maskwright.selection.config import SelectionConfig
from maskwright.shards.manifest import Manifest
from tests.preparation.helpers import (
    DealtTasks,
    cut_small,
    make_work,
    prepare_quietly,
    read_folder,
    run_prepare,
    small_config,
    write_corpus,
    write_lines,
)

BLOCK_BYTES = 4_500
WORDS = [f"{a}{b}{c}" for a in "klmnprst" for b in "aeiou" for c in "lrstx"]


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        cut_small(monkeypatch, BLOCK_BYTES)
        yield


@dataclass(frozen=True)
class Text:
    """Text of about 20 blocks, with all that may be alike in it, and what is held out of it."""

    paths: tuple[str, ...]
    config: PrepareConfig

    @property
    def arguments(self) -> list[str]:
        """The same on the command line."""
        return [
            *self.paths, *("--corpus.valid_text", *self.config.corpus.valid_text),
            *("--select.repair", "true", "--select.drop_boilerplate", "true"),
            *("--select.near_duplicates", "0.9", "--tokenizer.vocab_size", "256"),
            *("--block_megabytes", "1", "--workers", "2"),
        ]  # fmt: skip


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
    corpus = CorpusConfig(valid_text=(str(held_out),))
    select = SelectionConfig(repair=True, drop_boilerplate=True, near_duplicates=0.9)
    config = replace(small_config(), corpus=corpus, select=select)
    return Text((str(path), str(folder / "b.txt")), config)


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
    assert min(count for reason, count in dropped.items() if "JSON" not in reason) >= 5
    assert [reason.partition(":")[0] for reason in sorted(dropped)] == [
        "bad JSON line (first a.jsonl",
        "boilerplate lines dropped",
        "duplicate",
        "in corpus.valid_text",
        "near duplicate",
        "repaired by ftfy",
    ]
    assert 17 <= len(expected.manifest.splits["train"].shards) <= 32  # in two ranges


@pytest.mark.parametrize("ranks", [1, 8])
def test_tasks_in_random_order_dealt_to_any_number_of_runners(
    text: Text, expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    engine = DealtTasks(ranks, random.Random(ranks))
    monkeypatch.setattr(pipeline, "choose_engine", lambda config: engine)
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

    def __call__(self, work: Work, stage: Stage) -> Iterator[int]:
        tasks, failed = list_undone(work, stage), list[Exception]()

        def do_all() -> None:
            runner = start_runner(work.folder)
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
    before, last = hash_folder(work.folder), work.last_round()
    assert last not in (None, f"{CONNECT}-1")
    reads = BlockReader(work)
    for number in range(len(work.plan.blocks)):
        assert as_json(reads(number)) == work.facts(READ, number)
    for stage, find in (
        (EXACT, find_exact),
        (NEAR, find_near),
        (f"{CONNECT}-1", connect_range),
        (last, connect_range),
    ):
        for number in range(work.plan.num_ranges):
            assert as_json(find(work, stage, number)) == work.facts(stage, number)
    assert hash_folder(work.folder) == before


def as_json(facts: Facts) -> Facts:
    return json.loads(json.dumps(facts))


ENGINES = [
    "local",
    pytest.param(
        "datatrove-local",
        marks=pytest.mark.skipif(find_spec("datatrove") is None, reason="no datatrove"),
    ),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_workers_and_coordinators_are_killed_and_the_same_command_goes_on(
    text: Text, expected: Expected, tmp_path: Path, engine: str
) -> None:
    command = [*text.arguments, "--out", str(tmp_path / "out"), "--engine", engine]
    for stage, number, who in (
        ("read", 5, "worker"),
        ("near", 15, "coordinator"),
        ("encode", 9, "worker"),
    ):
        mishap = f"{stage}:{number}:{int(signal.SIGKILL)}:{who}"
        code, said = run_prepare(command, BLOCK_BYTES, mishap)
        assert code == (-signal.SIGKILL if who == "coordinator" else 2), said
        assert ("a process that worked on it died" in said) == (who == "worker")
    code, said = run_prepare(command, BLOCK_BYTES)
    assert code == 0, said
    assert hash_folder(tmp_path / "out") == expected.hashes


MINUTES = 600


def begin_writing(folder: Path) -> Callable[[int], None]:
    """Leaves a file for each number, with the number of the process; 99 takes minutes, 98 fails."""

    def write(number: int) -> None:
        if number == 98:
            raise FileExistsError(17, "File exists", str(folder / "train"))
        (folder / str(number)).write_text(str(os.getpid()))
        time.sleep(MINUTES * (number == 99))

    return write


def begin_refusing() -> Callable[[int], None]:
    raise ConfigError("select.language", "xq", "is not a language", "Try en.")


def worker_ids() -> set[int]:
    return {process.pid for process in multiprocessing.active_children() if process.pid}


def test_each_item_is_done(tmp_path: Path) -> None:
    start = partial(begin_writing, tmp_path)
    assert len(list(work_through(range(5), start, 2, "the text", apart=True))) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == list("01234")
    assert str(os.getpid()) not in {path.read_text() for path in tmp_path.iterdir()}
    assert worker_ids() == set()


def test_a_worker_that_dies_is_one_line(tmp_path: Path) -> None:
    results = work_through([0, 99, 99], partial(begin_writing, tmp_path), 2, "the text", apart=True)
    next(results)
    for pid in worker_ids():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ShardError, match=r"the text: a process .* died") as caught:
        list(results)
    assert "\n" not in str(caught.value)
    assert worker_ids() == set()


@pytest.mark.usefixtures("forked_workers")
def test_an_error_in_a_worker_says_which_file_and_where(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="train") as caught:
        list(work_through([0, 98], partial(begin_writing, tmp_path), 2, "the text", apart=True))
    assert "in write" in "".join(caught.value.__notes__)
    assert worker_ids() == set()


@pytest.mark.usefixtures("forked_workers")
def test_what_cannot_begin_says_why() -> None:
    with pytest.raises(ConfigError) as caught:
        list(work_through(range(3), begin_refusing, 2, "the text", apart=True))
    assert str(caught.value) == "select.language = xq is not a language. Try en."
    assert caught.value.field == "select.language"
    assert worker_ids() == set()


@pytest.mark.usefixtures("forked_workers")
def test_whoever_stops_does_not_wait_for_the_workers(tmp_path: Path) -> None:
    results = work_through([0, 99, 99], partial(begin_writing, tmp_path), 2, "the text", apart=True)
    next(results)
    results.close()
    assert worker_ids() == set()


SCRIPT = """
from pathlib import Path
import sys
from maskwright.corpus import blocks
from maskwright.preparation.pipeline import prepare_folder
from tests.preparation.helpers import small_config
print("the script is run", flush=True)
blocks._MIN_BYTES = 10_000
prepare_folder([sys.argv[1]], Path(sys.argv[2]), small_config(workers=2))
"""


def test_a_script_without_a_guard_is_not_run_by_the_workers(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "a.txt")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(text), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["the script is run"]
