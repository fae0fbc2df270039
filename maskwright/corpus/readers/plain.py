"""Plain text: a document is a block between blank lines, a line, or the whole file."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from maskwright.corpus.config import DocumentMode
from maskwright.corpus.readers.text import read_lines

# Stray blank lines in a file of one document a line must not glue thousands of lines together;
# the longest articles of an encyclopedia have a few hundred paragraphs.
_MAX_LINES_A_BLANK = 500


def read_plain(
    texts: Iterable[str], mode: DocumentMode, limit: int, counts: Counter[str]
) -> Iterator[str]:
    """The documents of a plain text; one that would pass `limit` characters is cut there."""
    blocks = iter(texts)
    if mode == "auto":
        first = next(blocks, "")
        mode = detect_mode(first)
        blocks = chain([first], blocks)
    lines = read_lines(blocks, limit, counts)
    if mode == "line":
        return (line for line in lines if line and not line.isspace())
    return _gather(lines, mode == "blank_line", limit, counts)


def detect_mode(beginning: str) -> DocumentMode:
    """How the beginning of a file (up to a megabyte) separates its documents.

    Blank lines do it where there are any to speak of; without them every line is a document.
    """
    lines = [bool(line.strip()) for line in beginning.split("\n")]
    num_separators = sum(a and not b for a, b in pairwise(lines))
    # Blank lines at the very end separate nothing.
    num_separators -= not lines[-1] and any(lines)
    few = num_separators * _MAX_LINES_A_BLANK < sum(lines)
    return "line" if few else "blank_line"


def _gather(
    lines: Iterable[str], split_at_blanks: bool, limit: int, counts: Counter[str]
) -> Iterator[str]:
    gathered: list[str] = []
    size = 0
    for line in lines:
        blank = not line or line.isspace()
        if size + len(line) > limit and gathered:
            counts["long document cut"] += 1
            yield "\n".join(gathered)
            gathered, size = [], 0
        if not blank or (gathered and not split_at_blanks):
            gathered.append(line)
            size += len(line) + 1
        elif gathered:
            yield "\n".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield "\n".join(gathered)
