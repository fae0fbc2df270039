"""Sentences of tagged words in CoNLL columns: a word a line, a blank line between sentences.

Columns are separated by tabs, or else by blanks; the word is the first and its tag the last, as in
CoNLL-2003 and wikigold, unless it is said. Lines that begin with ``-DOCSTART-`` are passed over;
no line is a comment, since ``#`` is a word, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from maskwright.corpus.readers.blocks import COMPRESSIONS
from maskwright.errors import CorpusError
from maskwright.finetuning.tables import open_lines

_DOCUMENT = "-DOCSTART-"
_ENDINGS = (".conll", ".iob", ".bio")  # with or without .txt after it, compressed or not


@dataclass(frozen=True)
class TaggedSentence:
    """Words and the tag of each.

    Attributes:
        place: file and line of its first word, for messages.
    """

    place: str
    words: tuple[str, ...]
    tags: tuple[str, ...]


def has_conll_name(path: Path) -> bool:
    """Whether a file's name says that it holds CoNLL columns: ``a.conll``, ``a.bio.txt.gz``."""
    name = path.name.lower()
    for ending in (*COMPRESSIONS, ".txt"):
        name = name.removesuffix(ending)
    return name.endswith(_ENDINGS)


def read_conll(path: Path | str, word: int = 0, tag: int = -1) -> Iterator[TaggedSentence]:
    """The sentences of a file.

    Args:
        word, tag: positions of their columns; negative ones count from the end.

    Raises:
        CorpusError: no such file, a line with too few columns, or no sentence at all.
    """
    needed = max(word + 1, tag + 1, -word, -tag, 2)
    for place, lines in _read_sentences(path, needed, "a word and its tag take"):
        words, tags = ([columns[each] for columns in lines] for each in (word, tag))
        yield TaggedSentence(place, tuple(words), tuple(tags))


def read_words(path: Path | str, word: int = 0) -> Iterator[list[str]]:
    """The words of each sentence, whether or not they have tags; otherwise as `read_conll`."""
    for _, lines in _read_sentences(path, max(word + 1, -word), "a word takes"):
        yield [columns[word] for columns in lines]


def _read_sentences(
    path: Path | str, needed: int, what: str
) -> Iterator[tuple[str, list[list[str]]]]:
    """The place of each sentence, and its lines as columns, of which so many are `needed`."""
    name, lines = open_lines(path)
    found: list[list[str]] = []
    begin = 0
    is_empty = True
    for number, line in enumerate(chain(lines, [""]), start=1):
        if line.startswith(_DOCUMENT) or not line.strip():
            if found:
                is_empty = False
                yield f"{name}:{begin}", found
            found = []
            continue
        # A word between tabs may hold blanks.
        columns = line.strip().split("\t")
        is_split = len(columns) >= max(needed, 2)
        columns = columns if is_split else line.split()
        if len(columns) < needed:
            raise CorpusError(
                f"{name}:{number} has {len(columns)} columns, where {what} {needed}. "
                "Correct the line."
            )
        begin = begin if found else number
        found.append(columns)
    if is_empty:
        raise CorpusError(f"{name} holds no sentence.")
