"""Signs of life of long work: a plain line now and then, on a terminal and in a log alike."""

import time
from collections.abc import Callable

EVERY_SECONDS = 30.0


class Pulse:
    """Says how far something is, but only when nothing has been said for a while.

    Args:
        tell: takes a line.
    """

    def __init__(self, tell: Callable[[str], None] = lambda line: None) -> None:
        self._tell = tell
        self._last = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last line was said half a minute ago or earlier."""
        return time.monotonic() - self._last >= EVERY_SECONDS

    def beat(self, line: str) -> None:
        """Report `line` if one is due."""
        if self.is_due:
            self.say(line)

    def say(self, line: str) -> None:
        """Report `line` in any case."""
        self._tell(line)
        self._last = time.monotonic()
