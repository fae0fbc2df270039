"""Printing to a terminal, with control characters escaped, as in ``\\x1b``.

In text of a file, a model or a vocabulary, escape sequences could move the cursor, hide lines, or
set the clipboard or the title, and direction marks could show a name backwards.

Long tasks print a plain line every half minute (`Pulse`), on a terminal and in a log.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import rich.console
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

# Control characters except line ends and tabs, direction marks (embedding, override, isolate), and
# surrogates, which cannot be encoded.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
EVERY_SECONDS = 30.0


def escape_controls(text: str) -> str:
    """Return `text` with control characters escaped as in Python, such as ``\\x1b``."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def say(text: str = "", *, end: str = "\n", flush: bool = False) -> None:
    """Print text on standard output, without control characters."""
    print(escape_controls(text), end=end, flush=flush)


def say_json(value: Any) -> None:
    """Print a value as one line of JSON that reads back the same, without control characters."""
    text = json.dumps(value, ensure_ascii=False)
    print(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def tell(line: str) -> None:
    """Print a line on standard error; standard output is for results only."""
    print(escape_controls(line), file=sys.stderr, flush=True)


class Console(rich.console.Console):
    """rich's console, which prints no control characters but its own."""

    def render(
        self,
        renderable: rich.console.RenderableType,
        options: rich.console.ConsoleOptions | None = None,
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROL.search(segment.text):
                yield segment
            else:
                yield Segment(escape_controls(segment.text), segment.style)


def make_console() -> Console:
    """Return a console that neither highlights numbers nor wraps lines."""
    return Console(highlight=False, soft_wrap=True)


def print_table(
    console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]], *, num_names: int = 1
) -> None:
    """Print rows below their titles; columns after the first `num_names` are aligned right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, title in enumerate(titles):
        width = max([len(title), *(len(row[column]) for row in rows)])
        side = "right" if column >= num_names else "left"
        table.add_column(escape(title), justify=side, min_width=width)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


class Pulse:
    """A reporter of progress that gives `tell` at most one line every `EVERY_SECONDS`."""

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
