"""Text for people: counts with their nouns, short names, escaped Markdown.

Names in a model card are untrusted: they must not become links, images or HTML, or end a table.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from maskwright.errors import make_line

UNDEFINED = "undefined"


def count_noun(number: int, noun: str) -> str:
    """Return the number with its noun: ``1 document``, ``8,731 documents``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def show_share(share: float, num_decimals: int = 0) -> str:
    """Return a share in percent; up to 0.5 % with two significant digits."""
    if 0 < share <= 0.005:
        return f"{100 * share:#.2g}%"
    return f"{share:.{num_decimals}%}"


def show_duration(seconds: float) -> str:
    """Return a time in the unit that suits it: ``25 minutes``, ``3.6 hours``, ``4 days``."""
    for unit, length, limit in (("minutes", 60, 5400), ("hours", 3600, 172_800)):
        if seconds < limit:
            return f"{seconds / length:.{1 if seconds < 10 * length else 0}f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def describe_cut(num_cut: int, num_texts: int, longest: int) -> str:
    """Return a line that reports how many texts are longer than the model's limit."""
    return (
        f"{num_cut:,} of {count_noun(num_texts, 'text')} ({num_cut / num_texts:.1%}) cut: only the "
        f"first {longest:,} tokens are read"
    )


def shorten_names(names: Sequence[str]) -> list[str]:
    """Return the last components of paths, as many as make them distinct."""
    parts = [Path(name).resolve().parts for name in names]
    for count in range(1, max(map(len, parts))):
        short = ["/".join(own[-count:]) for own in parts]
        if len(set(short)) == len(short):
            return short
    return list(names)


def name_group(names: Sequence[str]) -> str:
    """Return what the names of the runs of a group have in common, and their number.

    ``a-0`` and ``a-1`` are ``a (2 runs)``; names without a common beginning are joined.
    """
    first, last = min(names), max(names)
    length = next((n for n, one in enumerate(first) if last[n : n + 1] != one), len(first))
    common = re.sub(r"\d+$", "", first[:length]).rstrip("-_./ ")  # the seeds may be 10 and 11
    return f"{common or ', '.join(names)} ({count_noun(len(names), 'run')})"


# Between letters, _ is not emphasis. GitHub turns :// and www. into links.
_SPECIAL = re.compile(
    r"^[#>+-]|[\\`*\[\]|~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|:(?=//)|(?<=www)\.", re.IGNORECASE
)
_ENTITIES = {"&": "&amp;", "<": "&lt;"}
_BACKTICKS = re.compile(r"`+")


def escape_markdown(text: str) -> str:
    """Return one line of Markdown that renders as `text`, in table cells too."""
    escaped = _SPECIAL.sub(lambda found: f"\\{found[0]}", make_line(text))
    return "".join(_ENTITIES.get(character, character) for character in escaped)


def write_code(text: str) -> str:
    """Return `text` as a code span; not for tables, where a ``|`` ends it."""
    line = make_line(text) or " "
    fence = _fence(line, 1)
    blank = " " if "`" in (line[0], line[-1]) else ""
    return f"{fence}{blank}{line}{blank}{fence}"


def write_code_block(text: str, language: str) -> str:
    """Return `text` as a fenced block of code."""
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _fence(text: str, least: int) -> str:
    """Return a fence that is longer than any run of backticks in `text`."""
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    return "`" * max(least, longest + 1)


def show_score(value: float | None, num_decimals: int = 4) -> str:
    """Return a score in decimals; None, NaN: `UNDEFINED`."""
    return UNDEFINED if value is None or math.isnan(value) else f"{value:.{num_decimals}f}"


def show_number(value: float | None) -> str:
    """Return four significant digits, as in 0.2518, 4.910, 135.6; None, NaN: `UNDEFINED`."""
    if value is None or math.isnan(value):
        return UNDEFINED
    digits = 4 if abs(value) < 1 else 3 if abs(value) < 100 else 1
    return f"{value:,.{digits}f}"
