"""Encode chunks on all cores, with a bounded number of them in memory."""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from pathlib import Path

from maskwright.preparation.chunks import Chunk
from maskwright.preparation.encode import EncodedChunk, encode_chunk
from maskwright.preparation.engines import Engine
from maskwright.tokenizer.tokenizer import Tokenizer


def encode_chunks(chunks: Iterable[Chunk], folder: Path, engine: Engine) -> Generator[EncodedChunk]:
    """Encode all chunks into `folder`, in any order; see `Engine`.

    Args:
        folder: the prepared folder; its ``tokenizer`` folder holds the tokenizer.
    """
    return engine.work_through(chunks, partial(_load_encoder, folder), str(folder))


def _load_encoder(folder: Path) -> Callable[[Chunk], EncodedChunk]:
    tokenizer = Tokenizer.load(folder / "tokenizer")
    return lambda chunk: encode_chunk(chunk, folder, tokenizer)
