"""The layout of a CoNLL file, decided by most of its lines and not by the first one.

Separator, width, comments, a header and an index column are properties of the file: one odd line,
wherever it is, must neither change how the others are read nor be read as they are.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from maskwright.corpus.column_roles import TAGS, WORDS, normalize_name
from maskwright.errors import CorpusError

BLANKS = " \t"  # between columns; other blanks are part of words
PREFIXED = re.compile(r"(?P<prefix>[BIESLUM])[-_:](?P<kind>.+)", re.IGNORECASE)
UD_ID = re.compile(r"(\d+)(?:([-.])(\d+))?")  # of CoNLL-U
UD_WORD, UD_TAG = 1, 3  # the columns FORM and UPOS
_UD_COLUMNS = 10
_SKIPPED = re.compile(r"-DOCSTART-|# (new(doc|par)\b|[\w:.]+ = )")
_COMMENT = re.compile(r"#+\s+\S")
_MIN_LINES = 3  # in which blanks and tabs make the same number of columns
_MOST = 0.95  # of the sentences that an index counts
_NO_TAG = ("O", "o", "0", "_", "-", "")

Separator = Literal["\t", " ", ",", ";"]
Kind = Literal["line", "break", "comment", "header"]


@dataclass(frozen=True)
class ConllLayout:
    """How the lines of a file are read.

    Attributes:
        separator: a tab: lines without one are split at blanks; a blank: at both.
        width: the number of columns of most lines, `num_usual` of `num_lines`.
        is_indexed: the first column counts the words of each sentence.
        word, tag: the positions of the columns; -1 is the last.
        others: further columns of tags, left of which `tag` is.
        kinds: the kind of each line.
    """

    separator: Separator
    width: int
    num_usual: int
    num_lines: int
    is_conllu: bool
    is_indexed: bool
    word: int
    tag: int
    others: tuple[int, ...]
    kinds: Sequence[Kind]

    def split(self, line: str) -> list[str]:
        """Return the columns of a line."""
        columns = split_columns(line, self.separator)
        if len(columns) != self.width and self.separator == " ":
            tabbed = split_columns(line, "\t")
            return tabbed if len(tabbed) == self.width else columns
        return columns

    def check(self, columns: Sequence[str], needed: int, place: str, *, is_exact: bool) -> None:
        """Raise CorpusError if a line has too few columns or, if `is_exact`, not those of most."""
        found = len(columns)
        if found >= needed and (not is_exact or found == self.width):
            return
        of = f"{self.num_usual:,} of {self.num_lines:,} lines have {self.width}"
        rule = of if is_exact and self.width >= needed else f"needs {needed}"
        hint = "Is it a comment? Remove it." if columns[0].startswith("#") else "Correct the line."
        noun = "column" if found == 1 else "columns"
        raise CorpusError(f"{place} has {found} {noun}, but {rule}. {hint}")

    def describe(self) -> list[str]:
        """Return what a reader of the file may not expect, as clauses."""
        comments = self.kinds.count("comment")
        said = [f"column 0 counts the words of each sentence: the words are column {self.word}"]
        said *= self.is_indexed and not self.is_conllu
        if "header" in self.kinds:
            said.append(f"line {self.kinds.index('header') + 1} names the columns")
        if comments:
            first = self.kinds.index("comment") + 1
            noun = "comment is" if comments == 1 else "comments are"
            said.append(f"{comments:,} {noun} skipped, the first on line {first}")
        if self.others:
            more = " and ".join(map(str, self.others))
            said.append(f"column {more} has further tags, which are not read (--columns tag=…)")
        return said


def split_columns(line: str, separator: Separator) -> list[str]:
    """Return the columns of a line; a line without a tab is split at blanks."""
    line = line.strip(BLANKS)
    if separator in ",;":
        return next(csv.reader([line], delimiter=separator), [""])
    if separator == "\t" and "\t" in line:
        return line.split("\t")
    return re.split(f"[{BLANKS}]+", line)


def find_layout(lines: Sequence[str], *, has_tags: bool) -> ConllLayout:
    """Return the layout of the lines of a file; they may hold no sentence."""
    kinds: list[Kind] = [
        "break" if not line.strip() or _SKIPPED.match(line) else "line" for line in lines
    ]
    filled = [line for line, kind in zip(lines, kinds, strict=True) if kind == "line"]
    sample = [line for line in filled if not line.startswith("#")] or filled
    separator = _find_separator(sample)
    rows = [split_columns(line, separator) for line in sample]
    width, num_usual = next(iter(Counter(map(len, rows)).most_common(1)), (0, 0))
    usual = [row for row in rows if len(row) == width]
    num_ids = sum(UD_ID.fullmatch(row[0]) is not None for row in usual)
    is_conllu = width == _UD_COLUMNS and 2 * num_ids > len(usual)
    is_indexed = is_conllu or (
        width > 1 + has_tags and _counts_words(lines, kinds, separator, width)
    )
    word = UD_WORD if is_conllu else int(is_indexed)
    others = () if is_conllu or not has_tags else _find_other_tags(usual, word, is_indexed)
    tag = UD_TAG if is_conllu else (others[0] - 1 if others else -1)
    if filled and _is_header(split_columns(filled[0], separator), word, tag, has_tags):
        kinds[kinds.index("line")] = "header"
    is_comment = _find_comments(usual, separator, width)
    for number, line in enumerate(lines):
        if kinds[number] == "line" and line.startswith("#") and (is_conllu or is_comment(line)):
            kinds[number] = "break" if is_conllu else "comment"
    total = len(rows)
    return ConllLayout(
        separator, width, num_usual, total, is_conllu, is_indexed, word, tag, others, kinds
    )


def _find_separator(lines: Sequence[str]) -> Separator:
    """Return the separator that gives most lines the same number of columns."""

    def measure(mark: Separator) -> tuple[int, int]:
        found = Counter(len(split_columns(line, mark)) for line in lines).most_common(1)
        return found[0] if found else (0, 0)

    width, num_blank = measure(" ")
    if not any("\t" in line.strip(BLANKS) for line in lines):
        if width == 1:
            marks: tuple[Separator, ...] = (",", ";")
            for mark in marks:
                if _is_table(*measure(mark), len(lines)):
                    return mark
        return " "
    tabbed, num_tabbed = measure("\t")
    # Words with blanks have any number of them: the same in all lines separates columns.
    is_even = num_blank == len(lines) >= _MIN_LINES and width >= tabbed
    return " " if num_blank > num_tabbed or is_even else "\t"


def _is_table(width: int, count: int, total: int) -> bool:
    return width > 1 and 2 * count > total


def _counts_words(
    lines: Sequence[str], kinds: Sequence[Kind], separator: Separator, width: int
) -> bool:
    """Return True if the first column counts from 0 or 1 in each sentence, or through the file."""
    sentences: list[list[str]] = [[]]
    for line, kind in zip(lines, kinds, strict=True):
        if kind == "break":
            sentences.append([])
        elif not line.startswith("#") and len(row := split_columns(line, separator)) == width:
            sentences[-1].append(row[0])
    found = [one for one in sentences if one]
    every = [number for one in found for number in one]

    def counts(numbers: Sequence[str]) -> bool:
        first = numbers[0]
        return first in ("0", "1") and all(
            one == str(number) for number, one in enumerate(numbers, start=int(first))
        )

    is_long = len(every) >= _MIN_LINES
    counted = sum(counts(one) for one in found)
    return is_long and (
        counts(every) or (len(every) > len(found) and counted >= _MOST * len(found))
    )


def _find_other_tags(rows: Sequence[Sequence[str]], word: int, is_indexed: bool) -> tuple[int, ...]:
    """Return the last columns whose kinds of entities are those of the column left of them.

    These mark entities inside others, as in GermEval. The kinds of chunks and names, as in
    CoNLL-2003, differ.
    """
    width = len(rows[0]) if rows else 0
    others: list[int] = []
    for position in range(width - 1, word + 1, -1):
        inner, outer = (_list_kinds(rows, column) for column in (position, position - 1))
        if inner is None or not outer or not inner <= outer or not (inner or is_indexed):
            break
        others.insert(0, position)
    return tuple(others)


def _list_kinds(rows: Sequence[Sequence[str]], column: int) -> set[str] | None:
    """Return the kinds of the entities of a column; None if it has other values."""
    kinds: set[str] = set()
    for value in {row[column] for row in rows} - {*_NO_TAG}:
        if (match := PREFIXED.fullmatch(value)) is None:
            return None
        kinds.add(match["kind"])
    return kinds


def _is_header(row: Sequence[str], word: int, tag: int, has_tags: bool) -> bool:
    """Return True if a line names the columns of words and tags."""
    if len(row) <= max(word, tag) or (not has_tags and len(row) < 2):
        return False
    names = [normalize_name(name) for name in row]
    return names[word] in WORDS and names[tag] in TAGS


def _find_comments(
    rows: Iterable[Sequence[str]], separator: Separator, width: int
) -> Callable[[str], bool]:
    """Return a function that tells comments among the lines that begin with ``#``.

    Such a line is an example if its last column is a tag; in a file of other tags than those of
    entities, of which any may occur once, also if it has the width of most lines.
    """
    tags = {row[-1] for row in rows}
    marks_entities = any(map(PREFIXED.fullmatch, tags))

    def is_comment(line: str) -> bool:
        row = split_columns(line, separator)
        is_tagged = row[-1] in tags or PREFIXED.fullmatch(row[-1]) is not None
        if "://" in row[-1] or "://" in row[min(1, len(row) - 1)]:
            return True
        if (is_tagged and len(row) > 1) or not _COMMENT.match(line):
            return False
        return len(row) != width or (marks_entities and width > 1)

    return is_comment
