"""Progress of long tasks: a plain line every half minute, on a terminal and in a log."""

import time
from collections.abc import Callable

EVERY_SECONDS = 30.0


class Pulse:
    """A reporter of progress that prints at most one line every `EVERY_SECONDS`.

    Args:
        tell: called with each line.
    """

    def __init__(self, tell: Callable[[str], None] = lambda line: None) -> None:
        self._tell = tell
        self._last = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Return True if the last line is at least `EVERY_SECONDS` old."""
        return time.monotonic() - self._last >= EVERY_SECONDS

    def beat(self, line: str) -> None:
        """Report `line` if one is due."""
        if self.is_due:
            self.say(line)

    def say(self, line: str) -> None:
        """Report `line` now."""
        self._tell(line)
        self._last = time.monotonic()
