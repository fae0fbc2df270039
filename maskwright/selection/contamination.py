"""Detection of documents that contain evaluation text.

A document is contaminated if it shares 13 consecutive words with an evaluation text (Brown et al.
2020, appendix C). An evaluation text of 8 to 12 words must occur whole; a shorter one is ignored,
because it is an ordinary phrase. In scripts without blanks, 2 or 4 letters count as a word.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np

from maskwright.corpus.cleaning import clean_text
from maskwright.corpus.documents import read_lines
from maskwright.corpus.encoding import decode_text
from maskwright.corpus.readers.records import MAX_RECORD_CHARACTERS, parse_rows
from maskwright.corpus.sources import Source, find_sources
from maskwright.errors import CorpusError
from maskwright.selection.words import (
    Hashes,
    count_letters_a_word,
    find_members,
    hash_words,
    join_hashes,
    split_words,
)

WORDS, MIN_WORDS = 13, 8


class EvaluationTexts:
    """The word runs of `texts` that no training text may contain: sorted hashes, by run length."""

    def __init__(self, texts: Iterable[str]) -> None:
        found = defaultdict[int, list[Hashes]](list)
        for text in (clean_text(each, Counter()) for each in texts):  # as documents are
            words = split_words(text)
            letters = count_letters_a_word(text, words)
            if len(words) >= MIN_WORDS * letters:
                n = min(len(words), WORDS * letters)
                found[n] += dict(join_hashes(hash_words(words), [n])).values()
        self._runs = {n: np.unique(np.concatenate(runs)) for n, runs in found.items()}

    def __len__(self) -> int:
        return sum(map(len, self._runs.values()))

    def save(self, path: Path) -> None:
        """Write the hashes to a NumPy file (``.npz``)."""
        named: dict[str, Any] = {str(n): runs for n, runs in self._runs.items()}
        np.savez(path, **named)

    @classmethod
    def load(cls, path: Path) -> "EvaluationTexts":
        """Read what `save` wrote."""
        texts = cls([])
        with np.load(path, allow_pickle=False) as stored:
            texts._runs = {int(n): stored[n] for n in stored}
        return texts

    def find_in(self, hashes: Hashes) -> slice | None:
        """Return the first such run in a document of word hashes [W], as a slice, or None."""
        for n, ngrams in join_hashes(hashes, self._runs):
            if len(places := find_members(ngrams, self._runs[n])):
                return slice(int(places[0]), int(places[0]) + n)
        return None


def find_evaluations(paths: Sequence[str], ignored: Counter[str]) -> list[Source]:
    """Return the evaluation files; in folders, files without text are counted in `ignored`.

    Raises:
        CorpusError: a file that is missing, or of an unsupported kind.
    """
    sources = find_sources(paths, ignored, reads_json=True) if paths else []
    for source in sources:
        if source.path is None or source.kind in ("parquet", "dump"):
            raise CorpusError(
                f"{source.name} cannot be read for select.decontaminate. Name text, CSV, TSV or "
                "JSON files."
            )
    return sources


def read_evaluation(paths: Sequence[str], ignored: Counter[str]) -> Iterator[str]:
    """Yield the texts in evaluation files: fields of tables, values of JSON, lines of text.

    A file that is a single JSON value is read whole.

    Raises:
        CorpusError: as `find_evaluations`, or a file that cannot be read.
    """
    for source in find_evaluations(paths, ignored):
        texts = decode_text(source.read_bytes(), source.name, exact=True)
        if ".json" in map(str.lower, Path(source.name).suffixes):
            whole = "".join(texts)
            try:
                yield from _find_texts(json.loads(whole))
                continue
            except (ValueError, RecursionError):  # lines of JSON
                texts = iter([whole])
        lines = read_lines(texts, MAX_RECORD_CHARACTERS, Counter())
        if source.kind in ("csv", "tsv"):  # a quoted field may hold line ends
            whole, bad = list(lines), list[tuple[int, str]]()
            is_tsv = source.kind == "tsv"
            rows = parse_rows(whole, "\t" if is_tsv else ",", bad.append, is_plain=is_tsv)
            yield from chain.from_iterable(row.cells for row in rows)
            ignored.update(["bad table row"] * len(bad))
            lines = iter(whole if bad else ())  # no text of a bad row is left out
        for line in lines:
            yield from _split_line(line, source.kind)


def _split_line(line: str, kind: str) -> Iterable[str]:
    """Return the texts in a line; a line that cannot be parsed is itself a text."""
    try:
        if kind == "jsonl":
            return list(_find_texts(json.loads(line)))
    except (ValueError, RecursionError):
        return [line]
    return line.split("\t")


def _find_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        found = cast(dict[str, Any] | list[Any], value)
        for inner in found.values() if isinstance(found, dict) else found:
            yield from _find_texts(inner)
