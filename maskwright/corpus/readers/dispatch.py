"""The supported formats, and reading of any source in its format.

To add a format, write a module with a reader, a function of a `Reading` that yields texts, and
register it in `FORMATS`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import Document, Reading, Source, UnreadableError, cut_text
from maskwright.corpus.readers.columns import read_hub, read_parquet
from maskwright.corpus.readers.dump import read_dump
from maskwright.corpus.readers.pydocs import read_pydocs
from maskwright.corpus.readers.records import read_jsonl, read_table
from maskwright.corpus.readers.text import read_markdown, read_plain
from maskwright.corpus.unpack import COMPRESSIONS, Compression
from maskwright.errors import CorpusError

# Yields texts, or (name, text) if texts have names.
Reader = Callable[[Reading], Iterator[str] | Iterator[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Format:
    """The reader of one kind of source, and the suffixes of its files.

    Attributes:
        suffixes: suffixes of its files.
        suffixes_if_named: suffixes that count only for a file that the user names. Data sets often
            name JSON lines .json, but in a folder such files are usually settings.
    """

    read: Reader
    suffixes: tuple[str, ...] = ()
    suffixes_if_named: tuple[str, ...] = ()


FORMATS: dict[str, Format] = {
    "plain": Format(read_plain, (".txt", ".text")),
    "markdown": Format(read_markdown, (".md",)),
    "jsonl": Format(read_jsonl, (".jsonl", ".ndjson"), (".json",)),
    "csv": Format(read_table, (".csv",)),
    "tsv": Format(partial(read_table, own="\t"), (".tsv",)),
    "parquet": Format(read_parquet, (".parquet",)),
    "dump": Format(read_dump, (), (".xml",)),
    "hub": Format(read_hub),
    "pydocs": Format(lambda _: read_pydocs()),
}
_DUMP_PART = re.compile(r"\.xml-p\d+p\d+")  # a file with the pages of these numbers


def recognize_name(path: Path, named: bool = False) -> tuple[str | None, Compression]:
    """Return the kind of a file (None for an unknown suffix) and its compression ("" for none).

    Args:
        named: the user named this file itself.
    """
    suffixes = [_DUMP_PART.sub(".xml", suffix.lower()) for suffix in path.suffixes]
    compression = COMPRESSIONS.get(suffixes[-1], "") if suffixes else ""
    if compression:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else None
    for kind, form in FORMATS.items():
        if suffix in form.suffixes or (named and suffix in form.suffixes_if_named):
            return kind, compression
    return None, compression


def read_source(source: Source, config: CorpusConfig, counts: Counter[str]) -> Iterator[Document]:
    """Yield the documents of one source, uncleaned, in bounded memory.

    Unreadable files and records are counted in `counts` by reason.

    Raises:
        CorpusError: it is damaged, JSON without its suffix, or named by the user and unreadable.
    """
    number = 0
    limit = config.max_document_characters
    start = source.span.start if source.span else 0
    label = f"{source.label}@{start}" if start else source.label
    try:
        for item in FORMATS[source.kind].read(Reading(source, config, counts)):
            name, text = item if isinstance(item, tuple) else ("", item)
            if source.kind == "plain" and not (number or start):
                _check_suffix(source, text)
            for piece in cut_text(text, limit):
                number += 1
                yield Document(piece, f"{label}:{name or number}", source.title)
            if len(text) > limit:
                counts["long document cut"] += 1
        if not number and source.span is None:
            raise UnreadableError("file without text", f"{source.name} is empty: it has no text.")
    except UnreadableError as error:
        if source.explicit:
            raise
        counts[error.reason] += 1


def _check_suffix(source: Source, beginning: str) -> None:
    """Raise CorpusError if a text of unknown suffix begins with a JSON object."""
    line = beginning.lstrip().partition("\n")[0]
    if line.startswith("{") and not (source.path and recognize_name(source.path)[0]):
        with suppress(ValueError, RecursionError):
            json.loads(line, strict=False)
            raise CorpusError(
                f"{source.name} begins with a JSON object, but without the suffix .jsonl it is "
                "plain text. Rename the file; write standard input to a file NAME.jsonl."
            )
