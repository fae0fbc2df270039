"""What a file's name says about its content: ``wiki.jsonl.gz`` is JSON lines inside gzip."""

import re
from pathlib import Path
from typing import Literal

Kind = Literal["plain", "markdown", "jsonl", "csv", "tsv", "parquet", "dump", "hub", "pydocs"]
Compression = Literal["", ".gz", ".bz2", ".xz", ".zst"]

KINDS: dict[str, Kind] = {
    ".txt": "plain",
    ".text": "plain",
    ".md": "markdown",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
# Data sets often call their JSON lines so, and Wikipedia its dumps, but inside a folder they are
# rather some program's settings: read only if the user names the file.
_PART = re.compile(r"\.xml-p\d+p\d+")  # of the pages with these numbers
_WIKIPEDIA = re.compile(r"pages-articles[^.]*\.xml(?:-p\d+p\d+)?(?:\.\w+)?$")
_INDEX = re.compile(r"pages-articles.*-index\d*\.txt(?:-p\d+p\d+)?(?:\.bz2)?")
NAMED_KINDS: dict[str, Kind] = {".json": "jsonl", ".xml": "dump"}
COMPRESSIONS: dict[str, Compression] = {
    ".gz": ".gz",
    ".bz2": ".bz2",
    ".xz": ".xz",
    ".zst": ".zst",
}


def recognise_name(path: Path, named: bool = False) -> tuple[Kind | None, Compression]:
    """The kind of content (None for an unknown suffix) and its compression ("" for none).

    `named` says that the user named this very file; then the suffixes in `NAMED_KINDS` count too.
    """
    suffixes = [_PART.sub(".xml", suffix.lower()) for suffix in path.suffixes]
    compression = COMPRESSIONS.get(suffixes[-1], "") if suffixes else ""
    if compression:
        suffixes.pop()
    kinds = KINDS | NAMED_KINDS if named else KINDS
    return (kinds.get(suffixes[-1]) if suffixes else None), compression


def is_wikipedia_dump(path: Path) -> bool:
    """Whether a file is called as Wikimedia calls its dumps of articles."""
    kind, _ = recognise_name(path, named=True)
    return kind == "dump" and _WIKIPEDIA.search(path.name) is not None


def is_dump_index(path: Path) -> bool:
    """Whether a file is called as the index that comes with a multistream dump."""
    return _INDEX.search(path.name) is not None
