"""Worlds of gloo ranks on this machine, for tests."""

import os
import socket
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

import torch

from maskwright.cli.main import main
from maskwright.distributed.world import World, joining, read_world
from tests.forked import CONTEXT, ensure_server

Result = TypeVar("Result")

_PATIENCE_SECONDS = 180


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
    return [start_rank(_join_and_work, names, work, arguments) for names in list_names(size)]


def run_command(ranks: list[dict[str, str]], arguments: list[str]) -> list[int]:
    """The exit codes of ``maskwright ARGUMENTS`` in processes with these environments."""
    started = [start_rank(_run_main, {**os.environ, **names}, arguments) for names in ranks]
    return [rank.result(timeout=_PATIENCE_SECONDS) for rank in started]


def list_names(size: int) -> list[dict[str, str]]:
    """What the environment of each rank says, by rank: two ranks are a machine."""
    world = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "LOCAL_WORLD_SIZE": "2"}
    world["MASTER_PORT"] = str(find_free_port())
    return [{**world, "RANK": str(rank)} for rank in range(size)]


def start_rank(
    work: Callable[..., Result], names: dict[str, str], *arguments: Any
) -> Future[Result]:
    """Calls ``work(names, *arguments)`` in a process of its own."""
    ensure_server()
    pool = ProcessPoolExecutor(1, CONTEXT)
    result = pool.submit(work, names, *arguments)
    pool.shutdown(wait=False)
    return result


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _run_main(names: dict[str, str], arguments: list[str]) -> int:
    torch.set_num_threads(1)
    os.environ.update(names)
    code = main(arguments)
    for thread in threading.enumerate():  # downloads of `run_in_threads`, which tests count
        if thread.name.endswith(("(work)", "(wait)")):
            thread.join()
    return code


def _join_and_work(
    names: dict[str, str], work: Callable[..., Result], arguments: tuple[Any, ...]
) -> Result:
    warnings.simplefilter("error")
    torch.set_num_threads(2)  # as a run of a user has several
    os.environ.update(names)
    with joining(read_world(), torch.device("cpu")) as world:
        return work(world, *arguments)


def alone(work: Callable[..., Result], *arguments: Any) -> Result:
    """The same work in this process."""
    return work(World(), *arguments)
