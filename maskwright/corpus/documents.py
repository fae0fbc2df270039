"""Documents and where they come from.

A document is a piece of text that belongs together; no training segment crosses its ends.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.readers.blocks import Compression


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its text, where it comes from, and an id to find it by.

    `id` is short and readable (``wiki.txt.gz:17``: the 17th document of that file); `source` is
    the input as the user named it.
    """

    text: str
    id: str
    source: str


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to read.

    Attributes:
        name: in messages and documents.
        label: the short form in document ids.
        kind: a key of `maskwright.corpus.readers.dispatch.FORMATS`.
        compression: of the file.
        path: None unless it is a file.
        explicit: the user named this very file, so it is an error if it cannot be read; a file
            found in a folder is skipped and counted.
    """

    name: str
    label: str
    kind: str
    compression: Compression = ""
    path: Path | None = None
    explicit: bool = True


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader is given.

    Attributes:
        counts: the reader counts in it what it drops or repairs, by reason.
        advance: the reader calls it with how many bytes of the file it has read, as stored.
    """

    source: Source
    config: CorpusConfig
    counts: Counter[str]
    advance: Callable[[int], None] = lambda position: None


def cut_text(text: str, limit: int) -> Iterator[str]:
    """Cut `text` into pieces of at most `limit` characters; nothing is lost.

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
