"""Work that goes on while the program does something else, several things at a time."""

import threading
from collections.abc import Callable, Iterable

from maskwright.errors import ShardError


def work_through(
    names: Iterable[str],
    do: Callable[[str], object],
    conclude: Callable[[list[str]], None],
    num_threads: int,
) -> None:
    """Begins to `do` all of `names` in their order; returns at once.

    The threads are daemons: nobody waits for them when the program ends before they do.

    Args:
        conclude: told at the end for which names there was a ShardError.
    """
    waiting, turn = iter(names), threading.Lock()
    failed: list[str] = []

    def work() -> None:
        while True:
            with turn:
                name = next(waiting, None)
            if name is None:
                return
            try:
                do(name)
            except ShardError:
                failed.append(name)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(num_threads)]

    def wait() -> None:
        for thread in threads:
            thread.join()
        conclude(failed)

    for thread in (*threads, threading.Thread(target=wait, daemon=True)):
        thread.start()
