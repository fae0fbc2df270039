"""Reads any source with the reader of its kind."""

from collections import Counter
from collections.abc import Iterator

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import Document, cut_text
from maskwright.corpus.hub import read_hub
from maskwright.corpus.progress import ReadProgress
from maskwright.corpus.readers.blocks import read_blocks
from maskwright.corpus.readers.dump import read_dump
from maskwright.corpus.readers.fields import MAX_RECORD_CHARACTERS, TextField
from maskwright.corpus.readers.jsonl import read_jsonl
from maskwright.corpus.readers.parquet import read_parquet
from maskwright.corpus.readers.plain import read_plain
from maskwright.corpus.readers.pydocs import read_pydocs
from maskwright.corpus.readers.tables import read_table
from maskwright.corpus.readers.text import decode_text, read_lines
from maskwright.corpus.readers.unreadable import UnreadableError
from maskwright.corpus.sources import Source


def read_source(
    source: Source,
    config: CorpusConfig,
    counts: Counter[str],
    progress: ReadProgress | None = None,
) -> Iterator[Document]:
    """The documents of one source, uncleaned, with bounded memory.

    What cannot be read is counted by reason in `counts`; how far reading is, in `progress`.

    Raises:
        CorpusError: the source is damaged, or cannot be read although it was named explicitly.
    """
    number = 0
    limit = config.max_document_characters
    progress = progress or ReadProgress()
    progress.begin(source)
    try:
        for key, text in _read_keyed(source, config, counts, progress):
            for piece in cut_text(text, limit):
                number += 1
                yield Document(piece, f"{source.label}:{key or number}", source.name)
            if len(text) > limit:
                counts["long document cut"] += 1
        if not number:
            raise UnreadableError(
                "file without text", f"{source.name} is empty: nothing to train on."
            )
    except UnreadableError as error:
        if source.explicit:
            raise
        counts[error.reason] += 1


def _read_keyed(
    source: Source, config: CorpusConfig, counts: Counter[str], progress: ReadProgress
) -> Iterator[tuple[str, str]]:
    """Texts with a key of their own where they have one, else with an empty key."""
    if source.kind == "pydocs":
        return read_pydocs()
    return (("", text) for text in _read_texts(source, config, counts, progress))


def _read_texts(
    source: Source, config: CorpusConfig, counts: Counter[str], progress: ReadProgress
) -> Iterator[str]:
    field = TextField(config.text_field, source.name, counts)
    if source.kind == "hub":
        return read_hub(source.name, config.text_field, counts)
    if source.kind == "parquet" and source.path:
        return read_parquet(source.path, source.compression, field, counts, progress.advance)
    blocks = read_blocks(source.path, source.compression, source.name, progress.advance)
    if source.kind == "dump":
        return read_dump(blocks, source.name, counts)
    texts = decode_text(blocks, source.name, config.encoding)
    if source.kind in ("plain", "markdown"):
        whole = source.kind == "markdown" and config.documents == "auto"
        mode = "file" if whole else config.documents
        return read_plain(texts, mode, config.max_document_characters, counts)
    lines = read_lines(texts, MAX_RECORD_CHARACTERS, counts)
    if source.kind == "jsonl":
        return read_jsonl(lines, field, counts)
    return read_table(lines, "csv" if source.kind == "csv" else "tsv", field, counts)
