"""A document is a piece of text that belongs together; no training segment crosses its ends."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its text, where it comes from, and an id to find it by.

    `id` is short and readable (``wiki.txt.gz:17``: the 17th document of that file); `source` is
    the input as the user named it.
    """

    text: str
    id: str
    source: str


def cut_text(text: str, limit: int) -> Iterator[str]:
    """Cuts `text` into pieces of at most `limit` characters; nothing is lost.

    A cut falls on the last line end in the second half of a piece, else on the last blank there,
    else in mid-word.
    """
    start = 0
    while len(text) - start > limit:
        middle, end = start + limit // 2, start + limit
        stop = text.rfind("\n", middle, end) + 1 or text.rfind(" ", middle, end) + 1 or end
        yield text[start:stop]
        start = stop
    yield text[start:] if start else text
