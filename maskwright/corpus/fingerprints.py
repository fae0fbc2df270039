"""Fingerprints of cleaned texts, to find exact duplicates, and of sources, to recognize them.

Among ten million different documents, the chance of any collision of 64-bit fingerprints is 3 in a
million; `maskwright.preparation` compares 128 bits.
"""

import hashlib
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

from maskwright.corpus.documents import Source
from maskwright.corpus.readers.hub import parse_hub_name
from maskwright.corpus.sources import list_files
from maskwright.errors import CorpusError
from maskwright.provenance import find_version

_READ_BYTES = 1 << 20


def fingerprint_text(text: str) -> int:
    """Return a 64-bit fingerprint (BLAKE2b) of `text`, the same on every machine."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def fingerprint_pair(text: str) -> tuple[int, int]:
    """Return `fingerprint_text` and a second, independent 64-bit hash of `text`."""
    content = text.encode()
    digests = blake2b(content, digest_size=8), blake2b(content, digest_size=8, key=b"second")
    first, second = (int.from_bytes(one.digest(), "little") for one in digests)
    return first, second


def identify_source(source: Source) -> list[Any]:
    """Return the identity of a source: the content of its files, not their names.

    The parts of a file together cover its content. A dataset on the hub is identified by its name,
    so a change there is not noticed; a dataset in a local folder, by its files.

    Raises:
        CorpusError: a file cannot be read.
    """
    if source.path is not None:
        return [source.kind, source.compression, _hash_part(source.path, source)]
    if source.kind == "pydocs":
        versions = [find_version(name) or "none" for name in ("numpy", "torch")]
        return ["pydocs", sys.version, *versions]
    if source.kind == "hub" and (folder := (name := parse_hub_name(source.name)).folder):
        # Names matter here: `datasets` infers the split of a file from its name.
        names_and_hashes = (
            part
            for path in list_files(folder)
            for part in (path.relative_to(folder).as_posix(), _hash_part(path))
        )
        return ["hub folder", name.config, name.field, *names_and_hashes]
    return [source.kind, source.name]


def _hash_part(path: Path, source: Source | None = None) -> str:
    """Return the sha256 of a file, or of the bytes that stand for a part of it."""
    digest, span = hashlib.sha256(), source and source.span
    try:
        start, end = 0, path.stat().st_size
        if span is not None:  # proportional for row groups, as any cut covers the whole file
            unit = end if span.total else 1
            start, end = (unit * n // (span.total or 1) for n in (span.start, span.end))
        with path.open("rb") as file:
            file.seek(start)
            while start < end and (block := file.read(min(end - start, _READ_BYTES))):
                digest.update(block)
                start += len(block)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.hexdigest()
