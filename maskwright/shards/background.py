"""Work that goes on while the program does something else, several things at a time."""

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from maskwright.errors import ShardError

Item = TypeVar("Item")


def work_through(
    items: Iterable[Item],
    do: Callable[[Item], object],
    conclude: Callable[[list[Item]], None],
    num_threads: int,
) -> None:
    """Begins to `do` all of `items` in their order; returns at once.

    The threads are daemons: nobody waits for them when the program ends before they do.

    Args:
        conclude: told at the end for which items there was a ShardError.
    """
    waiting, turn = iter(items), threading.Lock()
    failed: list[Item] = []

    def work() -> None:
        while True:
            with turn:
                item = next(waiting, None)
            if item is None:
                return
            try:
                do(item)
            except ShardError:
                failed.append(item)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(num_threads)]

    def wait() -> None:
        for thread in threads:
            thread.join()
        conclude(failed)

    for thread in (*threads, threading.Thread(target=wait, daemon=True)):
        thread.start()
