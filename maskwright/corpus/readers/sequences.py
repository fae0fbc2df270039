"""Readers of sequences with ids: FASTA, FASTQ and SMILES files.

A record is one text. The lines of a FASTA or FASTQ record are joined, qualities are dropped, and
gaps (``-``, ``.``), N, X and stops (``*``) are kept. Letters of FASTA and FASTQ are made capitals,
because lower case marks repeats there and a model knows one case; case in SMILES has a meaning.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from maskwright.corpus.documents import Reading, Source, UnreadableError, read_lines
from maskwright.corpus.encoding import decode_text
from maskwright.corpus.readers.text import read_text
from maskwright.errors import CorpusError

FOLDED = "sequence in lower case made upper case"
EMPTY = "record without a sequence"
_LONGEST_LINE = 1 << 24  # characters; a chromosome may be a single line, which is then cut
_SMILES_TITLES = ("smiles", "canonical_smiles", "isomeric_smiles", "smi")


class SequenceRecord(NamedTuple):
    """A record: its id, which is the first word of its header, the rest of it, and its text."""

    id: str
    description: str
    text: str


Parse = Callable[[Iterable[str], str, int, Counter[str]], Iterator[SequenceRecord]]


def parse_fasta(
    lines: Iterable[str], name: str, limit: int, counts: Counter[str]
) -> Iterator[SequenceRecord]:
    """Yield the records of FASTA lines.

    Args:
        name: the name of the file, for messages.
        limit: a longer sequence becomes several records of one id, of `limit` characters each.
        counts: counts what is dropped or repaired, by reason.

    Raises:
        UnreadableError: there is text before the first header.
    """
    header: str | None = None
    gathered, size, is_empty = list[str](), 0, True
    for number, line in enumerate(lines, start=1):
        if line.startswith(">"):
            if header is not None:
                yield from _make(header, gathered, is_empty, counts)
            header, gathered, size, is_empty = line[1:], [], 0, True
        elif line.startswith(";") or not line.strip():  # a comment of the old form
            continue
        elif header is None:
            raise _not(name, number, "FASTA", ">")
        else:
            gathered.append("".join(line.split()))
            size += len(gathered[-1])
            is_empty = False
            while size >= limit:
                whole = "".join(gathered)
                counts["long document cut"] += 1
                yield from _make(header, [whole[:limit]], False, counts)
                gathered, size = [whole[limit:]], size - limit
    if header is not None:
        yield from _make(header, gathered, is_empty, counts)


def parse_fastq(
    lines: Iterable[str], name: str, limit: int, counts: Counter[str]
) -> Iterator[SequenceRecord]:
    """Yield the records of FASTQ lines, without qualities; arguments as in `parse_fasta`.

    Raises:
        UnreadableError: the file does not begin with a header.
        CorpusError: a record is damaged: it has no ``+`` line, or not as many qualities as letters.
    """
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        if not line.strip():
            continue
        if not line.startswith("@"):
            if number == 1:
                raise _not(name, number, "FASTQ", "@")
            raise CorpusError(f"{name}:{number} is not the header of a FASTQ record. Repair it.")
        header, parts, size, num_qualities = line[1:], list[str](), 0, -1
        for _, part in numbered:
            if part.startswith("+"):
                num_qualities = 0
                break
            parts.append("".join(part.split()))
            size += len(parts[-1])
        while 0 <= num_qualities < size and (following := next(numbered, None)) is not None:
            num_qualities += len(following[1].strip())
        if num_qualities != size:
            found = "no line +" if num_qualities < 0 else f"{num_qualities} qualities"
            rule = f"the record has {size} letters and {found}"
            raise CorpusError(f"{name}:{number}: {rule}. The file is damaged or cut: repair it.")
        text = "".join(parts)
        for start in range(0, max(size, 1), limit):
            yield from _make(header, [text[start : start + limit]], not size, counts)


def parse_smiles(
    lines: Iterable[str], name: str, limit: int, counts: Counter[str]
) -> Iterator[SequenceRecord]:
    """Yield the records of SMILES lines: the molecule, then its id; arguments as in `parse_fasta`.

    A line of names is dropped, and so is an extension (``|…|``). A record without an id has its
    line number.
    """
    for number, line in enumerate(lines, start=1):
        cells = line.split()
        if not cells or line.startswith("#"):  # a bond cannot be first
            continue
        if number == 1 and cells[0].strip('"').lower().partition(",")[0] in _SMILES_TITLES:
            counts["line of column names"] += 1
            continue
        rest = re.sub(r"\|[^|]*\|", "", line.strip()[len(cells[0]) :]).strip()
        others = rest.split("\t" if "\t" in line else None)
        others = [cell.strip() for cell in others if cell.strip()]
        found = others[0] if others else str(number)
        yield SequenceRecord(found, " ".join(others[1:]), cells[0][:limit])


PARSERS: dict[str, Parse] = {"fasta": parse_fasta, "fastq": parse_fastq, "smiles": parse_smiles}


def _make(
    header: str, parts: list[str], is_empty: bool, counts: Counter[str]
) -> Iterator[SequenceRecord]:
    text = "".join(parts)
    if not text:
        if is_empty:
            counts[EMPTY] += 1
        return
    upper = text.upper()
    if upper != text:
        counts[FOLDED] += 1
    words = header.split(maxsplit=1)
    yield SequenceRecord(words[0] if words else "", words[1].strip() if words[1:] else "", upper)


def _not(name: str, number: int, kind: str, mark: str) -> UnreadableError:
    rule = f"line {number} stands before the first header, which begins with {mark}"
    return UnreadableError(f"not {kind}", f"{name} is not {kind}: {rule}. Rename the file.")


def read_sequences(reading: Reading, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the id and the sequence of each record of a corpus file."""
    limit, counts = reading.config.max_document_characters, reading.counts
    lines = read_lines(read_text(reading), _LONGEST_LINE, Counter())
    for record in PARSERS[kind](lines, reading.source.name, limit, counts):
        yield record.id, record.text


read_fasta = partial(read_sequences, kind="fasta")
read_fastq = partial(read_sequences, kind="fastq")
read_smiles = partial(read_sequences, kind="smiles")


def read_records(source: Source, counts: Counter[str]) -> Iterator[SequenceRecord]:
    """Yield the records of a file that a model is applied to; none is cut.

    Raises:
        CorpusError: the file is not of its kind, damaged, or not UTF-8.
    """
    texts = decode_text(source.read_bytes(), source.name, exact=True)
    lines = read_lines(texts, _LONGEST_LINE, Counter())
    yield from PARSERS[source.kind](lines, source.name, 1 << 40, counts)
