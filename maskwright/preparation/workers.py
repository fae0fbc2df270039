"""Encodes chunks on all cores, with a bounded number of them in memory."""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from pathlib import Path

from maskwright.errors import ShardError
from maskwright.preparation.chunks import Chunk
from maskwright.preparation.encode import EncodedChunk, encode_chunk
from maskwright.tokenizer.tokenizer import Tokenizer

_FEW_CHUNKS = 2  # are encoded sooner than other processes are started


def count_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def encode_chunks(
    chunks: Iterable[Chunk], folder: Path, tokenizer: Tokenizer, workers: int
) -> Iterator[EncodedChunk]:
    """Encodes all chunks into `folder`, in any order.

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
) -> Iterator[EncodedChunk]:
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (folder,))
    running: set[Future[EncodedChunk]] = set()
    try:
        for chunk in chunks:
            running.add(pool.submit(_work, chunk))
            if len(running) > workers:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in running)
    except BrokenProcessPool:
        raise ShardError(
            f"{folder}: an encoding process died, perhaps for lack of memory. Run again to "
            "continue, with fewer --workers."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_worker: tuple[Path, Tokenizer] | None = None


def _start_worker(folder: Path) -> None:
    """Makes this process a worker: one thread, deaf to Ctrl-C, and gone when its parent is."""
    global _worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _worker = folder, Tokenizer.load(folder / "tokenizer")


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(chunk: Chunk) -> EncodedChunk:
    assert _worker is not None
    return encode_chunk(chunk, *_worker)
