"""Worlds of gloo ranks on this machine, for tests."""

import multiprocessing
import os
import socket
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

import torch

from maskwright.distributed.world import World, joining, read_world

Result = TypeVar("Result")

# New processes are forked from one that has imported all this once and computed nothing.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["torch.distributed.fsdp", "torch.distributed.checkpoint", "tests.train.helpers"]
)
_PATIENCE_SECONDS = 120


def run_world(size: int, work: Callable[..., Result], *arguments: Any) -> list[Result]:
    """Calls ``work(world, *arguments)`` on `size` ranks; their results, by rank.

    Args:
        work: a function of a module, which other processes can import.

    Raises:
        Exception: what the first failing rank raised.
    """
    ranks = start_world(size, work, *arguments)
    return [rank.result(timeout=_PATIENCE_SECONDS) for rank in ranks]


def start_world(size: int, work: Callable[..., Result], *arguments: Any) -> list[Future[Result]]:
    """Like `run_world`, but does not wait. Each rank is a pool of its own, so that one may die."""
    port, ranks = find_free_port(), list[Future[Result]]()
    for rank in range(size):
        pool = ProcessPoolExecutor(1, _CONTEXT)
        ranks.append(pool.submit(_join_and_work, rank, size, port, work, arguments))
        pool.shutdown(wait=False)
    return ranks


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _join_and_work(
    rank: int, size: int, port: int, work: Callable[..., Result], arguments: tuple[Any, ...]
) -> Result:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    names = {"RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
    os.environ.update({name: str(value) for name, value in names.items()})
    with joining(read_world(), torch.device("cpu")) as world:
        return work(world, *arguments)


def alone(work: Callable[..., Result], *arguments: Any) -> Result:
    """The same work in this process."""
    return work(World(), *arguments)
