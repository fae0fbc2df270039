"""Encodes chunks on all cores, with a bounded number of them in memory."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import chain, islice
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any, TypeAlias

from maskwright.errors import ShardError
from maskwright.preparation.chunks import Chunk
from maskwright.preparation.encode import EncodedChunk, encode_chunk
from maskwright.tokenizer.tokenizer import Tokenizer

Line: TypeAlias = "Connection[Any, Any]"

_FEW_CHUNKS = 2  # are encoded sooner than other processes are started


def count_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def encode_chunks(
    chunks: Iterable[Chunk], folder: Path, tokenizer: Tokenizer, workers: int
) -> Generator[EncodedChunk]:
    """Encodes all chunks into `folder`, in any order. Closing the generator ends it at once.

    Args:
        chunks: read as a stream, at most `workers` + 1 ahead.
        folder: the prepared folder; its ``tokenizer`` folder holds `tokenizer`.
        tokenizer: for this process; others load it themselves.
        workers: number of processes; 1 encodes in this one.

    Raises:
        ShardError: a worker died.
    """
    remaining = iter(chunks)
    first = list(islice(remaining, _FEW_CHUNKS + 1))
    everything = chain(first, remaining)
    if workers == 1 or len(first) <= _FEW_CHUNKS:
        for chunk in everything:
            yield encode_chunk(chunk, folder, tokenizer)
    else:
        del first
        yield from _encode_in_processes(everything, folder, workers)


def _encode_in_processes(
    chunks: Iterator[Chunk], folder: Path, workers: int
) -> Generator[EncodedChunk]:
    team = _Team(folder)
    threads = ThreadPoolExecutor(workers, "encoding")  # each waits for one process
    running: set[Future[EncodedChunk]] = set()
    try:
        for chunk in chunks:
            if team.size < workers:
                team.hire()
            running.add(threads.submit(team.encode, chunk))
            if len(running) > workers:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in running)
    finally:
        team.dismiss()
        threads.shutdown(cancel_futures=True)


class _Team:
    """Encoding processes, each with a line of its own, so that none can hold up another.

    `ProcessPoolExecutor` waits for its processes when it is interrupted, and its semaphores
    outlive a program that is killed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[SpawnProcess] = []
        self._free: SimpleQueue[Line] = SimpleQueue()

    @property
    def size(self) -> int:
        return len(self._processes)

    def hire(self) -> None:
        """Starts another process. Ctrl-C, which the terminal sends to all, is for us alone."""
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self._folder, theirs), daemon=True)
        resource_tracker.ensure_running()  # which the first start does else, and unblocks signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with _hiding_main():
                process.start()  # with the same signals blocked
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._processes.append(process)
        self._free.put(ours)

    def encode(self, chunk: Chunk) -> EncodedChunk:
        """Has a chunk encoded by the next free process.

        Raises:
            ShardError: it died.
        """
        line = self._free.get()
        try:
            line.send(chunk)
            answer = line.recv()
        except (EOFError, OSError):
            raise ShardError(
                f"{self._folder}: an encoding process died, perhaps for lack of memory. Run again "
                "to continue, with fewer --workers."
            ) from None
        finally:
            self._free.put(line)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def dismiss(self) -> None:
        """Ends all processes at once, whatever they do: files appear whole or not at all."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()


@contextmanager
def _hiding_main() -> Generator[None]:
    """Processes started within do not import the program's main file, as they would otherwise.

    They need nothing of it, and one that calls us without a guard would do so in each of them,
    and wait for the folder that we have locked.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _work(folder: Path, line: Line) -> None:
    """Encodes what comes down the line, in one thread, until the parent hangs up or is gone."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    tokenizer = Tokenizer.load(folder / "tokenizer")
    with suppress(EOFError, OSError):  # nobody is there any more
        while True:
            line.send(_try(line.recv(), folder, tokenizer))


def _try(chunk: Chunk, folder: Path, tokenizer: Tokenizer) -> EncodedChunk | Exception:
    try:
        return encode_chunk(chunk, folder, tokenizer)
    except Exception as error:
        error.add_note(traceback.format_exc())  # the traceback itself cannot be sent
        return error


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
