"""Small corpora on disk, and reading them."""

from collections import Counter
from pathlib import Path

from maskwright.config import from_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.sources import find_sources, read_source


def write(path: Path, content: str | bytes) -> str:
    """Writes a file, making its folders, and returns its path as a user would type it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read_all(path: str, counts: Counter[str] | None = None, **settings: object) -> list[str]:
    """The uncleaned texts of everything that `path` names."""
    counts = Counter() if counts is None else counts
    config = from_mapping(CorpusConfig, settings)
    return [
        document.text
        for source in find_sources([path], counts)
        for document in read_source(source, config, counts)
    ]


def split_anywhere(content: bytes, sizes: list[int]) -> list[bytes]:
    blocks: list[bytes] = []
    for size in sizes:
        blocks.append(content[:size])
        content = content[size:]
    return [block for block in [*blocks, content] if block]
