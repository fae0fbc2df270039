"""What a test takes away from its own process, to see what happens then."""

import resource
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def limited_file_size(num_bytes: int) -> Generator[None]:
    """No file can grow beyond `num_bytes`: a write stops there, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def limited_cpu_seconds(seconds: float) -> Generator[None]:
    """Raise TimeoutError once the block has used this much CPU time, on however busy a machine.

    It stops a search that would go on for minutes, also inside a regular expression.
    """

    def stop(*_: object) -> NoReturn:
        raise TimeoutError(f"more than {seconds:g} seconds of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
