"""Stopping a run by a signal: the loop ends after the current step."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | None


class AbandonedError(Exception):
    """A long task ended early because of a signal."""


class TerminatedError(BaseException):
    """SIGTERM was received; not an Exception, so that no ``except Exception`` catches it."""


class StopRequest:
    """A context in which SIGINT and SIGTERM set `signal` instead of ending the process.

    A second SIGINT interrupts at once. Outside the main thread, where Python allows no signal
    handlers, the context does nothing.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> "StopRequest":
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        except ValueError:
            self._before.clear()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


@contextmanager
def deferring_stop() -> Generator[None]:
    """Raise SIGINT and SIGTERM at the end of the context instead of in its middle.

    A second SIGINT interrupts at once.
    """
    with StopRequest() as stop:
        yield
    if stop.signal is not None:
        signal.raise_signal(stop.signal)
