"""Work in several processes: what happens when one of them, or we, cannot go on."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from maskwright.errors import ConfigError, ShardError
from maskwright.preparation.stages import count_cores, work_through
from tests.preparation.helpers import write_corpus

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


@pytest.mark.parametrize(("items", "workers"), [(range(5), 1), (range(2), 2), (range(0), 2)])
def test_a_few_are_done_by_this_process(tmp_path: Path, items: range, workers: int) -> None:
    done = work_through(items, partial(begin_writing, tmp_path), workers, "the text")
    assert len(list(done)) == len(items)
    assert {path.read_text() for path in tmp_path.iterdir()} <= {str(os.getpid())}


def test_a_worker_that_dies_is_one_line(tmp_path: Path) -> None:
    results = work_through([0, 99, 99], partial(begin_writing, tmp_path), 2, "the text", apart=True)
    next(results)
    for pid in worker_ids():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ShardError, match=r"the text: a process .* died") as caught:
        list(results)
    assert "\n" not in str(caught.value)
    assert worker_ids() == set()


def test_an_error_in_a_worker_says_which_file_and_where(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="train") as caught:
        list(work_through([0, 98], partial(begin_writing, tmp_path), 2, "the text", apart=True))
    assert "in write" in "".join(caught.value.__notes__)
    assert worker_ids() == set()


def test_what_cannot_begin_says_why() -> None:
    with pytest.raises(ConfigError) as caught:
        list(work_through(range(3), begin_refusing, 2, "the text", apart=True))
    assert str(caught.value) == "select.language = xq is not a language. Try en."
    assert caught.value.field == "select.language"
    assert worker_ids() == set()


def test_whoever_stops_does_not_wait_for_the_workers(tmp_path: Path) -> None:
    results = work_through([0, 99, 99], partial(begin_writing, tmp_path), 2, "the text", apart=True)
    next(results)
    results.close()
    assert worker_ids() == set()


SCRIPT = """
from pathlib import Path
import sys
from maskwright.corpus import blocks
from maskwright.preparation.pipeline import prepare
from tests.preparation.helpers import small_config
print("the script is run", flush=True)
blocks._FEWEST_BYTES = 10_000
prepare([sys.argv[1]], Path(sys.argv[2]), small_config(workers=2))
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


def test_there_is_a_core() -> None:
    assert count_cores() >= 1
