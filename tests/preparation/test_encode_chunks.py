"""Encoding in several processes: what happens when one of them, or we, cannot go on."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from maskwright.errors import ConfigError, ShardError
from maskwright.preparation.chunks import Chunk
from maskwright.preparation.encode import EncodedChunk
from maskwright.preparation.encode_chunks import encode_chunks
from maskwright.preparation.engines import LocalEngine
from maskwright.preparation.process_pool import work_in_processes
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer
from tests.preparation.helpers import write_corpus

NUM_CHUNKS = 6
TEXT = [b"kato miren"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = write_corpus(tmp_path / "words.txt").read_text().split("\n\n")
    train_tokenizer(texts, TokenizerConfig(vocab_size=256)).save(tmp_path / "tokenizer")
    return tmp_path


def encode(folder: Path, first: list[bytes], rest: list[bytes]) -> Generator[EncodedChunk]:
    chunks = (Chunk("train", index, rest if index else first) for index in range(NUM_CHUNKS))
    return encode_chunks(chunks, folder, LocalEngine(2))


def worker_ids() -> set[int]:
    return {process.pid for process in multiprocessing.active_children() if process.pid}


def test_all_chunks_come_back(folder: Path) -> None:
    assert sorted(c.index for c in encode(folder, TEXT, TEXT)) == list(range(NUM_CHUNKS))
    assert worker_ids() == set()


def test_a_worker_that_dies_is_one_line(folder: Path) -> None:
    results = encode(folder, TEXT, TEXT)
    next(results)
    for pid in worker_ids():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ShardError, match="a process that worked on it died, perhaps"):
        list(results)
    assert worker_ids() == set()


def test_an_error_in_a_worker_says_which_file_and_where(folder: Path) -> None:
    (folder / "train").write_text("this is not a folder")
    with pytest.raises(FileExistsError, match="train") as caught:
        list(encode(folder, TEXT, TEXT))
    assert "encode_chunk" in "".join(caught.value.__notes__)
    assert worker_ids() == set()


def begin_refusing() -> Callable[[int], int]:
    raise ConfigError("select.language", "xq", "is not a language", "Try en.")


def test_what_cannot_begin_says_why() -> None:
    with pytest.raises(ConfigError) as caught:
        list(work_in_processes(iter(range(3)), begin_refusing, 2, "the text"))
    assert str(caught.value) == "select.language = xq is not a language. Try en."
    assert caught.value.field == "select.language"
    assert worker_ids() == set()


def test_whoever_stops_does_not_wait_for_the_workers(folder: Path) -> None:
    minutes_of_work = [b"kato miren sulo " * 500] * 50_000
    results = encode(folder, TEXT, minutes_of_work)
    assert next(results).index == 0
    results.close()
    assert worker_ids() == set()
    assert not list(folder.glob("train/00001.*"))


SCRIPT = """
from pathlib import Path
import sys
from maskwright.preparation.pipeline import prepare
from tests.preparation.helpers import small_config
print("the script is run", flush=True)
prepare([sys.argv[1]], Path(sys.argv[2]), small_config(workers=2))
"""


def test_a_script_without_a_guard_is_not_run_by_the_workers(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "a.txt", 3.5)
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
