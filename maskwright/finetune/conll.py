"""Sentences of tagged words in CoNLL columns: a word a line, a blank line between sentences.

Columns are separated by tabs, or else by blanks; the word is the first and its tag the last, as in
CoNLL-2003 and wikigold, unless it is said. Lines that begin with ``-DOCSTART-`` are passed over;
no line is a comment, since ``#`` is a word, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from maskwright.errors import CorpusError
from maskwright.finetune.tables import open_lines

_DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class TaggedSentence:
    """Words and the tag of each.

    Attributes:
        place: file and line of its first word, for messages.
    """

    place: str
    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_conll(path: Path | str, word: int = 0, tag: int = -1) -> Iterator[TaggedSentence]:
    """The sentences of a file.

    Args:
        word, tag: positions of their columns; negative ones count from the end.

    Raises:
        CorpusError: no such file, a line with too few columns, or no sentence at all.
    """
    name, lines = open_lines(path)
    words: list[str] = []
    tags: list[str] = []
    begin = 0
    is_empty = True
    for number, line in enumerate([*lines, ""], start=1):
        if line.startswith(_DOCUMENT) or not line.strip():
            if words:
                is_empty = False
                yield TaggedSentence(f"{name}:{begin}", tuple(words), tuple(tags))
            words, tags = [], []
            continue
        # A word between tabs may hold blanks.
        needed = max(word + 1, tag + 1, -word, -tag, 2)
        columns = line.strip().split("\t")
        columns = columns if len(columns) >= needed else line.split()
        if len(columns) < needed:
            raise CorpusError(
                f"{name}:{number} has {len(columns)} columns, where a word and its tag take "
                f"{needed}. Correct the line."
            )
        begin = begin if words else number
        words.append(columns[word])
        tags.append(columns[tag])
    if is_empty:
        raise CorpusError(f"{name} holds no sentence.")
